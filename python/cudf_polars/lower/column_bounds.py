"""Least and greatest values of a column in each row group of Parquet files, from their footers."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from cudf_polars.lower.footers import FooterError, Footers, parse_columns, read_footer
from cudf_polars.plan.cloud import CloudAccess, is_remote, shown_path
from cudf_polars.plan.file_versions import file_version

__all__ = ["Chunk", "ColumnBounds", "ascending_bounds", "column_chunks", "column_place", "follows_position"]

_CACHED_COLUMNS = 10_000
_FILES = 1_000
"""Bounds are not read for tables of more files: to parse a footer takes up to a millisecond."""
_SAMPLED_FILES = 32
"""In so many files of a table at most one sees whether a column follows the position of the rows."""
_CLOCKS = ("TIME", "TIMESTAMP")
"""Logical types, by the names that pyarrow gives them."""
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
        The least and the greatest value that is not null, if known. Times that Python's types cannot hold are numbers.
    nulls
        How many values are null, if known.
    """

    rows: int
    bounds: tuple[Any, Any] | None
    nulls: int | None


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


def _of_file(path: str, cloud: CloudAccess | None, column: str, footers: Footers) -> ColumnBounds | None:
    if is_remote(path):
        kept = footers.of_store(path, cloud)
        return None if kept is None else _parse(kept, shown_path(path), column)
    version = file_version(path)
    return _of_version(str(path), column, *version) if version else None


@functools.lru_cache(maxsize=_CACHED_COLUMNS)
def _of_version(path: str, column: str, *version: int) -> ColumnBounds | None:
    """Read the footer of one version of a file: its device, inode, size and time of modification."""
    try:
        return _parse(read_footer(path), path, column)
    except FooterError:
        return None


def _parse(file: bytes, path: str, column: str) -> ColumnBounds | None:
    try:
        metadata = parse_columns(file, path)
    except FooterError:
        return None
    place = column_place(metadata, column)
    if place is None:
        return None
    least, greatest = [], []
    for chunk in column_chunks(metadata, place):
        if not chunk.rows:
            continue
        if chunk.bounds is None or chunk.nulls != 0:
            return None
        least.append(chunk.bounds[0])
        greatest.append(chunk.bounds[1])
    return ColumnBounds(tuple(least), tuple(greatest))


def column_place(metadata: Any, name: str) -> int | None:
    """Return the place of a column that is not nested in what :func:`parse_columns` returns."""
    try:
        # A column inside a struct has a longer path.
        return next((i for i in range(metadata.num_columns) if metadata.schema.column(i).path == name), None)
    except UnicodeDecodeError:
        return None


def column_chunks(metadata: Any, place: int) -> Iterator[Chunk]:
    """Yield what is said of the column at ``place`` in each row group: some 10 microseconds each."""
    physical_type = metadata.schema.column(place).physical_type
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        chunk = group.column(place) if place < group.num_columns else None
        # Damaged footers say otherwise. Asked for such statistics, pyarrow raises no error but ends the process. So it
        # does where statistics are too short or histograms have wrong lengths, which nothing says beforehand.
        if chunk is None or chunk.physical_type != physical_type or (statistics := chunk.statistics) is None:
            yield Chunk(group.num_rows, None, None)
        else:
            nulls = statistics.null_count if statistics.has_null_count else None
            yield Chunk(group.num_rows, _bounds_of(statistics), nulls)


def _bounds_of(statistics: Any) -> tuple[Any, Any] | None:
    if not statistics.has_min_max:
        return None
    if statistics.logical_type.type in _CLOCKS:
        # As Python has them, nanoseconds are lost or not, by what else this process has imported. Times have the order
        # of their numbers.
        return statistics.min_raw, statistics.max_raw
    try:
        return statistics.min, statistics.max
    except Exception:
        # Of several kinds: for days after the year 9999, for text that is not UTF-8.
        return (statistics.min_raw, statistics.max_raw) if statistics.logical_type.type == "DATE" else None
