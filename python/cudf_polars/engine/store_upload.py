"""One object of a store that Polars writes and that is there only when it is whole.

Polars ends the upload of a query that has failed as if the rows until then were all. So it writes to an
:class:`Upload` instead: large objects go to the store in parts, which it joins when the query has succeeded.
"""

from __future__ import annotations

import contextlib
import io
import threading
from typing import Any

from cudf_polars.lower.byte_files import FileUnreadableError, open_store, without_request
from cudf_polars.plan.cloud import CloudAccess, shown_path

__all__ = ["Upload", "may_upload"]

_PART_BYTES = 32 << 20
"""S3 takes 10,000 parts: an object may have 320 GB."""
_PARTS_AT_ONCE = 4


def may_upload(access: CloudAccess | None) -> bool:
    """Say whether objects that are written here are as those that Polars writes: it alone knows how to encrypt them."""
    return access is None or not access.encrypts


class Upload(io.RawIOBase):
    """An object that takes its name when :meth:`finish` is called; until then an older one stays.

    Parameters
    ----------
    url
        The object's.
    access
        How its store is reached.

    Raises
    ------
    FileUnreadableError
        If the package obstore is not installed, or cannot reach the store.
    """

    def __init__(self, url: str, access: CloudAccess | None) -> None:
        store, key = open_store(url, access)
        import obstore

        self._shown = shown_path(url)
        self._lock = threading.Lock()  # Polars writes on threads of its own, also when the query has failed
        self._writer: Any = obstore.open_writer(
            store, key, buffer_size=_PART_BYTES, max_concurrency=_PARTS_AT_ONCE
        )
        self.nbytes = 0

    def writable(self) -> bool:
        """Say that it can be written to."""
        return True

    def write(self, data: Any, /) -> int:
        """Write bytes; those of a query that has failed go nowhere."""
        with self._lock:
            size = memoryview(data).nbytes
            if self._writer is not None:
                with self._errors():
                    self._writer.write(data)
                self.nbytes += size
            return size

    def finish(self) -> None:
        """Let the object take its name.

        Raises
        ------
        OSError
            If the store refuses it. The message holds no secret.
        """
        with self._lock:
            writer, self._writer = self._writer, None
            with self._errors():
                writer.close()

    def abort(self) -> None:
        """Leave what was there, and let the store forget the parts."""
        with self._lock:
            writer, self._writer = self._writer, None
            if writer is not None:
                with contextlib.suppress(Exception):
                    writer.__exit__(OSError, OSError("the query has failed"), None)

    def _errors(self) -> contextlib.AbstractContextManager[None]:
        return without_request(f"{self._shown} cannot be written", FileUnreadableError)
