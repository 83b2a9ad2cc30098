"""S3 by moto's server, in this process or in another."""

from __future__ import annotations

import contextlib
import logging
import subprocess
import sys
from collections.abc import Iterator
from urllib.request import Request, urlopen

from support.object_store import ObjectStore

__all__ = ["moto_process", "moto_store"]


@contextlib.contextmanager
def moto_store() -> Iterator[ObjectStore]:
    """Serve S3 with an empty bucket ``bucket`` on the loopback interface; the store's ``objects`` are not there."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        store = ObjectStore(f"http://{host}:{port}")
        # Servers of a process share what they hold.
        urlopen(Request(f"{store.url}/moto-api/reset", method="POST"), timeout=20).close()
        urlopen(Request(f"{store.url}/bucket", method="PUT"), timeout=20).close()
        yield store
    finally:
        server.stop()


_SERVER = """
import logging
import sys
from moto.server import ThreadedMotoServer
logging.getLogger("werkzeug").setLevel(logging.ERROR)
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(*server.get_host_and_port(), flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def moto_process() -> Iterator[ObjectStore]:
    """Serve S3 as :func:`moto_store` does, from a process of its own: deltalake commits with the GIL held."""
    process = subprocess.Popen(
        [sys.executable, "-c", _SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        host, port = process.stdout.readline().split()
        store = ObjectStore(f"http://{host}:{port}")
        urlopen(Request(f"{store.url}/bucket", method="PUT"), timeout=20).close()
        yield store
    finally:
        process.communicate()
