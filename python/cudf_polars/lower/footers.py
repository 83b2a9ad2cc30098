"""Row groups of Parquet files, read from their footers: what scans are split by and sizes are estimated from.

pyarrow's reader is used where pyarrow is installed, because it is native; otherwise a reader of the few Thrift
fields that are needed, so that pyarrow stays optional.
"""

from __future__ import annotations

import contextlib
import functools
import os
import struct
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

from cudf_polars.lower.byte_files import ByteFile, FileUnreadableError, open_bytes
from cudf_polars.plan.cloud import CloudAccess, is_remote, shown_path

__all__ = ["FileFooters", "FooterError", "Footers", "RowGroup", "read_row_groups"]

_CACHED_FILES = 10_000
_WORTH_THREADS, _THREADS = 8, 16
"""So many files are read by so many threads: on a file system over the network, each waits for its answer."""
_MAGIC = b"PAR1"
_TAIL_BYTES = 64 * 1024
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
        return parse_footer(_footer_in_store(path, cloud), shown_path(path))
    try:
        found = os.stat(path)
        # What is kept must not be a file in memory, which exists as long as its own path does.
        return _row_groups_of(str(path), found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
    except OSError as error:
        raise FooterError(f"{path}: {error}") from error


def _footer_in_store(path: str, cloud: CloudAccess | None) -> bytes:
    try:
        with open_bytes(path, cloud) as file:
            return _footer_of(file, shown_path(path))
    except FileUnreadableError as error:
        raise FooterError(str(error)) from None


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
        footer = _footer_in_store(path, cloud)
        if self._kept + len(footer) <= _KEPT_BYTES:
            self._kept += len(footer)
            length = struct.pack("<I", len(footer))
            self._in_stores[path, cloud] = b"".join([_MAGIC, footer, length, _MAGIC])
        return parse_footer(footer, shown_path(path))

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


@functools.lru_cache(maxsize=_CACHED_FILES)
def _row_groups_of(path: str, *version: int) -> tuple[RowGroup, ...]:
    """Read the footer of one version of a file: its device, inode, size and time of modification."""
    native = _native_reader()
    return native(path) if native is not None else parse_footer(_footer_bytes(path), path)


def _native_reader() -> Callable[[str], tuple[RowGroup, ...]] | None:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        return None

    def read(path: str) -> tuple[RowGroup, ...]:
        try:
            metadata = pq.read_metadata(path)
        except pa.ArrowException as error:
            raise FooterError(f"{path}: {error}") from error
        groups = (metadata.row_group(i) for i in range(metadata.num_row_groups))
        return tuple(RowGroup(group.num_rows, group.total_byte_size) for group in groups)

    return read


def _footer_bytes(path: str) -> bytes:
    with open_bytes(path, None) as file:
        return _footer_of(file, path)


def _footer_of(file: ByteFile, path: str) -> bytes:
    tail = file.read(max(0, file.size - _TAIL_BYTES), file.size)
    if len(tail) < 12 or tail[-4:] != _MAGIC:
        raise FooterError(f"{path}: not a Parquet file (no {_MAGIC.decode()} at its end)")
    (length,) = struct.unpack("<I", tail[-8:-4])
    if length + 12 > file.size:
        raise FooterError(f"{path}: the footer's length, {length}, exceeds the file")
    if length + 8 > len(tail):
        tail = file.read(file.size - length - 8, file.size)
    return tail[len(tail) - length - 8 : len(tail) - 8]


def parse_footer(footer: bytes, path: str = "footer") -> tuple[RowGroup, ...]:
    """Return the row groups that a serialised ``FileMetaData`` (Thrift compact protocol) lists."""
    try:
        return _Thrift(footer).row_groups()
    except (IndexError, KeyError) as error:
        raise FooterError(f"{path}: the footer is damaged") from error


# Thrift compact protocol types.
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)
# Field numbers of parquet.thrift.
_FILE_ROW_GROUPS = 4
_GROUP_BYTES = 2
_GROUP_ROWS = 3


class _Thrift:
    """A cursor over compact Thrift that skips everything but the fields asked for."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._data[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def _integer(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)

    def _list_header(self) -> tuple[int, int]:
        byte = self._data[self._at]
        self._at += 1
        size = byte >> 4
        return (self._varint() if size == 15 else size), byte & 0x0F

    def _fields(self, wanted: dict[int, Callable[[], Any]]) -> dict[int, Any]:
        found: dict[int, Any] = {}
        number = 0
        while True:
            byte = self._data[self._at]
            self._at += 1
            if byte == 0:
                return found
            delta, kind = byte >> 4, byte & 0x0F
            number = number + delta if delta else self._integer()
            if number in wanted:
                found[number] = wanted[number]()
            else:
                self._skip(kind)

    def _skip(self, kind: int) -> None:
        if kind in (_TRUE, _FALSE):
            return
        if kind == _BYTE:
            self._at += 1
        elif kind in (_I16, _I32, _I64):
            self._varint()
        elif kind == _DOUBLE:
            self._at += 8
        elif kind == _BINARY:
            length = self._varint()  # first: it moves the cursor too
            self._at += length
        elif kind in (_LIST, _SET):
            size, element = self._list_header()
            for _ in range(size):
                # Booleans take a byte each inside a list, unlike in a struct.
                self._skip(_BYTE if element in (_TRUE, _FALSE) else element)
        elif kind == _MAP:
            size = self._varint()
            if size:
                types = self._data[self._at]
                self._at += 1
                for _ in range(size):
                    self._skip(types >> 4)
                    self._skip(types & 0x0F)
        elif kind == _STRUCT:
            self._fields({})
        else:
            raise KeyError(kind)

    def _row_group(self) -> RowGroup:
        fields = self._fields({_GROUP_BYTES: self._integer, _GROUP_ROWS: self._integer})
        return RowGroup(fields[_GROUP_ROWS], fields[_GROUP_BYTES])

    def row_groups(self) -> tuple[RowGroup, ...]:
        def groups() -> tuple[RowGroup, ...]:
            size, _ = self._list_header()
            return tuple(self._row_group() for _ in range(size))

        found: tuple[RowGroup, ...] = self._fields({_FILE_ROW_GROUPS: groups})[_FILE_ROW_GROUPS]
        return found
