"""Where sinks write: one file per rank in a directory, or the files of partitions; all of them or none.

Each rank writes to a temporary name next to the target. When all ranks have written, each renames its file; a
query that fails on any rank leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
from polars.io.partition import SinkedPath, SinkedPathsCallback, SinkedPathsCallbackArgs

from cudf_polars.engine.partition_files import PartitionFiles, tried
from cudf_polars.engine.partition_objects import PartitionObjects
from cudf_polars.engine.partition_sinks import Partitioning, PartitionSink
from cudf_polars.engine.store_sinks import StoreParts
from cudf_polars.execute.errors import QueryMismatchError
from cudf_polars.execute.streams import scan_stream
from cudf_polars.execute.transport import Transport
from cudf_polars.lower.fallback import FallbackMode, report
from cudf_polars.plan.cloud import shown_path

__all__ = ["SinkTarget", "destination", "holds_parts", "partitioning_for_workers", "write_rows"]

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
    that one process writes (a file object), or ``pl.PartitionBy``.

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
    shown = shown_path(f"{found[1]}://{text[found.end() :].lstrip('/')}")
    what = (
        f"cannot sink to {shown!r}"
        if isinstance(target, str)
        else f"cannot sink to {type(target).__name__} {shown!r}"
    )
    if scheme not in _STORES:
        raise NotImplementedError(
            f"{what}: an engine's ranks write to folders of file systems, not to a URL like this. Sink to a folder that"
            " all ranks share, and copy it."
        )
    raise NotImplementedError(f"{what}: give the URL as a str, '{scheme}://...'")


def holds_parts(folder: Path) -> bool:
    """Say whether there is nothing in a folder but the parts of a former sink."""
    return folder.is_dir() and all(
        entry.name.startswith((_PREFIX, f".{_PREFIX}")) for entry in folder.iterdir()
    )


def partitioning_for_workers(
    target: pl.PartitionBy, options: Mapping[str, Any], nranks: int
) -> Partitioning | str:
    """Return what the ranks of a cluster write for a client's sink to ``pl.PartitionBy``.

    Parameters
    ----------
    target
        As the user gave it.
    options
        Polars' arguments of the sink.
    nranks
        Number of ranks.

    Returns
    -------
    If the client has to write instead, the step to report.

    Raises
    ------
    NotImplementedError
        If the base path is a URL that ranks cannot write to.
    """
    parts = Partitioning.of(target)
    where = _folder_of(parts)
    # One rank could write all of these, but what a user's function opens is to be written here.
    reason = parts.why_one_writer(where) if nranks > 1 or parts.provider is not None else None
    if isinstance(where, Path):
        where = where.expanduser().absolute()  # a path that does not depend on this process's folder
    return parts.for_workers(where, options) if reason is None else reason


def _folder_of(parts: Partitioning) -> Path | str:
    where = destination(parts.base)
    assert isinstance(where, Path | str)
    return where


class SinkTarget(ABC):
    """What a sink writes to. Made by :meth:`open`; all methods are called on all ranks."""

    @staticmethod
    def open(
        target: object,
        extension: str,
        transport: Transport,
        mode: FallbackMode,
        options: Mapping[str, Any],
        *,
        to_directory: bool = True,
    ) -> SinkTarget:
        """Check the target on all ranks.

        Parameters
        ----------
        target
            A path: the directory to write. The URL of an object store: a folder there. ``pl.PartitionBy``, also as it
            travels. A file object: rank 0 writes it alone.
        extension
            Kind of file.
        transport
            Joins the ranks; uses its operations from ``2**11`` on.
        mode
            What to do when several ranks would have to write to what one writes alone.
        options
            Polars' arguments of the sink: how a store is reached.
        to_directory
            Whether a path or URL is a folder; else it is the only rank's file.

        Raises
        ------
        NotImplementedError
            If the target is a URL that these ranks cannot write to, ``mode`` says so, or several ranks are to write to
            one file.
        IsADirectoryError
            If the path is a directory and not to be one.
        FileExistsError
            If the path is a file, or a directory with other things than a former sink's parts.
        """
        if isinstance(target, pl.PartitionBy):
            target = Partitioning.of(target)
        if isinstance(target, Partitioning):
            return _open_partitions(target, extension, transport, mode, options)
        where = destination(target)
        if not to_directory and isinstance(where, Path | str):
            if transport.nranks > 1:
                raise NotImplementedError(
                    f"cannot sink to the one file {shown_path(str(target))!r}: {transport.nranks} ranks write one file"
                    " each into a directory. Leave sink_to_directory as it is, or let one rank write,"
                    " lf.sink_*(path, ..., lazy=True).collect(engine=engine)."
                )
            if isinstance(where, Path) and (where.is_file() or where.is_dir() or not where.exists()):
                return _File(where, extension)
            return _Object(str(where), extension)
        if isinstance(where, Path):
            return _Directory(where, extension, transport)
        if isinstance(where, str):
            return (
                _Object(f"{where.rstrip('/')}/{_PREFIX}{0:05d}.{extension}", extension)
                if transport.nranks == 1
                else _Store(where, extension, transport, options)
            )
        return _OneWriter(target, extension, transport)

    @abstractmethod
    def write(self, rows: pl.LazyFrame, **kwargs: Any) -> None:
        """Run the query of this rank's rows and write them.

        Raises
        ------
        QueryMismatchError
            On all ranks, if they write to different kinds of target.
        """

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


def _agree(transport: Transport, what: str, told: bytes = b"") -> list[bytes]:
    """Check that all ranks write to the same kind of target; uses one operation.

    What a rank does depends on the target, on the user's functions and on installed packages. Ranks with different
    targets would wait for each other in different operations, for ever.

    Parameters
    ----------
    what
        The target, as text for an error.
    told
        What this rank tells the others besides.

    Returns
    -------
    What each rank tells, by rank.
    """
    if transport.nranks == 1:
        return [told]
    mine = json.dumps([what, told.hex()]).encode()
    everyone = [json.loads(value) for value in transport.allgather_bytes(mine, op=_FIRST_OP)]
    for rank, (theirs, _) in enumerate(everyone):
        if theirs != everyone[0][0]:
            raise QueryMismatchError(
                f"The ranks write to different targets: rank 0 to {everyone[0][0]}, rank {rank} to {theirs}. Every rank"
                " must call the same sink with the same target: avoid conditions on the rank, and"
                " install the same packages."
            )
    return [bytes.fromhex(text) for _, text in everyone]


class _NewFile:
    """A file under a hidden name, which takes its own when it is whole.

    Polars writes to the open file, not to its name: of a query that failed, Polars' threads may only now begin to
    write, and would make the file again that was removed.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.hidden = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        self._callback: SinkedPathsCallback | None = None
        self._sinked: list[SinkedPath] = []

    def write(self, rows: pl.LazyFrame, extension: str, **kwargs: Any) -> None:
        self._callback = kwargs.get("sinked_paths_callback")
        if self._callback is not None:
            # Polars tells only of files that it opens itself.
            write_rows(rows, self.hidden, extension, **{**kwargs, "sinked_paths_callback": self._note})
            return
        try:
            file = self.hidden.open("wb")
        except OSError as error:
            error.filename = str(self._path)
            raise
        with file:
            write_rows(rows, file, extension, **kwargs)

    def _note(self, args: SinkedPathsCallbackArgs) -> None:
        self._sinked = args.paths

    def commit(self) -> None:
        self.hidden.replace(self._path)

    def call_back(self) -> None:
        """Call the user's function, if any. It may fail, so this comes after all that the ranks do together."""
        if self._callback is not None:
            paths = [replace(sinked, path=str(self._path)) for sinked in self._sinked]
            self._callback(SinkedPathsCallbackArgs(paths=paths))

    def discard(self) -> None:
        self.hidden.unlink(missing_ok=True)


class _Directory(SinkTarget):
    def __init__(self, path: Path, extension: str, transport: Transport) -> None:
        self._path, self._extension, self._transport = path, extension, transport
        self._part = _NewFile(path / self._name(transport.rank))
        self._written = [self._part.hidden]  # what this rank removes if the sink fails
        self._created = not path.exists()
        if path.exists() and not path.is_dir():
            raise FileExistsError(f"{path} is a file; a sink writes one file per rank into a directory")
        self._stale = self._former_parts() if path.is_dir() else []
        path.mkdir(parents=True, exist_ok=True)

    def _former_parts(self) -> list[Path]:
        # With what a killed sink has left: no rank of this one writes before all are here.
        entries = list(self._path.iterdir())
        foreign = [entry.name for entry in entries if not entry.name.startswith((_PREFIX, f".{_PREFIX}"))]
        if foreign:
            raise FileExistsError(
                f"{self._path} holds other files, for instance {min(foreign)!r}: sink to an empty directory"
            )
        return entries

    def write(self, rows: pl.LazyFrame, **kwargs: Any) -> None:
        # Whoever is the last to remove its file removes the folder.
        created = _agree(
            self._transport, f"a folder of {self._extension} files", b"1" if self._created else b""
        )
        self._created = any(created)
        self._part.write(rows, self._extension, **{**kwargs, "mkdir": False})

    def commit(self, facts: bytes) -> list[bytes]:
        transport = self._transport
        mine = json.dumps([self._part.hidden.name, facts.hex()]).encode()
        told = [json.loads(value) for value in transport.allgather_bytes(mine, op=_FIRST_OP + 1)]
        # Rank 0 renames all parts, so that there are not some of them when another rank fails now.
        renamed = transport.rank == 0 and self._rename([name for name, _ in told])
        if not transport.allgather_bytes(b"renamed" if renamed else b"", op=_FIRST_OP + 2)[0]:
            self._part.commit()  # each rank has a file system of its own
            transport.allgather_bytes(b"renamed", op=_FIRST_OP + 3)
        if transport.rank == 0:
            ours = {self._name(rank) for rank in range(transport.nranks)}
            for entry in self._stale:
                if entry.name not in ours:
                    entry.unlink(missing_ok=True)
        # A rank that reads the folder next finds no former parts.
        transport.allgather_bytes(b"deleted", op=_FIRST_OP + 4)
        self._part.call_back()
        return [bytes.fromhex(text) for _, text in told]

    def _name(self, rank: int) -> str:
        return f"{_PREFIX}{rank:05d}.{self._extension}"

    def _rename(self, hidden: Sequence[str]) -> bool:
        """Give the parts of all ranks their names; False if they are not all here."""
        # First to names that their ranks do not know: one that fails meanwhile removes its part.
        taken = [self._path / f".{self._name(rank)}.{os.getpid()}.all.tmp" for rank in range(len(hidden))]
        with contextlib.ExitStack() as undo:
            for name, own in zip(hidden, taken, strict=True):
                try:
                    (self._path / name).rename(own)
                except FileNotFoundError:
                    return False
                undo.callback(tried, functools.partial(own.rename, self._path / name))
            undo.pop_all()
        self._written += taken
        for rank, own in enumerate(taken):
            own.replace(self._path / self._name(rank))
        return True

    def discard(self) -> None:
        for hidden in self._written:
            hidden.unlink(missing_ok=True)
        if self._created:
            # Another rank's file may still be there, or another rank may have removed the directory.
            with contextlib.suppress(OSError):
                self._path.rmdir()


class _File(SinkTarget):
    """The only rank's file, as Polars would write it, but that it is there only when it is whole."""

    def __init__(self, path: Path, extension: str) -> None:
        self._path, self._extension = path, extension
        self._file = _NewFile(path)
        if path.is_dir():
            raise IsADirectoryError(
                f"{path} is a directory; with sink_to_directory=False, a sink writes a file"
            )

    def write(self, rows: pl.LazyFrame, **kwargs: Any) -> None:
        if self._extension in ("csv", "ndjson"):
            # Polars compares compression and name, but not of an open file.
            named = {name: kwargs[name] for name in ("compression", "check_extension") if name in kwargs}
            _WRITERS[self._extension](pl.LazyFrame(), self._path, lazy=True, **named).explain()  # type: ignore[operator]
        if kwargs.pop("mkdir", False):
            self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file.write(rows, self._extension, **kwargs)

    def commit(self, facts: bytes) -> list[bytes]:
        self._file.commit()
        self._file.call_back()
        return [facts]

    def discard(self) -> None:
        self._file.discard()


class _Object(SinkTarget):
    """What Polars writes itself: the only rank's file in an object store, which comes as a whole, or a device."""

    def __init__(self, url: str, extension: str) -> None:
        self._url, self._extension = url, extension

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
        self._extension, self._transport = extension, transport
        self._parts = StoreParts(url, _PREFIX, extension, transport, options, _FIRST_OP + 1)

    def write(self, rows: pl.LazyFrame, **kwargs: Any) -> None:
        _agree(self._transport, f"a folder of {self._extension} files in an object store")
        self._parts.begin()
        write_rows(rows, self._parts.url, self._extension, **kwargs)

    def commit(self, facts: bytes) -> list[bytes]:
        return self._parts.commit(facts)

    def discard(self) -> None:
        self._parts.discard()


class _Partitions(SinkTarget):
    def __init__(self, parts: PartitionSink, what: str, extension: str, transport: Transport) -> None:
        self._parts, self._what = parts, what
        self._extension, self._transport = extension, transport

    def write(self, rows: pl.LazyFrame, **kwargs: Any) -> None:
        _agree(self._transport, f"{self._what} of {self._extension} files")
        rows, target, kwargs = self._parts.prepare(rows, kwargs)
        write_rows(rows, target, self._extension, **kwargs)

    def commit(self, facts: bytes) -> list[bytes]:
        return self._parts.commit(facts)

    def discard(self) -> None:
        self._parts.discard()


def _open_partitions(
    parts: Partitioning,
    extension: str,
    transport: Transport,
    mode: FallbackMode,
    options: Mapping[str, Any],
) -> SinkTarget:
    where = _folder_of(parts)
    reason = parts.why_one_writer(where)
    if reason is not None and transport.nranks > 1:
        report([reason], mode)
    elif reason is None and isinstance(where, Path):
        files = PartitionFiles(where, parts, extension, transport, _FIRST_OP + 1)
        return _Partitions(files, parts.describe(), extension, transport)
    elif transport.nranks > 1:
        assert isinstance(where, str)
        objects = PartitionObjects(where, parts, extension, transport, _FIRST_OP + 1, options)
        return _Partitions(objects, parts.describe(), extension, transport)
    return _OneWriter(parts.to_polars(), extension, transport)


class _OneWriter(SinkTarget):
    def __init__(self, target: object, extension: str, transport: Transport) -> None:
        self._target, self._extension, self._transport = target, extension, transport

    def write(self, rows: pl.LazyFrame, **kwargs: Any) -> None:
        if self._transport.nranks > 1:
            _agree(self._transport, f"what one rank writes, as {self._extension}")
            part = rows.collect(engine="streaming")
            rows = scan_stream(self._transport.gather(part, op=_FIRST_OP + 1), dict(part.schema))
            del part
        if self._transport.rank == 0:
            write_rows(rows, self._target, self._extension, **kwargs)

    def commit(self, facts: bytes) -> list[bytes]:
        return self._transport.allgather_bytes(facts, op=_FIRST_OP + 2)

    def discard(self) -> None:
        """Nothing of ours to remove."""
