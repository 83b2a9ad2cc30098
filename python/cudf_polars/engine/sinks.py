"""Where sinks write: one file per rank in a directory, all of them or none.

Each rank writes to a temporary name next to the target. When all ranks have written, each renames its file; a
query that fails on any rank leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from cudf_polars.engine.store_sinks import StoreParts
from cudf_polars.execute.streams import scan_stream
from cudf_polars.execute.transport import Transport
from cudf_polars.lower.fallback import FallbackMode, report

__all__ = ["SinkTarget", "destination", "report_one_writer", "write_rows"]

_PREFIX = "part."
_WRITERS = {
    "parquet": pl.LazyFrame.sink_parquet,
    "ipc": pl.LazyFrame.sink_ipc,
    "csv": pl.LazyFrame.sink_csv,
    "ndjson": pl.LazyFrame.sink_ndjson,
}

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
"""Also what ``pathlib`` makes of a URL, with one slash; a scheme of one letter is a drive."""
_STORES = frozenset({"s3", "s3a", "gs", "gcs", "az", "azure", "adl", "abfs", "abfss"})
"""Schemes of the object stores that Polars writes to."""


def write_rows(rows: pl.LazyFrame, target: object, extension: str, **kwargs: Any) -> None:
    """Write a query's rows to one target with Polars, as ``pl.LazyFrame.sink_*`` does."""
    _WRITERS[extension](rows, target, engine="streaming", **kwargs)  # type: ignore[operator]


def destination(target: object) -> object:
    """Say what the ranks can make of a sink's target.

    Parameters
    ----------
    target
        As the user gave it.

    Returns
    -------
    A ``Path`` on this machine; or text, the URL of a folder in an object store; or the target, if it is something else
    that one process writes (a file object, ``pl.PartitionBy``).

    Raises
    ------
    NotImplementedError
        If the target is a URL that ranks cannot write to.
    """
    if not isinstance(target, str | os.PathLike):
        return target
    # Not os.fspath(): paths of cloud libraries begin to copy files when they are asked for it.
    text = str(target)
    found = _URL.match(text)
    if found is None:
        return Path(os.fspath(target))
    scheme = found[1].lower()
    if scheme == "file" and re.match(r"file:/($|[^/])|file:///", text, re.IGNORECASE):
        return Path("/" + text[len("file:") :].lstrip("/"))
    whole = isinstance(target, str) and text[found.end() :].startswith("/")
    if scheme in _STORES and whole:
        return text
    what = (
        f"cannot sink to {text!r}"
        if isinstance(target, str)
        else f"cannot sink to {type(target).__name__} {text!r}"
    )
    if scheme not in _STORES:
        raise NotImplementedError(
            f"{what}: an engine's ranks write to folders of file systems, not to a URL like this. Sink to a folder that"
            " all ranks share, and copy it."
        )
    raise NotImplementedError(f"{what}: give the URL as a str, '{scheme}://...'")


def report_one_writer(target: object, mode: FallbackMode) -> None:
    """Warn, or raise, when the rows of all ranks are gathered because one process has to write to ``target``.

    Raises
    ------
    NotImplementedError
        If ``mode`` is ``"raise"``.
    """
    if isinstance(target, pl.PartitionBy):
        report(["a sink to pl.PartitionBy"], mode)


class SinkTarget(ABC):
    """What a sink writes to. Made by :meth:`open`; all methods are called on all ranks."""

    @staticmethod
    def open(
        target: object,
        extension: str,
        transport: Transport,
        mode: FallbackMode,
        options: Mapping[str, Any],
    ) -> SinkTarget:
        """Check the target on all ranks.

        Parameters
        ----------
        target
            A path: the directory to write. A file object or ``pl.PartitionBy``: rank 0 writes it alone. The URL of an
            object store: a folder there.
        extension
            Kind of file.
        transport
            Joins the ranks; uses its operations from ``2**11`` on.
        mode
            What to do when several ranks would have to write to what one writes alone.
        options
            Polars' arguments of the sink: how a store is reached.

        Raises
        ------
        NotImplementedError
            If the target is a URL that these ranks cannot write to, or ``mode`` says so.
        FileExistsError
            If the path is a file, or a directory with other things than a former sink's parts.
        """
        where = destination(target)
        if isinstance(where, Path):
            return _Directory(where, extension, transport)
        if isinstance(where, str):
            return (
                _Folder(where, extension)
                if transport.nranks == 1
                else _Store(where, extension, transport, options)
            )
        if transport.nranks > 1:
            report_one_writer(target, mode)
        return _OneWriter(target, extension, transport)

    @abstractmethod
    def write(self, rows: pl.LazyFrame, **kwargs: Any) -> None:
        """Run the query of this rank's rows and write them."""

    @abstractmethod
    def commit(self, facts: bytes) -> list[bytes]:
        """Make what all ranks wrote visible.

        Parameters
        ----------
        facts
            What this rank tells the others besides.

        Returns
        -------
        What each rank tells, by rank.
        """

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

    def write(self, rows: pl.LazyFrame, **kwargs: Any) -> None:
        write_rows(rows, self._temporary, self._extension, **{**kwargs, "mkdir": False})

    def commit(self, facts: bytes) -> list[bytes]:
        told = self._transport.allgather_bytes(facts, op=_FIRST_OP)
        self._temporary.replace(self._final)
        self._transport.allgather_bytes(b"renamed", op=_FIRST_OP + 1)
        if self._transport.rank == 0:
            ours = {f"{_PREFIX}{rank:05d}.{self._extension}" for rank in range(self._transport.nranks)}
            for entry in self._stale:
                if entry.name not in ours:
                    entry.unlink(missing_ok=True)
        return told

    def discard(self) -> None:
        self._temporary.unlink(missing_ok=True)
        if self._created:
            # Another rank's file may still be there, or another rank may have removed the directory.
            with contextlib.suppress(OSError):
                self._path.rmdir()


class _Folder(SinkTarget):
    """The only rank's file in an object store, where a file is there as soon as it is whole."""

    def __init__(self, url: str, extension: str) -> None:
        self._url, self._extension = f"{url.rstrip('/')}/{_PREFIX}{0:05d}.{extension}", extension

    def write(self, rows: pl.LazyFrame, **kwargs: Any) -> None:
        write_rows(rows, self._url, self._extension, **kwargs)

    def commit(self, facts: bytes) -> list[bytes]:
        """Nothing to do: it is there."""
        return [facts]

    def discard(self) -> None:
        """Nothing of ours to remove."""


class _Store(SinkTarget):
    """A folder in an object store, to which several ranks write."""

    def __init__(self, url: str, extension: str, transport: Transport, options: Mapping[str, Any]) -> None:
        self._extension = extension
        self._parts = StoreParts(url, _PREFIX, extension, transport, options, _FIRST_OP)

    def write(self, rows: pl.LazyFrame, **kwargs: Any) -> None:
        write_rows(rows, self._parts.url, self._extension, **kwargs)

    def commit(self, facts: bytes) -> list[bytes]:
        return self._parts.commit(facts)

    def discard(self) -> None:
        self._parts.discard()


class _OneWriter(SinkTarget):
    def __init__(self, target: object, extension: str, transport: Transport) -> None:
        self._target, self._extension, self._transport = target, extension, transport

    def write(self, rows: pl.LazyFrame, **kwargs: Any) -> None:
        if self._transport.nranks > 1:
            part = rows.collect(engine="streaming")
            rows = scan_stream(self._transport.gather(part, op=_FIRST_OP), dict(part.schema))
            del part
        if self._transport.rank == 0:
            write_rows(rows, self._target, self._extension, **kwargs)

    def commit(self, facts: bytes) -> list[bytes]:
        return self._transport.allgather_bytes(facts, op=_FIRST_OP + 1)

    def discard(self) -> None:
        """Nothing of ours to remove."""
