"""Least and greatest values of a column in each row group of Parquet files, from their footers."""

from __future__ import annotations

import datetime
import decimal
import functools
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rapidsmpf._parquet import column_facts

from cudf_polars.lower.footers import FooterError, Footers, footer_in, read_footer
from cudf_polars.plan.cloud import CloudAccess, is_remote, shown_path
from cudf_polars.plan.file_versions import file_version

__all__ = [
    "Chunk",
    "Column",
    "ColumnBounds",
    "ascending_bounds",
    "column_range",
    "follows_position",
    "read_column",
]

_CACHED_COLUMNS = 10_000
_FILES = 1_000
"""Bounds are not read for tables of more files: to parse a footer takes up to a millisecond."""
_SAMPLED_FILES = 32
"""In so many files of a table at most one sees whether a column follows the position of the rows."""
_FIRST_DAY = datetime.date(1970, 1, 1)
_EXACT = decimal.Context(prec=100)
_WIDE = 0.25
"""Row groups whose bounds enclose less than this part of all bounds, on average, have values of their own."""


@dataclass(frozen=True)
class ColumnBounds:
    """The bounds of a column in row groups, in their order; those without rows are left out.

    Attributes
    ----------
    least, greatest
        By row group. None of its values is null.
    """

    least: tuple[Any, ...]
    greatest: tuple[Any, ...]


@dataclass(frozen=True)
class Chunk:
    """What a footer says of a column in one row group.

    Attributes
    ----------
    rows
        Of the row group.
    bounds
        The least and the greatest value that is not null, if known. Times are numbers, in the units of the file.
    nulls
        How many values are null, if known.
    """

    rows: int
    bounds: tuple[Any, Any] | None
    nulls: int | None


@dataclass(frozen=True)
class Column:
    """What a footer says of a column that is not nested: whether it is required (has no nulls), and its chunks."""

    is_required: bool
    chunks: tuple[Chunk, ...]


def ascending_bounds(
    paths: Sequence[str], cloud: CloudAccess | None, column: str, kind: type, footers: Footers
) -> ColumnBounds | None:
    """Return the bounds of a column of Parquet files if neither bound falls from a row group to the next.

    ``None`` where they do, where a value is null or of another type than ``kind``, where footers do not tell, and where
    there are too many files to ask.
    """
    if len(paths) > _FILES:
        return None
    least: list[Any] = []
    greatest: list[Any] = []
    for path in paths:
        found = _of_file(path, cloud, column, footers)
        if found is None:
            return None
        for low, high in zip(found.least, found.greatest, strict=True):
            if type(low) is not kind or type(high) is not kind:
                return None
            if least and (low < least[-1] or high < greatest[-1]):
                return None
            least.append(low)
            greatest.append(high)
    return ColumnBounds(tuple(least), tuple(greatest))


def follows_position(paths: Sequence[str], cloud: CloudAccess | None, column: str, footers: Footers) -> bool:
    """Whether rows that lie together have values of a column that lie together, so that a filter leaves neighbours.

    Not where footers do not tell.
    """
    sampled = [paths[len(paths) * i // _SAMPLED_FILES] for i in range(_SAMPLED_FILES)]
    least: list[Any] = []
    greatest: list[Any] = []
    for path in dict.fromkeys(sampled):
        found = _of_file(path, cloud, column, footers)
        if found is None:
            return False
        least += found.least
        greatest += found.greatest
    count = len(least)
    if count < 2:
        return False
    # Bounds are compared by their ranks, so that values need not be numbers. If a column has no order, the lower bounds
    # of all row groups sort before the upper ones, and each row group spans half of the ranks.
    try:
        places = sorted(range(2 * count), key=[*least, *greatest].__getitem__)
    except TypeError:
        return False  # files have several types
    rank = [0] * (2 * count)
    for place, item in enumerate(places):
        rank[item] = place
    return sum(rank[count + i] - rank[i] for i in range(count)) / count < _WIDE * 2 * count


def column_range(
    paths: Sequence[str], cloud: CloudAccess | None, column: str, footers: Footers | None
) -> tuple[Any, Any] | None:
    """Return the least and the greatest value of a column of Parquet files, nulls apart.

    ``None`` where footers do not tell, where there is no value, and where there are too many files to ask.

    Parameters
    ----------
    footers
        Those of files in stores that have been read; ``None``: of no file.
    """
    if len(paths) > _FILES:
        return None
    least: list[Any] = []
    greatest: list[Any] = []
    for path in paths:
        found = _column_of_file(path, cloud, column, footers)
        if found is None:
            return None
        for chunk in found.chunks:
            if chunk.bounds is not None:
                least.append(chunk.bounds[0])
                greatest.append(chunk.bounds[1])
            elif chunk.rows != chunk.nulls:
                return None
    try:
        return (min(least), max(greatest)) if least else None
    except TypeError:
        return None  # files have several types


def _of_file(path: str, cloud: CloudAccess | None, column: str, footers: Footers) -> ColumnBounds | None:
    if is_remote(path):
        return _bounds_of(_column_of_file(path, cloud, column, footers))
    version = file_version(path)
    return _of_version(str(path), column, *version) if version else None


@functools.lru_cache(maxsize=_CACHED_COLUMNS)
def _of_version(path: str, column: str, *version: int) -> ColumnBounds | None:
    return _bounds_of(_column_of_version(path, column, *version))


def _bounds_of(column: Column | None) -> ColumnBounds | None:
    if column is None:
        return None
    least, greatest = [], []
    for chunk in column.chunks:
        if not chunk.rows:
            continue
        if chunk.bounds is None or chunk.nulls != 0:
            return None
        least.append(chunk.bounds[0])
        greatest.append(chunk.bounds[1])
    return ColumnBounds(tuple(least), tuple(greatest))


def _column_of_file(
    path: str, cloud: CloudAccess | None, column: str, footers: Footers | None
) -> Column | None:
    if is_remote(path):
        kept = None if footers is None else footers.of_store(path, cloud)
        return None if kept is None else _parse(kept, shown_path(path), column)
    version = file_version(path)
    return _column_of_version(str(path), column, *version) if version else None


@functools.lru_cache(maxsize=_CACHED_COLUMNS)
def _column_of_version(path: str, column: str, *version: int) -> Column | None:
    """Read the footer of one version of a file: its device, inode, size and time of modification."""
    try:
        return _parse(read_footer(path), path, column)
    except FooterError:
        return None


def _parse(file: bytes, path: str, name: str) -> Column | None:
    try:
        return read_column(file, path, name)
    except FooterError:
        return None


def read_column(file: bytes, path: str, name: str) -> Column | None:
    """Return what the footer of a file says of a column that is not nested, ``None`` if there is none of that name.

    Parameters
    ----------
    file
        What :func:`~cudf_polars.lower.footers.read_footer` returns.
    path
        The file's name in errors.
    name
        Of the column.

    Raises
    ------
    FooterError
        If the footer cannot be parsed, or the file has encrypted columns.
    """
    try:
        facts = column_facts(footer_in(file), name)
    except RuntimeError as error:
        raise FooterError(f"{path}: the footer cannot be read: {error}") from error
    if facts is None:
        return None
    kind, scale, is_required, chunks = facts
    value = _VALUES.get(kind)

    def bounds(least: bytes | None, greatest: bytes | None) -> tuple[Any, Any] | None:
        if value is None or least is None or greatest is None:
            return None
        try:
            found = value(least, scale), value(greatest, scale)
        except (ValueError, ArithmeticError, struct.error):
            return None
        return None if found[0] != found[0] or found[1] != found[1] else found  # neither may be NaN

    return Column(
        is_required,
        tuple(Chunk(rows, bounds(least, greatest), nulls) for rows, nulls, least, greatest in chunks),
    )


def _signed(raw: bytes, _: int = 0) -> int:
    return int.from_bytes(_whole(raw), "little", signed=True)


def _unsigned(raw: bytes, _: int) -> int:
    return int.from_bytes(_whole(raw), "little")


def _whole(raw: bytes) -> bytes:
    if len(raw) not in (4, 8):
        raise ValueError(f"a number of {len(raw)} bytes")
    return raw


def _day(raw: bytes, _: int) -> datetime.date | int:
    """Return a day; a number where Python's type cannot hold it."""
    days = _signed(raw)
    try:
        return _FIRST_DAY + datetime.timedelta(days)
    except OverflowError:
        return days


def _decimal(raw: bytes, scale: int) -> decimal.Decimal:
    return decimal.Decimal(_signed(raw)).scaleb(-scale, _EXACT)


def _decimal_of_bytes(raw: bytes, scale: int) -> decimal.Decimal:
    if not raw:
        raise ValueError("a decimal of no bytes")
    return decimal.Decimal(int.from_bytes(raw, "big", signed=True)).scaleb(-scale, _EXACT)


def _boolean(raw: bytes, _: int) -> bool:
    if len(raw) != 1:
        raise ValueError(f"a truth value of {len(raw)} bytes")
    return raw != b"\0"


_VALUES: dict[str, Callable[[bytes, int], Any]] = {
    "boolean": _boolean,
    "signed_integer": _signed,
    "unsigned_integer": _unsigned,
    "day": _day,
    "clock": _signed,
    "decimal": _decimal,
    "decimal_bytes": _decimal_of_bytes,
    "float32": lambda raw, _: struct.unpack("<f", raw)[0],
    "float64": lambda raw, _: struct.unpack("<d", raw)[0],
    "text": lambda raw, _: raw.decode(),
    "bytes": lambda raw, _: raw,
}
"""What reads the bytes of a bound, which are PLAIN-encoded, by the meaning that the library finds."""
