"""An object store in memory: the part of Azure Blob Storage's interface that Polars, obstore and deltalake use.

Their reads and writes are those of the Rust crate ``object_store``. A request needs the signature of the account's key,
a bearer token, or a shared access signature (SAS). Large objects come as blocks, and are there once a list of them is.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from urllib.parse import parse_qs, parse_qsl, unquote, urlsplit
from xml.sax.saxutils import escape

from support.store_server import MODIFIED, Store, StoreHandler, serve, store_process, tag

__all__ = ["AzureHandler", "AzureStore", "azure_process", "azure_store"]

_PAGE = 7
"""Objects that one answer lists: few, so that tests see lists of several pages."""
_SIGNED = [
    "Content-Encoding", "Content-Language", "Content-Length", "Content-MD5", "Content-Type", "Date",
    "If-Modified-Since", "If-Match", "If-None-Match", "If-Unmodified-Since", "Range",
]  # fmt: skip
"""Headers whose values the account's key signs, in order."""


class AzureStore(Store):
    """A container of Azure Blob Storage.

    Attributes
    ----------
    account
        The account's name.
    key
        The account's key.
    token
        A bearer token that opens it.
    signature
        A shared access signature that opens it, as the query of a URL.
    """

    base = "az://bucket"
    account = "riverrun"
    key = base64.b64encode(b"the key of an account of Azure's").decode()
    token = "a-token-of-Azure"
    signature = "sv=2023-11-03&sp=rwdl&sig=c2lnbmVkIGJ5IG5vYm9keQ%3D%3D"

    @property
    def place(self) -> dict[str, str]:
        """Storage options without a key."""
        return {
            "azure_storage_account_name": self.account,
            "azure_endpoint": f"{self.url}/{self.account}",
            "azure_allow_http": "true",
        }

    @property
    def storage_options(self) -> dict[str, str]:
        """Storage options with the account's key."""
        return {**self.place, "azure_storage_account_key": self.key}

    @property
    def signature_options(self) -> dict[str, str]:
        """Storage options with a shared access signature."""
        return {**self.place, "azure_storage_sas_token": self.signature}

    @property
    def wrong_options(self) -> dict[str, str]:
        """Storage options with the key of another account."""
        return {**self.place, "azure_storage_account_key": base64.b64encode(b"another key").decode()}

    @property
    def credentials(self) -> dict[str, str]:
        """What a credential provider of Polars returns."""
        return {"bearer_token": self.token}

    @property
    def secrets(self) -> list[str]:
        """Texts that no message may show."""
        return [self.token, self.key, self.signature.rpartition("=")[2], "c2lnbmVkIGJ5IG5vYm9keQ"]


class AzureHandler(StoreHandler[AzureStore]):
    """Answers as Azure Blob Storage does."""

    def may_enter(self, query: dict[str, str]) -> bool:
        """Say whether the request has a key of the store."""
        return self._is_authorised(self.command, self.path, dict(self.headers.items()), query)

    def _is_authorised(
        self, command: str, path: str, headers: Mapping[str, str], query: Mapping[str, str]
    ) -> bool:
        found = {name.lower(): value for name, value in headers.items()}
        given = found.get("authorization", "")
        if not given:
            return dict(parse_qsl(self.store.signature)).items() <= query.items()
        if given.startswith("Bearer "):
            return given == f"Bearer {self.store.token}"
        values = [found.get(name.lower(), "") for name in _SIGNED]
        values[2] = values[2].removeprefix("0") if values[2] == "0" else values[2]
        own = sorted((name, value) for name, value in found.items() if name.startswith("x-ms-"))
        text = "\n".join([command, *values, *(f"{name}:{value}" for name, value in own)])
        text += f"\n/{self.store.account}{urlsplit(path).path}"
        text += "".join(f"\n{name.lower()}:{value}" for name, value in sorted(query.items()))
        signed = hmac.digest(base64.b64decode(self.store.key), text.encode(), hashlib.sha256)
        return given == f"SharedKey {self.store.account}:{base64.b64encode(signed).decode()}"

    def _name(self, path: str) -> str:
        return path.removeprefix(f"{self.store.account}/")

    def _get(self, path: str, query: dict[str, str], _: bytes) -> None:
        if query.get("comp") == "list":
            self._list(self._name(path).strip("/"), query)
            return
        found = self.store.objects.get(self._name(path))
        if found is None:
            self.answer(404, b"<Error><Code>BlobNotFound</Code></Error>")
            return
        self.send_object(found, x_ms_blob_type="BlockBlob")

    def _list(self, container: str, query: dict[str, str]) -> None:
        prefix, delimiter, after = (query.get(name, "") for name in ("prefix", "delimiter", "marker"))
        entries: dict[str, str] = {}
        for name, value in sorted(self.store.objects.items()):
            key = name.removeprefix(f"{container}/")
            if key == name or not key.startswith(prefix):
                continue
            cut = key.find(delimiter, len(prefix)) if delimiter else -1
            if cut >= 0:
                folder = key[: cut + len(delimiter)]
                entries[folder] = f"<BlobPrefix><Name>{escape(folder)}</Name></BlobPrefix>"
            else:
                entries[key] = (
                    f"<Blob><Name>{escape(key)}</Name><Properties><Last-Modified>{MODIFIED}</Last-Modified>"
                    f"<Etag>{tag(value)}</Etag><Content-Length>{len(value)}</Content-Length>"
                    "<Content-Type>application/octet-stream</Content-Type><BlobType>BlockBlob</BlobType>"
                    "</Properties></Blob>"
                )
        keys = [key for key in sorted(entries) if key > after and key >= query.get("startFrom", "")]
        size = min(int(query.get("maxresults", _PAGE)), _PAGE)
        shown = "".join(entries[key] for key in keys[:size])
        marker = escape(keys[size - 1]) if len(keys) > size else ""
        text = (
            '<?xml version="1.0" encoding="utf-8"?><EnumerationResults><Blobs>'
            f"{shown}</Blobs><NextMarker>{marker}</NextMarker></EnumerationResults>"
        )
        self.answer(200, text.encode(), Content_Type="application/xml")

    def _put(self, path: str, query: dict[str, str], body: bytes) -> None:
        name = self._name(path)
        if query.get("comp") == "block":
            self.store.uploads.setdefault(name, {})[query["blockid"]] = body
            self.answer(201)
            return
        if self.headers.get("If-None-Match") == "*" and name in self.store.objects:
            self.answer(409, b"<Error><Code>BlobAlreadyExists</Code></Error>")
            return
        status = 201
        if query.get("comp") == "blocklist":
            blocks = self.store.uploads.pop(name, {})
            found = re.findall(r"<(?:Uncommitted|Latest)>(.*?)</", body.decode())
            body = b"".join(blocks[block] for block in found)
        elif source := self.headers.get("x-ms-copy-source"):
            body = self.store.objects[self._name(unquote(urlsplit(source).path).lstrip("/"))]
            status = 202
        self.store.objects[name] = body
        self.answer(status, ETag=tag(body), Last_Modified=MODIFIED)

    def _post(self, _: str, query: dict[str, str], body: bytes) -> None:
        """Delete several objects, of which each has a signature of its own."""
        assert query.get("comp") == "batch", self.path
        answers = []
        for number, part in enumerate(re.findall(rb"(DELETE \S+ HTTP/1.1\r\n.*?\r\n)\r\n", body, re.DOTALL)):
            first, *lines = part.decode().rstrip().split("\r\n")
            target = first.split(" ")[1]
            headers = dict(line.split(": ", 1) for line in lines)
            asked = urlsplit(target)
            given = {key: values[0] for key, values in parse_qs(asked.query).items()}
            if not self._is_authorised("DELETE", target, headers, given):
                status = "403 Forbidden"
            elif self.store.objects.pop(self._name(unquote(asked.path).lstrip("/")), None) is None:
                status = "404 The specified blob does not exist."
            else:
                status = "202 Accepted"
            answers.append(
                "--batch\r\nContent-Type: application/http\r\n"
                f"Content-ID: {number}\r\n\r\nHTTP/1.1 {status}\r\nx-ms-version: 2023-11-03\r\n\r\n"
            )
        text = "".join([*answers, "--batch--\r\n"])
        self.answer(202, text.encode(), Content_Type="multipart/mixed; boundary=batch")

    def _delete(self, path: str, _: dict[str, str], __: bytes) -> None:
        if self.store.objects.pop(self._name(path), None) is None:
            self.answer(404, b"<Error><Code>BlobNotFound</Code></Error>")
            return
        self.answer(202)


@contextmanager
def azure_store() -> Iterator[AzureStore]:
    """Serve an empty store on the loopback interface."""
    with serve(AzureStore(), AzureHandler) as store:
        yield store


@contextmanager
def azure_process() -> Iterator[AzureStore]:
    """Serve an empty store from a process of its own."""
    with store_process(AzureStore(), AzureHandler) as store:
        yield store
