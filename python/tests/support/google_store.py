"""An object store in memory: the part of Google Cloud Storage's XML interface that Polars, obstore and deltalake use.

Their reads and writes are those of the Rust crate ``object_store``. A request needs a bearer token: the store's own, or
one that the key of its service account has signed. Conditions are those on an object's generation.
"""

from __future__ import annotations

import base64
import functools
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import unquote
from xml.sax.saxutils import escape

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from support.store_server import Store, StoreHandler, serve, store_process, tag

__all__ = ["GoogleHandler", "GoogleStore", "google_process", "google_store"]

_PAGE = 7
"""Objects that one answer lists: few, so that tests see lists of several pages."""


class GoogleStore(Store):
    """A bucket of Google Cloud Storage.

    Attributes
    ----------
    token
        A bearer token that opens it.
    key
        The private key of a service account, as PEM.
    """

    base = "gs://bucket"
    token = "a token of Google"

    def __init__(self, url: str = "") -> None:
        super().__init__(url)
        self.key = _new_key()

    @property
    def place(self) -> dict[str, str]:
        """Storage options without a key."""
        return {"google_base_url": self.url, "allow_http": "true"}

    def _account(self, key: str) -> dict[str, str]:
        account = {
            "type": "service_account",
            "private_key": key,
            "private_key_id": "1",
            "client_email": "tests@example.com",
            "gcs_base_url": self.url,
        }
        return {"google_service_account_key": json.dumps(account), "allow_http": "true"}

    @property
    def storage_options(self) -> dict[str, str]:
        """Storage options with the key of the service account."""
        return self._account(self.key)

    @property
    def wrong_options(self) -> dict[str, str]:
        """Storage options with the key of another account."""
        return self._account(_new_key())

    @property
    def credentials(self) -> dict[str, str]:
        """What a credential provider of Polars returns."""
        return {"bearer_token": self.token}

    @property
    def secrets(self) -> list[str]:
        """Texts that no message may show."""
        return [self.token, *self.key.split("\n")[1:-2]]


def _new_key() -> str:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()


@functools.lru_cache(maxsize=64)
def _is_signed(token: str, pem: str) -> bool:
    said, _, text = token.rpartition(".")
    key = serialization.load_pem_private_key(pem.encode(), None)
    assert isinstance(key, rsa.RSAPrivateKey)
    try:
        signature = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        key.public_key().verify(signature, said.encode(), padding.PKCS1v15(), hashes.SHA256())
    except (InvalidSignature, ValueError):
        return False
    return True


class GoogleHandler(StoreHandler[GoogleStore]):
    """Answers as Google Cloud Storage does."""

    def may_enter(self, _: dict[str, str]) -> bool:
        """Say whether the request has a token that opens the store."""
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        return token == self.store.token or _is_signed(token, self.store.key)

    def _get(self, name: str, query: dict[str, str], _: bytes) -> None:
        if "list-type" in query:
            self._list(name.strip("/"), query)
            return
        found = self.store.objects.get(name)
        if found is None:
            self.answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
            return
        self.send_object(found, x_goog_generation="1")

    def _list(self, bucket: str, query: dict[str, str]) -> None:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        after = max(query.get("continuation-token", ""), query.get("start-after", ""))
        entries: dict[str, str] = {}
        for name, value in sorted(self.store.objects.items()):
            key = name.removeprefix(f"{bucket}/")
            if key == name or not key.startswith(prefix):
                continue
            cut = key.find(delimiter, len(prefix)) if delimiter else -1
            if cut >= 0:
                folder = key[: cut + len(delimiter)]
                entries[folder] = f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>"
            else:
                entries[key] = (
                    f"<Contents><Key>{escape(key)}</Key><Size>{len(value)}</Size><Generation>1</Generation>"
                    f"<LastModified>2024-01-01T00:00:00.000Z</LastModified><ETag>{tag(value)}</ETag></Contents>"
                )
        keys = [key for key in sorted(entries) if key > after]
        size = min(int(query.get("max-keys", _PAGE)), _PAGE)
        shown = "".join(entries[key] for key in keys[:size])
        more = len(keys) > size
        token = f"<NextContinuationToken>{escape(keys[size - 1])}</NextContinuationToken>" if more else ""
        self.answer(
            200,
            f"<ListBucketResult><IsTruncated>{str(more).lower()}</IsTruncated>{shown}{token}"
            "</ListBucketResult>".encode(),
        )

    def _put(self, name: str, query: dict[str, str], body: bytes) -> None:
        if "uploadId" in query:
            if not self.knows_upload(query):
                return
            self.store.uploads[query["uploadId"]][int(query["partNumber"])] = body
        else:
            if self.headers.get("x-goog-if-generation-match") == "0" and name in self.store.objects:
                self.answer(412, b"<Error><Code>PreconditionFailed</Code></Error>")
                return
            if source := self.headers.get("x-goog-copy-source"):
                body = self.store.objects[unquote(source).lstrip("/")]
            self.store.objects[name] = body
        self.answer(200, ETag=tag(body), x_goog_generation="1")

    def _post(self, name: str, query: dict[str, str], body: bytes) -> None:
        if "uploads" in query:
            self.begin_upload()
            return
        if not self.knows_upload(query):
            return
        parts = self.store.uploads.pop(query["uploadId"])
        numbers = [int(number) for number in re.findall(r"<PartNumber>(\d+)</PartNumber>", body.decode())]
        value = self.store.objects[name] = b"".join(parts[number] for number in numbers)
        self.answer(
            200,
            f"<CompleteMultipartUploadResult><ETag>{tag(value)}</ETag></CompleteMultipartUploadResult>".encode(),
            x_goog_generation="1",
        )

    def _delete(self, name: str, query: dict[str, str], _: bytes) -> None:
        if "uploadId" in query:
            self.store.uploads.pop(query["uploadId"], None)
        elif self.store.objects.pop(name, None) is None:
            self.answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
            return
        self.answer(204)


@contextmanager
def google_store() -> Iterator[GoogleStore]:
    """Serve an empty store on the loopback interface."""
    with serve(GoogleStore(), GoogleHandler) as store:
        yield store


@contextmanager
def google_process() -> Iterator[GoogleStore]:
    """Serve an empty store from a process of its own."""
    with store_process(GoogleStore(), GoogleHandler) as store:
        yield store
