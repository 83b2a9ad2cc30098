"""Files by HTTP."""

from __future__ import annotations

import contextlib
import http.server
import threading
from collections.abc import Iterator, Mapping

__all__ = ["web_server"]


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    files: Mapping[str, bytes]
    query: str

    def do_GET(self) -> None:
        """Answer with a file or the part of it that is wanted."""
        path, _, query = self.path.partition("?")
        found = self.files.get(path)
        if found is None or self.query not in query:
            self.send_response(404 if found is None else 403)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        part, total = found, len(found)
        if wanted := self.headers.get("Range", ""):
            first, last = wanted.removeprefix("bytes=").split("-")
            start = int(first) if first else max(0, total - int(last))
            part = found[start : int(last) + 1 if first and last else total]
        self.send_response(206 if wanted else 200)
        if wanted:
            self.send_header("Content-Range", f"bytes {start}-{start + len(part) - 1}/{total}")
        self.send_header("Content-Length", str(len(part)))
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Last-Modified", "Mon, 01 Jan 2024 00:00:00 GMT")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(part)

    do_HEAD = do_GET

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextlib.contextmanager
def web_server(files: Mapping[str, bytes], *, query: str = "") -> Iterator[str]:
    """Serve files on the loopback interface and yield the server's host and port.

    Parameters
    ----------
    files
        By path.
    query
        What the query of a URL has to have for the server to answer.
    """
    handler = type("_Bound", (_Handler,), {"files": files, "query": query})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
