"""An object store in this process's memory: the part of S3's interface that Polars uses, for whoever has its key."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from urllib.parse import unquote
from xml.sax.saxutils import escape, unescape

from support.store_server import Store, StoreHandler, serve, tag

__all__ = ["ObjectStore", "object_store"]


class ObjectStore(Store):
    """A bucket of S3.

    Attributes
    ----------
    key, secret
        The access key; requests that are not signed with it are refused.
    """

    base = "s3://bucket"
    key = "AKIATEST"
    secret = "its secret"

    @property
    def place(self) -> dict[str, str]:
        """Storage options without a key."""
        return {"aws_endpoint_url": self.url, "aws_region": "us-east-1", "aws_allow_http": "true"}

    @property
    def storage_options(self) -> dict[str, str]:
        """Storage options with the key."""
        return {**self.place, **self.credentials}

    @property
    def wrong_options(self) -> dict[str, str]:
        """Storage options with another key."""
        return {**self.storage_options, "aws_access_key_id": "another"}

    @property
    def credentials(self) -> dict[str, str]:
        """What a credential provider of Polars returns."""
        return {"aws_access_key_id": self.key, "aws_secret_access_key": self.secret}

    @property
    def secrets(self) -> list[str]:
        """Texts that no message may show."""
        return [self.key, self.secret]


class _Handler(StoreHandler[ObjectStore]):
    def may_enter(self, _: dict[str, str]) -> bool:
        return f"Credential={self.store.key}/" in self.headers.get("Authorization", "")

    def _get(self, name: str, query: dict[str, str], _: bytes) -> None:
        if "list-type" in query:
            self._list(name.strip("/"), query.get("prefix", ""))
            return
        found = self.store.objects.get(name)
        if found is None:
            self.answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
            return
        self.send_object(found)

    def _list(self, bucket: str, prefix: str) -> None:
        start = f"{bucket}/{prefix}"
        entries = "".join(
            f"<Contents><Key>{escape(name[len(bucket) + 1 :])}</Key><Size>{len(value)}</Size>"
            f"<LastModified>2024-01-01T00:00:00.000Z</LastModified><ETag>{tag(value)}</ETag></Contents>"
            for name, value in sorted(self.store.objects.items())
            if name.startswith(start)
        )
        self.answer(
            200, f"<ListBucketResult><IsTruncated>false</IsTruncated>{entries}</ListBucketResult>".encode()
        )

    def _put(self, name: str, query: dict[str, str], body: bytes) -> None:
        if "uploadId" in query:
            if not self.knows_upload(query):
                return
            self.store.uploads[query["uploadId"]][int(query["partNumber"])] = body
        elif source := self.headers.get("x-amz-copy-source"):
            self._copy(unquote(source).lstrip("/"), name)
            return
        elif self.headers.get("If-None-Match") == "*" and name in self.store.objects:
            self.answer(412, b"<Error><Code>PreconditionFailed</Code></Error>")
            return
        else:
            self.store.objects[name] = body
        self.answer(200, ETag=tag(body))

    def _copy(self, source: str, name: str) -> None:
        found = self.store.objects.get(source)
        if found is None:
            self.answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
            return
        self.store.objects[name] = found
        self.answer(200, f"<CopyObjectResult><ETag>{tag(found)}</ETag></CopyObjectResult>".encode())

    def _post(self, name: str, query: dict[str, str], body: bytes) -> None:
        if "delete" in query:
            quotes = {"&quot;": '"', "&apos;": "'"}
            keys = [unescape(key, quotes) for key in re.findall(r"<Key>(.*?)</Key>", body.decode())]
            for key in keys:
                self.store.objects.pop(f"{name.strip('/')}/{key}", None)
            deleted = "".join(f"<Deleted><Key>{escape(key)}</Key></Deleted>" for key in keys)
            self.answer(200, f"<DeleteResult>{deleted}</DeleteResult>".encode())
            return
        if "uploads" in query:
            self.begin_upload()
            return
        if not self.knows_upload(query):
            return
        parts = self.store.uploads.pop(query["uploadId"])
        value = self.store.objects[name] = b"".join(parts[number] for number in sorted(parts))
        self.answer(
            200,
            f"<CompleteMultipartUploadResult><ETag>{tag(value)}</ETag></CompleteMultipartUploadResult>".encode(),
        )

    def _delete(self, name: str, query: dict[str, str], _: bytes) -> None:
        if "uploadId" in query:
            self.store.uploads.pop(query["uploadId"], None)
        else:
            self.store.objects.pop(name, None)
        self.answer(204)


@contextlib.contextmanager
def object_store() -> Iterator[ObjectStore]:
    """Serve an empty store on the loopback interface."""
    with serve(ObjectStore(), _Handler) as store:
        yield store
