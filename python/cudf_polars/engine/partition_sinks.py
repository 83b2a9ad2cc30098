"""Sinks to ``pl.PartitionBy``, by all ranks: each runs Polars' own partitioned sink over its rows.

What Polars would name a file is known when all ranks have written: files of one partition are numbered over the ranks,
in rank order, as if one process had written them. How the files then get their places depends on where they are: on a
file system, :mod:`cudf_polars.engine.partition_files`, or in an object store,
:mod:`cudf_polars.engine.partition_objects`.
"""

from __future__ import annotations

import importlib.util
import io
import json
import os
import pickle
import re
import shutil
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import cloudpickle
import polars as pl
from polars._utils.wrap import wrap_expr
from polars.io.partition import FileProviderArgs, SinkedPath, SinkedPathsCallback, SinkedPathsCallbackArgs

from cudf_polars.engine.folder_exchange import is_used_here
from cudf_polars.execute.transport import Transport
from cudf_polars.plan.cloud import shown_path

__all__ = [
    "NeedsOneWriter",
    "PartitionSink",
    "Partitioning",
    "checked_name",
    "copy_into",
    "folder_of_keys",
    "kept_files",
]

_EXTENSIONS = {"ndjson": "jsonl"}
"""How Polars ends the names of files, where that is not the name of their kind."""
_NULL = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED = re.compile(rb"[\x00-\x20%/:=\x7f-\xff]")
_STEP = "a sink to pl.PartitionBy"


class NeedsOneWriter(Exception):
    """Several ranks cannot write this, as is known now that they have written. Raised on all ranks.

    Attributes
    ----------
    step
        What to report.
    """

    def __init__(self, step: str) -> None:
        super().__init__(step)
        self.step = step


@dataclass(frozen=True)
class Partitioning:
    """What a ``pl.PartitionBy`` says, as it travels to other processes.

    Attributes
    ----------
    base
        The folder's path or URL.
    keys
        What rows are partitioned by; None if only by size.
    include_key, max_rows, approximate_bytes
        As in Polars.
    provider
        The user's ``file_path_provider``, or None.
    travels
        Whether the sink was called in another process than the one that writes.
    is_used
        Whether that process works in the folder.
    """

    base: str
    keys: tuple[pl.Expr, ...] | None
    include_key: bool | None
    max_rows: int | None
    approximate_bytes: int
    provider: Any
    travels: bool = False
    is_used: bool = False

    @classmethod
    def of(cls, target: pl.PartitionBy) -> Partitioning:
        """Read Polars' object."""
        inner = target._pl_partition_by
        return cls(
            inner.base_path,
            None if inner.key is None else tuple(wrap_expr(key) for key in inner.key),
            inner.include_key,
            inner.max_rows_per_file,
            inner.approximate_bytes_per_file,
            inner.file_path_provider,
        )

    def to_polars(self) -> pl.PartitionBy:
        """Return it as Polars takes it."""
        return pl.PartitionBy(
            self.base,
            file_path_provider=self.provider,
            key=None if self.keys is None else list(self.keys),
            include_key=self.include_key,
            max_rows_per_file=self.max_rows,
            approximate_bytes_per_file=self.approximate_bytes,
        )

    def describe(self) -> str:
        """Return what has to be the same on all ranks, as text for an error."""
        names = None
        if self.keys is not None:
            names = [key.meta.output_name(raise_if_undetermined=False) for key in self.keys]
        return (
            f"pl.PartitionBy({shown_path(self.base)!r}, key={names}, include_key={self.include_key},"
            f" max_rows_per_file={self.max_rows}, approximate_bytes_per_file={self.approximate_bytes},"
            f" {'with' if self.provider is not None else 'without'} file_path_provider)"
        )

    def for_workers(self, where: Path | str, options: Mapping[str, Any]) -> Partitioning | str:
        """Return what other processes can write.

        Parameters
        ----------
        where
            What the base path is: a path that depends on no process's folder, or a URL.
        options
            Polars' arguments of the sink.

        Returns
        -------
        If this process has to write instead, the step to report.
        """
        if options.get("sinked_paths_callback") is not None:
            return f"{_STEP} with a sinked_paths_callback, which is called here"
        is_used = isinstance(where, Path) and is_used_here(where.resolve())
        shipped = replace(self, base=str(where), travels=True, is_used=is_used)
        try:
            cloudpickle.dumps(shipped)
        except Exception:  # of many kinds: Polars pickles the functions in keys
            return f"{_STEP} with a function that cannot be sent to other processes"
        return shipped

    def why_one_writer(self, where: Path | str) -> str | None:
        """Return the step to report if several ranks cannot write this; else None."""
        if self.provider is not None and not callable(self.provider):
            return f"{_STEP} whose files Polars names"
        if isinstance(where, Path):
            return None
        if importlib.util.find_spec("obstore") is None:
            return f"{_STEP} in an object store without the package obstore"
        return None


def folder_of_keys(keys: pl.DataFrame) -> str:
    """Return the folder of a partition below the base path, as Polars names it.

    Parameters
    ----------
    keys
        One row, with a column for each key; "" if there is none.

    Raises
    ------
    polars.exceptions.PolarsError
        If a key is of a type that is no text, such as a list.
    """
    return "/".join(f"{column.name}={_key_text(column)}" for column in keys)


def _key_text(column: pl.Series) -> str:
    # A struct with a null in it is a null, to Polars.
    text = column.cast(pl.String, strict=not isinstance(column.dtype, pl.Struct)).item()
    return (
        _NULL if text is None else _ESCAPED.sub(lambda found: b"%%%02X" % found[0][0], text.encode()).decode()
    )


def _group_of_keys(keys: pl.DataFrame) -> str:
    """Return a text that two partitions have only if their keys are equal."""
    if not keys.width:
        return ""
    # As Python's, times have no nanoseconds.
    return repr(keys.with_columns(pl.selectors.temporal().to_physical()).row(0))


@dataclass(frozen=True)
class WrittenFile:
    """A file that a rank has written, or was to write.

    Attributes
    ----------
    folder
        Of the partition, below the base path, as Polars names it.
    group
        Files with the same are numbered.
    index
        Polars' number of the file in its partition on this rank.
    written
        Its name where it was written.
    """

    folder: str
    group: str
    index: int
    written: str


@dataclass(frozen=True)
class Told:
    """What a rank tells the others when it has written.

    Attributes
    ----------
    facts
        What it tells besides.
    files
        What it has written, in an order in which files of one partition keep theirs.
    has_rows
        Whether there were rows, where that is not seen by the files.
    keys
        The keys of each file, for the user's names.
    has_callback
        Whether the user wants to know the final paths of this rank's files.
    """

    facts: bytes
    files: Sequence[WrittenFile]
    has_rows: bool
    keys: Sequence[pl.DataFrame] | None
    has_callback: bool


def kept_files(told: Sequence[Told]) -> list[tuple[int, int]]:
    """Return the files to keep, by rank and number: without the empty file that a rank without rows writes."""
    some = any(rank.has_rows for rank in told)
    if not some:
        return [(0, number) for number in range(len(told[0].files))]
    return [(r, n) for r, rank in enumerate(told) if rank.has_rows for n in range(len(rank.files))]


class PartitionSink(ABC):
    """This rank's part of a sink to ``pl.PartitionBy``. All methods are called on all ranks.

    Parameters
    ----------
    parts
        What to write, without its base path.
    extension
        Kind of file.
    transport
        Joins the ranks.
    first_op
        Uses the transport's operations from here on.

    Attributes
    ----------
    needs
        Why nothing has become visible, when all ranks have committed; else None.
    """

    def __init__(self, parts: Partitioning, extension: str, transport: Transport, first_op: int) -> None:
        self._parts, self._transport, self._first_op = parts, transport, first_op
        self.needs: NeedsOneWriter | None = None
        self._ending = _EXTENSIONS.get(extension, extension)
        self._callback: SinkedPathsCallback | None = None
        self._sinked: list[SinkedPath] = []
        self._has_rows = True
        self._lock = threading.Lock()  # guards what follows: Polars asks for files on threads of its own
        self._files: list[WrittenFile] = []
        self._keys: list[pl.DataFrame] = []
        self._ended = False

    def prepare(
        self, rows: pl.LazyFrame, options: Mapping[str, Any]
    ) -> tuple[pl.LazyFrame, pl.PartitionBy, dict[str, Any]]:
        """Meet the other ranks; return what Polars is to write, where to, and its arguments."""
        self._begin()
        options = dict(options)
        if options.get("sinked_paths_callback") is not None:
            self._callback = options["sinked_paths_callback"]
            options["sinked_paths_callback"] = self._note_sinked
        if self._parts.keys is None and self._transport.nranks > 1:
            # Polars writes a file even for no rows, which is one too many if another rank has rows.
            self._has_rows = False
            rows = rows.map_batches(self._note_rows, streamable=True)
        target = replace(self._parts, base=self._base(), provider=self._provide).to_polars()
        return rows, target, options

    @abstractmethod
    def _begin(self) -> None:
        """Agree with the other ranks on where what is written."""

    @abstractmethod
    def _base(self) -> str:
        """Return where Polars writes what has a relative name."""

    @abstractmethod
    def _new_name(self, folder: str, index: int) -> str:
        """Return the name of a new file where it is written; called with the lock."""

    def _open(self, name: str) -> object:
        """Return what Polars writes to."""
        return name

    @abstractmethod
    def _finish(self, told: Sequence[Told]) -> Mapping[str, str]:
        """Make what all ranks have written visible. Returns the final paths of this rank's, by what Polars wrote to.

        Raises
        ------
        NeedsOneWriter
            On all ranks, which then have nothing to tell each other any more.
        """

    @abstractmethod
    def _remove(self) -> None:
        """Remove what this rank has written; Polars gets no new file any more."""

    def _tell(self, work: Callable[[], Any], op: int) -> Any:
        """Let rank 0 do something and tell all ranks what came of it; they raise NeedsOneWriter if it does."""
        mine = b""
        if self._transport.rank == 0:
            try:
                mine = json.dumps([work(), None]).encode()
            except NeedsOneWriter as reason:
                mine = json.dumps([None, reason.step]).encode()
        value, step = json.loads(self._transport.allgather_bytes(mine, op=op)[0])
        if step is not None:
            raise NeedsOneWriter(step)
        return value

    def _bases(self) -> Sequence[str]:
        """Return what paths that the user gives may begin with."""
        return [self._parts.base]

    def _names(self, told: Sequence[Told]) -> list[Any]:
        """Return the final names of all files that are kept, below the base path; or what the user gave to write to."""
        numbers: Counter[str] = Counter()
        names: list[Any] = []
        for rank, number in kept_files(told):
            file = told[rank].files[number]
            index = numbers[file.group]
            numbers[file.group] += 1
            if self._parts.provider is None:
                name = f"{index:08x}.{self._ending}"
                names.append(checked_name(f"{file.folder}/{name}" if file.folder else name))
                continue
            keys = told[rank].keys
            assert keys is not None
            given = self._parts.provider(
                FileProviderArgs(index_in_partition=index, partition_keys=keys[number])
            )
            names.append(self._relative(given) if isinstance(given, str | os.PathLike) else given)
        objects = [name for name in names if not isinstance(name, str)]
        if self._parts.travels and objects:
            raise NotImplementedError(
                "this file_path_provider gives file objects, and the sink's files are written by other processes: let"
                " it give paths"
            )
        paths = [name for name in names if isinstance(name, str)]
        twice = [name for name, count in Counter(paths).items() if count > 1]
        if (twice or len({id(given) for given in objects}) < len(objects)) and self._transport.nranks > 1:
            raise NeedsOneWriter(
                f"{_STEP} whose file_path_provider names no file of each rank: add index_in_partition"
            )
        if twice:
            raise pl.exceptions.ComputeError(f"file_path_provider gave several files the path {min(twice)!r}")
        return names

    def _relative(self, given: str | os.PathLike[str]) -> str:
        """Check a path as Polars does."""
        text = os.fspath(given)
        if not os.path.isabs(text) and "://" not in text:
            return checked_name(text)
        for base in self._bases():
            folder = f"{base.rstrip('/')}/"
            if text.startswith(folder):
                return checked_name(text[len(folder) :])
        raise pl.exceptions.ComputeError(
            f"provided path {shown_path(text)!r} is absolute but does not start with base path"
            f" {shown_path(self._parts.base)!r}"
        )

    def _note_rows(self, batch: pl.DataFrame) -> pl.DataFrame:
        if batch.height:
            self._has_rows = True
        return batch

    def _note_sinked(self, args: SinkedPathsCallbackArgs) -> None:
        self._sinked = args.paths

    def _provide(self, args: FileProviderArgs) -> object:
        """Name one more file, as Polars asks for it."""
        own_names = self._parts.provider is not None
        # The user may name the files of keys that Polars cannot.
        folder = "" if own_names else folder_of_keys(args.partition_keys)
        group = _group_of_keys(args.partition_keys) if own_names else folder
        with self._lock:
            if self._ended:
                raise RuntimeError("the sink has ended")  # this query has failed
            written = self._new_name(folder, args.index_in_partition)
            self._files.append(WrittenFile(folder, group, args.index_in_partition, written))
            if own_names:
                self._keys.append(args.partition_keys)
        return self._open(written)

    def commit(self, facts: bytes) -> list[bytes]:
        """Make what all ranks wrote visible, when they have written.

        Parameters
        ----------
        facts
            What this rank tells the others besides.

        Returns
        -------
        What each rank tells, by rank.
        """
        order = sorted(range(len(self._files)), key=lambda number: self._files[number].index)
        files = [self._files[number] for number in order]
        keys = [self._keys[number] for number in order] if self._parts.provider is not None else None
        mine = pickle.dumps(Told(facts, files, self._has_rows, keys, self._callback is not None))
        told = [pickle.loads(value) for value in self._transport.allgather_bytes(mine, op=self._first_op + 1)]
        try:
            paths = self._finish(told)
        except NeedsOneWriter as reason:
            self.needs = reason
            return [rank.facts for rank in told]
        if self._callback is not None:
            # A rank without rows writes an empty file. It was deleted if another rank has rows, and has no path then.
            named = [(paths.get(sinked.path), sinked) for sinked in self._sinked]
            self._callback(
                SinkedPathsCallbackArgs(
                    paths=[replace(sinked, path=path) for path, sinked in named if path is not None]
                )
            )
        return [rank.facts for rank in told]

    def discard(self) -> None:
        """Remove what this rank wrote."""
        with self._lock:
            self._ended = True
        self._remove()


def checked_name(name: str) -> str:
    """Refuse the name of a file that is not below its folder."""
    if ".." in name.split("/"):
        raise pl.exceptions.ComputeError(f"provided path {name!r} contained parent dir component '..'")
    return str(Path(name.lstrip("/")))


def copy_into(file: io.RawIOBase | IO[bytes], target: Any) -> None:
    """Write a file to what the user gave, which stays open as with Polars."""
    if isinstance(target, io.TextIOBase):
        target.write(file.read().decode())
    else:
        shutil.copyfileobj(file, target)
    target.flush()
