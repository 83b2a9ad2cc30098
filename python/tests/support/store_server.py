"""What the tests' own object stores have in common: a server in memory, for whoever has its key.

:func:`serve` runs one on threads of this process, :func:`store_process` in a process of its own: deltalake commits
with Python's lock held, so it waits for ever for a server of its own process.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import json
import os
import re
import subprocess
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar
from urllib.parse import parse_qs, unquote, urlsplit

__all__ = ["MODIFIED", "Store", "StoreHandler", "serve", "store_process", "tag"]

MODIFIED = "Mon, 01 Jan 2024 00:00:00 GMT"
"""When all objects were written, as headers have it."""


class Store(ABC):
    """What a server has and how it is reached.

    Attributes
    ----------
    url
        Where it listens.
    base
        URL of its one bucket.
    objects
        Contents by ``bucket/key``; empty where the server is another process.
    uploads
        Parts of objects that are not there yet, by upload.
    numbers
        Those of uploads.
    refused
        How many requests had no key.
    on_change
        Called before and after each change, if it is set.
    """

    base: ClassVar[str]

    def __init__(self, url: str = "") -> None:
        self.url = url
        self.objects: dict[str, bytes] = {}
        self.uploads: dict[str, dict[Any, bytes]] = {}
        self.numbers = itertools.count()
        self.lock = threading.Lock()
        self.refused = 0
        self.on_change: Callable[[], None] | None = None

    @property
    @abstractmethod
    def place(self) -> dict[str, str]:
        """Storage options without a key."""

    @property
    @abstractmethod
    def storage_options(self) -> dict[str, str]:
        """Storage options with the key."""

    @property
    @abstractmethod
    def credentials(self) -> dict[str, str]:
        """What a credential provider of Polars returns."""

    @property
    @abstractmethod
    def secrets(self) -> list[str]:
        """Texts that no message may show."""

    @property
    def access(self) -> tuple[str, dict[str, str], dict[str, str], dict[str, str]]:
        """Return its URL, storage options without and with the key, and what a credential provider says."""
        return self.base, self.place, self.storage_options, self.credentials

    @property
    def delta_options(self) -> dict[str, str]:
        """Storage options of tables of Delta, to which two do not commit the same version."""
        return self.storage_options

    @property
    @abstractmethod
    def wrong_options(self) -> dict[str, str]:
        """Storage options with another key."""


StoreT = TypeVar("StoreT", bound=Store)


class StoreHandler(BaseHTTPRequestHandler, Generic[StoreT]):
    """Answers one request after the other, of which each has the whole store."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else bodies wait 40 ms for the client to acknowledge the headers
    store: StoreT

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        """Send an answer; names of headers have ``_`` for ``-``."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if "Content_Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            with contextlib.suppress(ConnectionError):  # who has an error of another request waits no longer
                self.wfile.write(body)

    def send_object(self, found: bytes, **headers: str) -> None:
        """Answer with an object, or with what the request wants of it."""
        common = {"ETag": tag(found), "Last_Modified": MODIFIED, **headers}
        asked = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        if asked is None:
            self.answer(200, found, Content_Length=str(len(found)), **common)
            return
        first, last = asked.groups()
        low = int(first) if first else max(0, len(found) - int(last))
        high = min(int(last) + 1, len(found)) if first and last else len(found)
        if low >= len(found):
            self.answer(416, b"<Error><Code>InvalidRange</Code></Error>")
            return
        self.answer(206, found[low:high], Content_Range=f"bytes {low}-{high - 1}/{len(found)}", **common)

    def begin_upload(self) -> None:
        """Answer with the name of a new upload."""
        name = f"upload{next(self.store.numbers)}"
        self.store.uploads[name] = {}
        text = f"<InitiateMultipartUploadResult><UploadId>{name}</UploadId></InitiateMultipartUploadResult>"
        self.answer(200, text.encode())

    def knows_upload(self, query: dict[str, str]) -> bool:
        """Say whether the upload of a request is there; if not, this was the answer."""
        if query["uploadId"] in self.store.uploads:
            return True
        self.answer(404, b"<Error><Code>NoSuchUpload</Code></Error>")
        return False

    def may_enter(self, query: dict[str, str]) -> bool:
        """Say whether the request has the key."""
        raise NotImplementedError

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(parts.query, keep_blank_values=True).items()}
        with self.store.lock:
            if not self.may_enter(query):
                self.store.refused += 1
                self.answer(403, b"<Error><Code>AccessDenied</Code></Error>")
                return
            answer = functools.partial(
                getattr(self, f"_{self.command.lower()}"), unquote(parts.path).lstrip("/")
            )
            if self.store.on_change is None or self.command in ("GET", "HEAD"):
                answer(query, body)
                return
            with contextlib.suppress(ConnectionError):
                self.store.on_change()
                answer(query, body)
                self.store.on_change()

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _handle

    def _head(self, name: str, query: dict[str, str], body: bytes) -> None:
        self._get(name, query, body)

    def _get(self, name: str, query: dict[str, str], body: bytes) -> None:
        raise NotImplementedError


def tag(value: bytes) -> str:
    """Return what is another for another object."""
    return f'"{hashlib.md5(value, usedforsecurity=False).hexdigest()}"'


@contextlib.contextmanager
def serve(store: StoreT, handler: type[StoreHandler[StoreT]]) -> Iterator[StoreT]:
    """Serve a store on the loopback interface, and tell it its URL."""
    bound = type("_Bound", (handler,), {"store": store})
    with ThreadingHTTPServer(("127.0.0.1", 0), bound) as server:
        store.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield store
        finally:
            server.shutdown()
            thread.join()


_SERVER = """
import importlib, json, sys
from support.store_server import serve
module, store_type, handler, state = json.loads(sys.stdin.readline())
found = importlib.import_module(module)
store = getattr(found, store_type)()
vars(store).update(state)
with serve(store, getattr(found, handler)):
    print(store.url, flush=True)
    sys.stdin.read()
"""


@contextlib.contextmanager
def store_process(store: StoreT, handler: type[StoreHandler[StoreT]]) -> Iterator[StoreT]:
    """Serve a store as :func:`serve` does, from a process of its own; it has the texts that ``store`` has."""
    state = {name: value for name, value in vars(store).items() if isinstance(value, str)}
    process = subprocess.Popen(
        [sys.executable, "-c", _SERVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
    )
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        line = json.dumps([type(store).__module__, type(store).__name__, handler.__name__, state])
        process.stdin.write(f"{line}\n")
        process.stdin.flush()
        store.url = process.stdout.readline().strip()
        yield store
    finally:
        process.communicate()
