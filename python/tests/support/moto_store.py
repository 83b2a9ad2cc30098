"""S3 by moto's server, in this process."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from urllib.request import Request, urlopen

from support.object_store import ObjectStore

__all__ = ["moto_store"]


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
