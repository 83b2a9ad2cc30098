"""Where sinks write: one file per rank in a directory, all of them or none.

Each rank writes to a temporary name next to the target. When all ranks have written, each renames its file; a
query that fails on any rank leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import os
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import polars as pl

from cudf_polars.execute.transport import Transport

__all__ = ["SinkTarget", "write_frame"]

_PREFIX = "part."
_WRITERS = {
    "parquet": pl.LazyFrame.sink_parquet,
    "ipc": pl.LazyFrame.sink_ipc,
    "csv": pl.LazyFrame.sink_csv,
    "ndjson": pl.LazyFrame.sink_ndjson,
}


def write_frame(frame: pl.DataFrame, target: object, extension: str, **kwargs: Any) -> None:
    """Write a frame to one target as ``pl.LazyFrame.sink_*`` does."""
    _WRITERS[extension](frame.lazy(), target, engine="streaming", **kwargs)  # type: ignore[operator]


class SinkTarget(ABC):
    """What a sink writes to. Made by :meth:`open`; all methods are called on all ranks."""

    @staticmethod
    def open(target: object, extension: str, transport: Transport) -> SinkTarget:
        """Check the target on all ranks.

        Parameters
        ----------
        target
            A path: the directory to write. A file object or ``pl.PartitionBy``: rank 0 writes it alone.
        extension
            Kind of file.
        transport
            Joins the ranks; uses its operations from ``2**11`` on.

        Raises
        ------
        FileExistsError
            If the path is a file, or a directory with other things than a former sink's parts.
        """
        if isinstance(target, str | Path):
            return _Directory(Path(target), extension, transport)
        return _OneWriter(target, extension, transport)

    @abstractmethod
    def write(self, frame: pl.DataFrame, **kwargs: Any) -> None:
        """Write this rank's rows."""

    @abstractmethod
    def commit(self) -> None:
        """Make what all ranks wrote visible."""

    @abstractmethod
    def discard(self) -> None:
        """Remove what this rank wrote."""


# The executor numbers its operations from 0; a sink's own come after them.
_FIRST_OP = 1 << 11


class _Directory(SinkTarget):
    def __init__(self, path: Path, extension: str, transport: Transport) -> None:
        self._path, self._extension, self._transport = path, extension, transport
        name = f"{_PREFIX}{transport.rank:05d}.{extension}"
        self._final = path / name
        self._temporary = path / f".{name}.{os.getpid()}.tmp"
        self._created = not path.exists()
        if path.exists() and not path.is_dir():
            raise FileExistsError(f"{path} is a file; a sink writes one file per rank into a directory")
        self._stale = self._former_parts() if path.is_dir() else []
        path.mkdir(parents=True, exist_ok=True)

    def _former_parts(self) -> list[Path]:
        entries = [entry for entry in self._path.iterdir() if not entry.name.startswith(f".{_PREFIX}")]
        foreign = [entry.name for entry in entries if not entry.name.startswith(_PREFIX)]
        if foreign:
            raise FileExistsError(
                f"{self._path} holds other files, for instance {min(foreign)!r}: sink to an empty directory"
            )
        return entries

    def write(self, frame: pl.DataFrame, **kwargs: Any) -> None:
        write_frame(frame, self._temporary, self._extension, **{**kwargs, "mkdir": False})

    def commit(self) -> None:
        self._transport.allgather_bytes(b"written", op=_FIRST_OP)
        self._temporary.replace(self._final)
        self._transport.allgather_bytes(b"renamed", op=_FIRST_OP + 1)
        if self._transport.rank == 0:
            ours = {f"{_PREFIX}{rank:05d}.{self._extension}" for rank in range(self._transport.nranks)}
            for entry in self._stale:
                if entry.name not in ours:
                    entry.unlink(missing_ok=True)

    def discard(self) -> None:
        self._temporary.unlink(missing_ok=True)
        if self._created:
            # Another rank's file may still be there, or another rank may have removed the directory.
            with contextlib.suppress(OSError):
                self._path.rmdir()


class _OneWriter(SinkTarget):
    def __init__(self, target: object, extension: str, transport: Transport) -> None:
        self._target, self._extension, self._transport = target, extension, transport

    def write(self, frame: pl.DataFrame, **kwargs: Any) -> None:
        rows = frame
        if self._transport.nranks > 1:
            rows = pl.DataFrame(self._transport.gather(frame, op=_FIRST_OP))
        if self._transport.rank == 0:
            write_frame(rows, self._target, self._extension, **kwargs)

    def commit(self) -> None:
        self._transport.allgather_bytes(b"written", op=_FIRST_OP + 1)

    def discard(self) -> None:
        """Nothing of ours to remove."""
