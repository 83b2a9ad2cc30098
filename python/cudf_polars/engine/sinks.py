"""The kinds of targets that a sink writes to: all ranks open one, write to it and commit it, all of them or none.

A query that fails on any rank leaves nothing behind. What a user's path or URL stands for is found in
:mod:`cudf_polars.engine.sink_destinations`. How the parts of all ranks become visible depends on where they are: in a
folder, :mod:`cudf_polars.engine.folder_sinks`, in an object store, :mod:`cudf_polars.engine.store_sinks`, or in
partitions, :mod:`cudf_polars.engine.partition_sinks`.
"""

from __future__ import annotations

import contextlib
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import polars as pl
from polars.io.partition import SinkedPath, SinkedPathsCallback, SinkedPathsCallbackArgs

from cudf_polars.engine.folder_sinks import PREFIX, FolderParts
from cudf_polars.engine.partition_files import PartitionFiles, tried
from cudf_polars.engine.partition_objects import PartitionObjects
from cudf_polars.engine.partition_sinks import NeedsOneWriter, Partitioning, PartitionSink
from cudf_polars.engine.sink_destinations import ByOneWriter, UsedFolder, destination, folder_of
from cudf_polars.engine.store_sinks import StoreParts
from cudf_polars.engine.store_upload import Upload, may_upload
from cudf_polars.execute.errors import QueryMismatchError
from cudf_polars.execute.streams import scan_stream
from cudf_polars.execute.transport import Transport
from cudf_polars.lower.fallback import FallbackMode, report
from cudf_polars.plan.cloud import access_of_options, shown_path

__all__ = ["SinkTarget", "write_alone", "write_rows"]

_WRITERS = {
    "parquet": pl.LazyFrame.sink_parquet,
    "ipc": pl.LazyFrame.sink_ipc,
    "csv": pl.LazyFrame.sink_csv,
    "ndjson": pl.LazyFrame.sink_ndjson,
}


def write_rows(rows: pl.LazyFrame, target: object, extension: str, **kwargs: Any) -> None:
    """Write a query's rows to one target with Polars, as ``pl.LazyFrame.sink_*`` does."""
    _WRITERS[extension](rows, target, engine="streaming", **kwargs)  # type: ignore[operator]


def write_alone(rows: pl.LazyFrame, target: object, extension: str, **kwargs: Any) -> None:
    """Write a query's rows to one target by this process alone, as one rank would."""
    sink = _open_alone(target, extension, kwargs)
    try:
        sink.write(rows, **kwargs)
        sink.commit(b"")
    except BaseException:
        sink.discard()
        raise


def _check_compression(target: Path | str, extension: str, options: Mapping[str, Any]) -> None:
    """Let Polars compare compression and name, which it does not of an open file."""
    if extension in ("csv", "ndjson"):
        named = {name: options[name] for name in ("compression", "check_extension") if name in options}
        _WRITERS[extension](pl.LazyFrame(), target, lazy=True, **named).explain()  # type: ignore[operator]


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
            A path, or :class:`UsedFolder`: the directory to write. The URL of an object store: a folder there.
            ``pl.PartitionBy``, also as it travels. A file object: rank 0 writes it alone.
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
        if isinstance(target, ByOneWriter):
            report([target.step], mode)
            return _OneWriter(target.target, extension, transport, options)
        if isinstance(target, pl.PartitionBy):
            target = Partitioning.of(target)
        if isinstance(target, Partitioning):
            return _open_partitions(target, extension, transport, mode, options)
        is_used = isinstance(target, UsedFolder)
        if isinstance(target, UsedFolder):
            target = target.path
        where = destination(target)
        if isinstance(where, Path):
            where = where.expanduser()
        if not to_directory and isinstance(where, Path | str):
            if transport.nranks > 1:
                raise NotImplementedError(
                    f"cannot sink to the one file {shown_path(str(target))!r}: {transport.nranks} ranks write one file"
                    " each into a directory. Leave sink_to_directory as it is, or let one rank write,"
                    " lf.sink_*(path, ..., lazy=True).collect(engine=engine)."
                )
            if isinstance(where, Path) and (where.is_file() or where.is_dir() or not where.exists()):
                return _File(where, extension)
            if isinstance(where, Path):
                return _Object(str(where), extension)
            return _open_object(where, extension, transport, options)
        if isinstance(where, Path):
            return _Directory(where, extension, transport, is_used=is_used)
        if isinstance(where, str):
            return _open_store(where, extension, transport, options)
        return _OneWriter(target, extension, transport, options)

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

    @property
    def needs(self) -> NeedsOneWriter | None:
        """Why nothing has become visible, when all ranks have committed: several of them cannot write it. Else None.

        It is the same on all ranks. The query is to run again, for :class:`ByOneWriter`.
        """
        return None


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


def _opened_empty(path: Path) -> int:
    """Open a file to write it, and truncate it only if it is not empty.

    ext4 begins to write a file that was truncated to the disk when it is closed, even if it was empty, and the query
    would wait.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
    if os.fstat(descriptor).st_size:
        os.ftruncate(descriptor, 0)
    return descriptor


class _NewFile:
    """A file under a hidden name, which takes its own when it is whole.

    Polars writes to the open file, not to its name: of a query that failed, Polars' threads may only now begin to
    write, and would make the file again that was removed.
    """

    def __init__(self, path: Path, hidden: Path | None = None) -> None:
        self._path = path
        self.hidden = path.with_name(f".{path.name}.{os.getpid()}.tmp") if hidden is None else hidden
        self._callback: SinkedPathsCallback | None = None
        self._sinked: list[SinkedPath] = []

    def write(self, rows: pl.LazyFrame, extension: str, **kwargs: Any) -> None:
        self._callback = kwargs.get("sinked_paths_callback")
        if self._callback is not None:
            # Polars tells only of files that it opens itself.
            write_rows(rows, self.hidden, extension, **{**kwargs, "sinked_paths_callback": self._note})
            return
        try:
            file = os.fdopen(_opened_empty(self.hidden), "wb")
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
        tried(self.hidden.unlink)


class _Directory(SinkTarget):
    """A folder with a part of each rank."""

    def __init__(self, path: Path, extension: str, transport: Transport, *, is_used: bool = False) -> None:
        self._path, self._extension, self._transport = path, extension, transport
        self._parts = FolderParts(path, extension, transport, _FIRST_OP + 1, is_used=is_used)
        self._part: _NewFile | None = None

    def write(self, rows: pl.LazyFrame, **kwargs: Any) -> None:
        what = f"a folder of {self._extension} files"
        hidden = self._parts.begin(_agree(self._transport, what, self._parts.propose()))
        self._part = _NewFile(self._path / hidden.name, hidden)
        self._part.write(rows, self._extension, **{**kwargs, "mkdir": False})

    def commit(self, facts: bytes) -> list[bytes]:
        told = self._parts.commit(facts)
        assert self._part is not None
        self._part.call_back()
        return told

    def discard(self) -> None:
        self._parts.discard()


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
        _check_compression(self._path, self._extension, kwargs)
        if kwargs.pop("mkdir", False):
            self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file.write(rows, self._extension, **kwargs)

    def commit(self, facts: bytes) -> list[bytes]:
        self._file.commit()
        self._file.call_back()
        return [facts]

    def discard(self) -> None:
        self._file.discard()


class _Whole(SinkTarget):
    """The only rank's object in a store, which is there when it is whole: a query that fails leaves the old one."""

    def __init__(self, url: str, extension: str, options: Mapping[str, Any]) -> None:
        self._url, self._extension = url, extension
        access = access_of_options(url, options)
        if not may_upload(access):
            raise NotImplementedError("only Polars encrypts objects")
        self._upload = Upload(url, access)
        self._callback: SinkedPathsCallback | None = None
        self._rows = 0

    def write(self, rows: pl.LazyFrame, **kwargs: Any) -> None:
        _check_compression(self._url, self._extension, kwargs)
        left_out = (
            "storage_options",
            "credential_provider",
            "mkdir",
            "sync_on_close",
            "sinked_paths_callback",
        )
        self._callback = kwargs.get("sinked_paths_callback")
        if self._callback is not None:
            # Polars tells only of files that it opens itself.
            rows = rows.map_batches(self._count, streamable=True)
        given = {name: value for name, value in kwargs.items() if name not in left_out}
        write_rows(rows, self._upload, self._extension, **given)

    def _count(self, batch: pl.DataFrame) -> pl.DataFrame:
        self._rows += batch.height
        return batch

    def commit(self, facts: bytes) -> list[bytes]:
        self._upload.finish()
        if self._callback is not None:
            whole = SinkedPath(path=self._url, num_rows=self._rows, num_bytes=self._upload.nbytes)
            self._callback(SinkedPathsCallbackArgs(paths=[whole]))
        return [facts]

    def discard(self) -> None:
        self._upload.abort()


class _Object(SinkTarget):
    """What Polars writes itself: a device, or an object in a store that is not reached here.

    A query that fails leaves the rows until then.
    """

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
    """A folder in an object store, with a part of each rank."""

    def __init__(self, url: str, extension: str, transport: Transport, options: Mapping[str, Any]) -> None:
        self._extension, self._transport = extension, transport
        self._parts = StoreParts(url, PREFIX, extension, transport, options, _FIRST_OP + 1)

    def write(self, rows: pl.LazyFrame, **kwargs: Any) -> None:
        _agree(self._transport, f"a folder of {self._extension} files in an object store")
        self._parts.begin()
        write_rows(rows, self._parts.url, self._extension, **kwargs)

    def commit(self, facts: bytes) -> list[bytes]:
        return self._parts.commit(facts)

    def discard(self) -> None:
        self._parts.discard()


@contextlib.contextmanager
def _else_polars(transport: Transport) -> Iterator[None]:
    """Leave to Polars what the only rank cannot: without the package obstore, or where a store does not let it list."""
    try:
        yield
    except FileExistsError:
        raise
    except (NotImplementedError, OSError, pl.exceptions.PolarsError):
        if transport.nranks > 1:
            raise


def _open_store(url: str, extension: str, transport: Transport, options: Mapping[str, Any]) -> SinkTarget:
    with _else_polars(transport):
        return _Store(url, extension, transport, options)
    return _open_object(f"{url.rstrip('/')}/{PREFIX}{0:05d}.{extension}", extension, transport, options)


def _open_object(url: str, extension: str, transport: Transport, options: Mapping[str, Any]) -> SinkTarget:
    with _else_polars(transport):
        return _Whole(url, extension, options)
    return _Object(url, extension)


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

    @property
    def needs(self) -> NeedsOneWriter | None:
        return self._parts.needs

    def discard(self) -> None:
        self._parts.discard()


def _open_partitions(
    parts: Partitioning,
    extension: str,
    transport: Transport,
    mode: FallbackMode,
    options: Mapping[str, Any],
) -> SinkTarget:
    where = folder_of(parts)
    reason = parts.why_one_writer(where)
    if reason is not None and transport.nranks > 1:
        report([reason], mode)
    elif reason is None and isinstance(where, Path):
        files = PartitionFiles(where, parts, extension, transport, _FIRST_OP + 1)
        return _Partitions(files, parts.describe(), extension, transport)
    elif reason is None:
        assert isinstance(where, str)
        with _else_polars(transport):
            objects = PartitionObjects(where, parts, extension, transport, _FIRST_OP + 1, options)
            if transport.nranks == 1:
                objects.check_access()
            return _Partitions(objects, parts.describe(), extension, transport)
    return _OneWriter(parts.to_polars(), extension, transport, options)


class _OneWriter(SinkTarget):
    """What rank 0 writes with the rows of all ranks: partitions as the only rank would, all else as Polars does."""

    def __init__(
        self, target: object, extension: str, transport: Transport, options: Mapping[str, Any]
    ) -> None:
        self._target, self._extension, self._transport = target, extension, transport
        self._alone: SinkTarget | None = None
        if transport.rank == 0 and transport.nranks > 1 and isinstance(target, pl.PartitionBy):
            self._alone = _open_alone(target, extension, options)

    def write(self, rows: pl.LazyFrame, **kwargs: Any) -> None:
        if self._transport.nranks > 1:
            _agree(self._transport, f"what one rank writes, as {self._extension}")
            part = rows.collect(engine="streaming")
            rows = scan_stream(self._transport.gather(part, op=_FIRST_OP + 1), dict(part.schema))
            del part
        if self._alone is not None:
            self._alone.write(rows, **kwargs)
        elif self._transport.rank == 0:
            write_rows(rows, self._target, self._extension, **kwargs)

    def commit(self, facts: bytes) -> list[bytes]:
        told = self._transport.allgather_bytes(facts, op=_FIRST_OP + 2)
        if self._alone is not None:
            self._alone.commit(b"")
        # A rank that reads next finds all that was written.
        self._transport.allgather_bytes(b"written", op=_FIRST_OP + 3)
        return told

    def discard(self) -> None:
        if self._alone is not None:
            self._alone.discard()


def _open_alone(target: object, extension: str, options: Mapping[str, Any]) -> SinkTarget:
    """Open a target as the only rank would."""
    return SinkTarget.open(target, extension, cast("Transport", _Alone()), "silent", options)


class _Alone:
    """Joins one rank with itself, as far as sinks need that."""

    rank = 0
    nranks = 1

    def allgather_bytes(self, value: bytes, *, op: int) -> list[bytes]:
        """Return what all ranks tell."""
        return [value]
