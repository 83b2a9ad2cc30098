"""Where sinks write: one file per rank in a directory, or the files of partitions; all of them or none.

Ranks write to a hidden folder next to the target, which takes its place when all have written: a reader finds the old
files or the new ones, whenever the sink is killed. A query that fails on any rank leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import polars as pl
from polars.io.partition import SinkedPath, SinkedPathsCallback, SinkedPathsCallbackArgs

from cudf_polars.engine.folder_exchange import copy_form, exchange, is_used_here
from cudf_polars.engine.partition_files import PartitionFiles, hidden_beside, move, tried
from cudf_polars.engine.partition_objects import PartitionObjects
from cudf_polars.engine.partition_sinks import NeedsOneWriter, Partitioning, PartitionSink
from cudf_polars.engine.store_sinks import StoreParts
from cudf_polars.engine.store_upload import Upload, may_upload
from cudf_polars.execute.errors import QueryMismatchError
from cudf_polars.execute.streams import scan_stream
from cudf_polars.execute.transport import Transport
from cudf_polars.lower.fallback import FallbackMode, report
from cudf_polars.plan.cloud import access_of_options, shown_path

__all__ = [
    "ByOneWriter",
    "SinkTarget",
    "UsedFolder",
    "destination",
    "holds_parts",
    "partitioning_for_workers",
    "write_alone",
    "write_rows",
]

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
    return folder.is_dir() and all(map(_is_part, folder.iterdir()))


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


@dataclass(frozen=True)
class ByOneWriter:
    """A target that one rank writes with the rows of all, which is to be reported as ``step``."""

    target: object
    step: str


@dataclass(frozen=True)
class UsedFolder:
    """A target in which the client of a cluster works: another folder in its place would leave the client in none."""

    path: str


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
        tried(self.hidden.unlink)


class _Directory(SinkTarget):
    """A folder with a part of each rank.

    Ranks write to a hidden folder beside it, which takes its place as a whole, in one step where the file system can.
    """

    def __init__(self, path: Path, extension: str, transport: Transport, *, is_used: bool = False) -> None:
        self._is_used = is_used
        self._path, self._extension, self._transport = path, extension, transport
        # Found once: a function of the user may change the process's folder.
        self._where = self._path.absolute().resolve()
        self._may_exchange = False
        self._part: _NewFile | None = None
        self._made: list[Path] = []  # folders above the target, and ...
        self._folders: list[Path] = []  # ... hidden ones, that are to go if the sink fails
        if self._where.exists() and not self._where.is_dir():
            raise FileExistsError(f"{path} is a file; a sink writes one file per rank into a directory")
        if self._where.is_dir():
            self._check_former_parts()

    def _check_former_parts(self) -> None:
        if not holds_parts(self._where):
            foreign = min(entry.name for entry in self._where.iterdir() if not _is_part(entry))
            raise FileExistsError(
                f"{self._path} holds other files, for instance {foreign!r}: sink to an empty directory"
            )

    def write(self, rows: pl.LazyFrame, **kwargs: Any) -> None:
        where = self._where
        is_inside = hidden_beside(where, "token").parent == where
        # Before any rank makes them; whichever is the last to fail removes them.
        self._made = [folder for folder in where.parents if not folder.exists()]
        mine = json.dumps([secrets.token_hex(6), is_inside, self._is_used or is_used_here(where)])
        told = _agree(self._transport, f"a folder of {self._extension} files", mine.encode())
        tokens, inside, used = zip(*map(json.loads, told), strict=True)
        # Ranks may have file systems of their own, and then each has its own hidden folder. It has the same place on
        # all of them: what is a mount point for one rank may be a folder for another.
        hidden = where.with_name(f".{where.name}.{tokens[0]}.tmp")
        if any(inside) and where.exists():
            hidden = where / f".{_PREFIX}{tokens[0]}.tmp"  # a name of ours, if it is left there
        name = self._name(self._transport.rank)
        self._folders.append(hidden)
        self._part = _NewFile(self._path / name, hidden / name)
        try:
            has_form = self._make(hidden, self._part.hidden)
            self._may_exchange = has_form and not any(inside) and not any(used)
        except OSError as error:
            error.filename = str(self._path)
            raise
        self._part.write(rows, self._extension, **{**kwargs, "mkdir": False})

    def _make(self, hidden: Path, part: Path) -> bool:
        """Make the hidden folder, with this rank's part in it. Returns whether it is like the target that is there."""
        for left in reversed(range(4 * self._transport.nranks)):
            try:
                # With those above it: beside the target, so that the hidden folders of different targets differ.
                hidden.mkdir(parents=True, exist_ok=True)
                has_form = self._where.exists() and copy_form(self._where, hidden)
                part.touch()  # with a file in it, no other rank removes the folder
            except (FileNotFoundError, FileExistsError):
                if not left:  # else another rank, which has failed, has removed the folder, or those above it
                    raise
            else:
                return has_form
        raise AssertionError("no ranks")

    def commit(self, facts: bytes) -> list[bytes]:
        transport = self._transport
        told = transport.allgather_bytes(facts, op=_FIRST_OP + 1)
        # Rank 0 places all parts, so that there are not some of them when another rank fails now.
        everyone = [self._name(rank) for rank in range(transport.nranks)]
        placed = transport.rank == 0 and self._place(everyone)
        # A rank that reads the folder next finds no former parts.
        if not transport.allgather_bytes(b"placed" if placed else b"", op=_FIRST_OP + 2)[0]:
            self._place_apart()
        assert self._part is not None
        self._part.call_back()
        return told

    def _name(self, rank: int) -> str:
        return f"{_PREFIX}{rank:05d}.{self._extension}"

    def _place_apart(self) -> None:
        """Place the parts where not all ranks have one file system: of those that share one, the first rank does."""
        rank, nranks = self._transport.rank, self._transport.nranks
        seen = [other for other in range(nranks) if (self._folders[0] / self._name(other)).exists()]
        told = self._transport.allgather_bytes(json.dumps(seen).encode(), op=_FIRST_OP + 3)
        is_first = not any(rank in json.loads(before) for before in told[:rank])
        if is_first and not self._place([self._name(other) for other in {rank, *seen}]):
            raise FileNotFoundError(f"a part of the sink to {self._path} is gone")
        self._transport.allgather_bytes(b"placed", op=_FIRST_OP + 4)

    def _place(self, names: Sequence[str]) -> bool:
        """Put a folder of these parts in the place of the target; False if they are not all here."""
        hidden = self._folders[0]
        # Under a name that no other rank knows: one that fails meanwhile removes its part.
        whole = hidden.with_name(f"{hidden.name[: -len('.tmp')]}.all.tmp")
        hidden.rename(whole)
        if not all((whole / name).exists() for name in names):
            whole.rename(hidden)
            return False
        self._folders.append(whole)
        where = self._where
        if not where.exists():
            with contextlib.suppress(OSError):
                whole.rename(where)
                return True
        where.mkdir(exist_ok=True)
        if self._may_exchange and exchange(whole, where):
            # What another process has put into the old folder meanwhile is not ours to delete.
            for entry in whole.iterdir():
                if not _is_part(entry):
                    entry.replace(where / entry.name)
            shutil.rmtree(whole, ignore_errors=True)
            return True
        for name in names:
            move(whole / name, where / name)
        for entry in where.iterdir():
            if _is_part(entry) and entry.name not in names and entry != whole:
                _remove(entry)
        shutil.rmtree(whole, ignore_errors=True)
        return True

    def discard(self) -> None:
        if self._part is not None:
            self._part.discard()
        for folder in self._folders[1:]:
            shutil.rmtree(folder, ignore_errors=True)
        for folder in self._folders[:1]:
            # Another rank's part may still be there.
            with contextlib.suppress(OSError):
                folder.rmdir()
        for folder in self._made:
            tried(folder.rmdir)


def _remove(entry: Path) -> None:
    if entry.is_dir() and not entry.is_symlink():
        shutil.rmtree(entry)
    else:
        entry.unlink(missing_ok=True)


def _is_part(entry: Path) -> bool:
    """Whether a file is a part of a sink, or what a killed one has left of it."""
    return entry.name.startswith((_PREFIX, f".{_PREFIX}"))


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
        self._parts = StoreParts(url, _PREFIX, extension, transport, options, _FIRST_OP + 1)

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
    return _open_object(f"{url.rstrip('/')}/{_PREFIX}{0:05d}.{extension}", extension, transport, options)


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
    where = _folder_of(parts)
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
