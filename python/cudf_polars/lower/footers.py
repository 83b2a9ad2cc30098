"""Row groups of Parquet files, read from their footers: what scans are split by and sizes are estimated from.

The bytes of a footer are read here, from a disk or a store, and parsed by the library: to import pyarrow for it
would take longer than to import this package.
"""

from __future__ import annotations

import contextlib
import functools
import struct
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import polars as pl
from rapidsmpf._parquet import row_group_sizes

from cudf_polars.lower.byte_files import ByteFile, FileUnreadableError, open_bytes
from cudf_polars.plan.cloud import CloudAccess, is_remote, shown_path
from cudf_polars.plan.file_versions import file_version

__all__ = [
    "FileFooters",
    "FooterError",
    "Footers",
    "RowGroup",
    "count_rows",
    "footer_in",
    "read_footer",
    "read_row_groups",
    "row_groups",
]

_CACHED_FILES, _CACHED_TABLES = 10_000, 1_000
_WORTH_THREADS, _THREADS = 8, 16
"""So many files are read by so many threads: on a file system over the network, each waits for its answer."""
_MAGIC, _ENCRYPTED = b"PAR1", b"PARE"
_TAIL_BYTES = 64 * 1024
_FRAME_BYTES = 12
"""Of the magic bytes at both ends of a file and the length of its footer."""
_KEPT_BYTES = 64 << 20
"""Of the footers of files in stores, so many bytes are kept during a query."""


class FooterError(ValueError):
    """A file is not a Parquet file whose footer can be read here."""


@dataclass(frozen=True)
class RowGroup:
    """One row group: its number of rows and its uncompressed size in bytes."""

    rows: int
    nbytes: int


class Footers(Protocol):
    """Access to the footers of Parquet files."""

    def __call__(self, path: str, cloud: CloudAccess | None) -> Sequence[RowGroup]:
        """Return the row groups of a file, or raise FooterError."""

    def of_store(self, path: str, cloud: CloudAccess | None) -> bytes | None:
        """Return a file in a store without its rows, a footer between magic bytes, if it was read and kept."""


def row_groups(footers: Footers, paths: Iterable[str], cloud: CloudAccess | None) -> Iterator[RowGroup]:
    """Yield the row groups of all files of a scan.

    Raises
    ------
    FooterError
        If the metadata of a file cannot be read.
    """
    for path in paths:
        yield from footers(path, cloud)


def read_row_groups(path: str, cloud: CloudAccess | None = None) -> tuple[RowGroup, ...]:
    """Return the row groups of the Parquet file at ``path``.

    Parameters
    ----------
    path
        Of a local file, or the URL of one in a store.
    cloud
        How to reach that store.

    Raises
    ------
    FooterError
        If the file is encrypted, missing or not Parquet, or its store cannot be asked for ranges.
    """
    if is_remote(path):
        return _row_groups(read_footer(path, cloud), shown_path(path))
    # What is kept must not be a file in memory, which exists as long as its own path does.
    return _row_groups_of(str(path), *_found(path))


def read_footer(path: str, cloud: CloudAccess | None = None) -> bytes:
    """Return the Parquet file at ``path`` without its rows: a footer between magic bytes.

    Parameters
    ----------
    path
        Of a local file, or the URL of one in a store.
    cloud
        How to reach that store.

    Raises
    ------
    FooterError
        If the file's end is not that of a Parquet file, or is encrypted, or cannot be read.
    """
    shown = shown_path(path)
    try:
        with open_bytes(path, cloud) as file:
            footer = _footer_of(file, shown)
    except FileUnreadableError as error:
        raise FooterError(str(error)) from None
    except OSError as error:
        raise FooterError(f"{shown}: {error.strerror}") from error
    return b"".join([_MAGIC, footer, struct.pack("<I", len(footer)), _MAGIC])


class FileFooters:
    """The row groups of the files of one query, each read once. Any thread may use it."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, CloudAccess | None], tuple[RowGroup, ...] | FooterError] = {}
        self._in_stores: dict[tuple[str, CloudAccess | None], bytes] = {}
        self._kept = 0

    def __call__(self, path: str, cloud: CloudAccess | None = None) -> tuple[RowGroup, ...]:
        """Return what :func:`read_row_groups` does, or raise it."""
        known = self._known.get((path, cloud))
        if known is None:
            try:
                known = self._read_in_store(path, cloud) if is_remote(path) else read_row_groups(path)
            except FooterError as error:
                known = error
            self._known[path, cloud] = known
        if isinstance(known, FooterError):
            raise known
        return known

    def of_store(self, path: str, cloud: CloudAccess | None) -> bytes | None:
        """Return a file in a store without its rows, a footer between magic bytes, if it was read and kept."""
        return self._in_stores.get((path, cloud))

    def _read_in_store(self, path: str, cloud: CloudAccess | None) -> tuple[RowGroup, ...]:
        file = read_footer(path, cloud)
        if self._kept + len(file) <= _KEPT_BYTES:
            self._kept += len(file)
            self._in_stores[path, cloud] = file
        return _row_groups(file, shown_path(path))

    def read_ahead(self, files: Iterable[tuple[str, CloudAccess | None]]) -> None:
        """Read the footers of many files at once; those that cannot be read fail when they are asked for."""

        def read(file: tuple[str, CloudAccess | None]) -> None:
            with contextlib.suppress(FooterError):
                self(*file)

        wanted = list(dict.fromkeys(files))
        waits = sum(8 if is_remote(path) else 1 for path, _ in wanted)
        if len(wanted) > 1 and waits >= _WORTH_THREADS:
            with ThreadPoolExecutor(_THREADS, thread_name_prefix="riverrun-footers") as pool:
                list(pool.map(read, wanted))


def count_rows(paths: Sequence[str]) -> int:
    """Return the number of rows of local files together, by Polars, which reads no more of their footers.

    Raises
    ------
    FooterError
        If Polars cannot read a file, or if the files have different columns.
    """
    return _count_rows(tuple((str(path), *_found(path)) for path in paths))


@functools.lru_cache(maxsize=_CACHED_TABLES)
def _count_rows(files: tuple[tuple[str | int, ...], ...]) -> int:
    """Return the number of rows of such versions of files."""
    paths = [str(path) for path, *_ in files]
    try:
        scan = pl.scan_parquet(paths, glob=False, hive_partitioning=False)
        return int(scan.select(pl.len()).collect(engine="streaming").item())
    except (pl.exceptions.PolarsError, OSError) as error:
        raise FooterError(f"the rows of {paths[0]} cannot be counted: {error}") from error


def _found(path: str) -> tuple[int, ...]:
    """Return the version of a file that is there."""
    version = file_version(path)
    if not version:
        raise FooterError(f"{path}: there is no such file, or it cannot be reached")
    return version


@functools.lru_cache(maxsize=_CACHED_FILES)
def _row_groups_of(path: str, *version: int) -> tuple[RowGroup, ...]:
    """Read the footer of one version of a file: its device, inode, size and time of modification."""
    return _row_groups(read_footer(path), path)


def footer_in(file: bytes) -> bytes:
    """Return the footer by itself, without the magic bytes and the length that :func:`read_footer` puts around it."""
    return file[len(_MAGIC) : len(_MAGIC) - _FRAME_BYTES]


def _row_groups(file: bytes, path: str) -> tuple[RowGroup, ...]:
    try:
        return tuple(RowGroup(rows, nbytes) for rows, nbytes in row_group_sizes(footer_in(file)))
    except RuntimeError as error:
        raise FooterError(f"{path}: the footer cannot be read: {error}") from error


def _footer_of(file: ByteFile, path: str) -> bytes:
    tail = file.read(max(0, file.size - _TAIL_BYTES), file.size)
    if tail[-4:] == _ENCRYPTED:
        raise FooterError(f"{path}: the footer is encrypted")
    if len(tail) < _FRAME_BYTES or tail[-4:] != _MAGIC:
        raise FooterError(f"{path}: not a Parquet file (no {_MAGIC.decode()} at its end)")
    (length,) = struct.unpack("<I", tail[-8:-4])
    if length + _FRAME_BYTES > file.size:
        raise FooterError(f"{path}: the footer's length, {length}, exceeds the file")
    if length + 8 > len(tail):
        tail = file.read(file.size - length - 8, file.size)
    return tail[len(tail) - length - 8 : len(tail) - 8]
