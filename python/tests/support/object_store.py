"""An object store in this process's memory: the part of S3's interface that Polars uses, for whoever has its key."""

from __future__ import annotations

import contextlib
import hashlib
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

import polars as pl

__all__ = ["ObjectStore", "cloud_queries", "object_store"]


class ObjectStore:
    """What the server has and what it was asked.

    Attributes
    ----------
    url
        Where it listens.
    key, secret
        The access key; requests that are not signed with it are refused.
    objects
        Contents by ``bucket/key``.
    """

    key = "AKIATEST"
    secret = "its secret"

    def __init__(self, url: str) -> None:
        self.url = url
        self.objects: dict[str, bytes] = {}
        self.uploads: dict[str, dict[int, bytes]] = {}
        self.lock = threading.Lock()

    @property
    def place(self) -> dict[str, str]:
        """Storage options without a key."""
        return {"aws_endpoint_url": self.url, "aws_region": "us-east-1", "aws_allow_http": "true"}

    @property
    def storage_options(self) -> dict[str, str]:
        """Storage options with the key."""
        return {**self.place, "aws_access_key_id": self.key, "aws_secret_access_key": self.secret}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    store: ObjectStore

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def _answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if "Content_Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if f"Credential={self.store.key}/" not in self.headers.get("Authorization", ""):
            self._answer(403, b"<Error><Code>AccessDenied</Code></Error>")
            return
        parts = urlsplit(self.path)
        name = unquote(parts.path).lstrip("/")
        query = {key: values[0] for key, values in parse_qs(parts.query, keep_blank_values=True).items()}
        with self.store.lock:
            getattr(self, f"_{self.command.lower()}")(name, query, body)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _handle

    def _head(self, name: str, query: dict[str, str], body: bytes) -> None:
        self._get(name, query, body)

    def _get(self, name: str, query: dict[str, str], _: bytes) -> None:
        if "list-type" in query:
            self._list(name.strip("/"), query.get("prefix", ""))
            return
        found = self.store.objects.get(name)
        if found is None:
            self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
            return
        common = {"ETag": _tag(found), "Last_Modified": "Mon, 01 Jan 2024 00:00:00 GMT"}
        asked = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        if asked is None:
            length = {"Content_Length": str(len(found))}
            self._answer(200, found, **common, **length)
            return
        first, last = asked.groups()
        low = int(first) if first else max(0, len(found) - int(last))
        high = min(int(last) + 1, len(found)) if first and last else len(found)
        self._answer(206, found[low:high], Content_Range=f"bytes {low}-{high - 1}/{len(found)}", **common)

    def _list(self, bucket: str, prefix: str) -> None:
        start = f"{bucket}/{prefix}"
        entries = "".join(
            f"<Contents><Key>{escape(name[len(bucket) + 1 :])}</Key><Size>{len(value)}</Size>"
            f"<LastModified>2024-01-01T00:00:00.000Z</LastModified><ETag>{_tag(value)}</ETag></Contents>"
            for name, value in sorted(self.store.objects.items())
            if name.startswith(start)
        )
        self._answer(
            200, f"<ListBucketResult><IsTruncated>false</IsTruncated>{entries}</ListBucketResult>".encode()
        )

    def _put(self, name: str, query: dict[str, str], body: bytes) -> None:
        if "uploadId" in query:
            self.store.uploads[query["uploadId"]][int(query["partNumber"])] = body
        else:
            self.store.objects[name] = body
        self._answer(200, ETag=_tag(body))

    def _post(self, name: str, query: dict[str, str], body: bytes) -> None:
        if "delete" in query:
            quotes = {"&quot;": '"', "&apos;": "'"}
            keys = [unescape(key, quotes) for key in re.findall(r"<Key>(.*?)</Key>", body.decode())]
            for key in keys:
                self.store.objects.pop(f"{name.strip('/')}/{key}", None)
            deleted = "".join(f"<Deleted><Key>{escape(key)}</Key></Deleted>" for key in keys)
            self._answer(200, f"<DeleteResult>{deleted}</DeleteResult>".encode())
            return
        if "uploads" in query:
            number = f"upload{len(self.store.uploads)}"
            self.store.uploads[number] = {}
            self._answer(
                200,
                f"<InitiateMultipartUploadResult><UploadId>{number}</UploadId></InitiateMultipartUploadResult>".encode(),
            )
            return
        parts = self.store.uploads.pop(query["uploadId"])
        value = self.store.objects[name] = b"".join(parts[number] for number in sorted(parts))
        self._answer(
            200,
            f"<CompleteMultipartUploadResult><ETag>{_tag(value)}</ETag></CompleteMultipartUploadResult>".encode(),
        )

    def _delete(self, name: str, query: dict[str, str], _: bytes) -> None:
        if "uploadId" in query:
            self.store.uploads.pop(query["uploadId"], None)
        else:
            self.store.objects.pop(name, None)
        self._answer(204)


def _tag(value: bytes) -> str:
    return f'"{hashlib.md5(value, usedforsecurity=False).hexdigest()}"'


@contextlib.contextmanager
def object_store() -> Iterator[ObjectStore]:
    """Serve an empty store on the loopback interface."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        store = ObjectStore(f"http://127.0.0.1:{server.server_address[1]}")
        server.RequestHandlerClass = type("_Bound", (_Handler,), {"store": store})
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield store
        finally:
            server.shutdown()
            thread.join()


def cloud_queries(place: dict[str, str], options: dict[str, str]) -> dict[str, pl.LazyFrame]:
    """Return queries of ``rows.csv`` and ``rows.parquet`` in ``bucket``, by keys and by a credential provider.

    Parameters
    ----------
    place, options
        Storage options without and with the key.
    """

    def provider() -> tuple[dict[str, str], None]:
        return {key: options[key] for key in ("aws_access_key_id", "aws_secret_access_key")}, None

    return {
        f"{kind} by {how}": scan(f"s3://bucket/rows.{kind}", **access)
        .group_by("region")
        .agg(pl.col("id").sum())
        for kind, scan in (("csv", pl.scan_csv), ("parquet", pl.scan_parquet))
        for how, access in (
            ("keys", {"storage_options": options}),
            ("provider", {"storage_options": place, "credential_provider": provider}),
        )
    }
