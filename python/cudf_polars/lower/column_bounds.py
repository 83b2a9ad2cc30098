"""Least and greatest values of a column in each row group of Parquet files, from their footers."""

from __future__ import annotations

import functools
import io
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Any

from cudf_polars.lower.footers import Footers
from cudf_polars.plan.cloud import CloudAccess, is_remote

__all__ = ["ColumnBounds", "ascending_bounds", "follows_position"]

_CACHED_COLUMNS = 10_000
_FILES = 1_000
"""Bounds are not read for tables of more files: to parse a footer takes up to a millisecond."""
_SAMPLED_FILES = 32
"""In so many files of a table at most one sees whether a column follows the position of the rows."""
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
        return None if kept is None else _read(io.BytesIO(kept), column)
    try:
        found = os.stat(path)
    except OSError:
        return None
    return _of_version(str(path), column, found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


@functools.lru_cache(maxsize=_CACHED_COLUMNS)
def _of_version(path: str, column: str, *version: int) -> ColumnBounds | None:
    """Read the footer of one version of a file: its device, inode, size and time of modification."""
    try:
        with open(path, "rb") as file:
            return _read(file, column)
    except OSError:
        return None


def _read(file: IO[bytes], column: str) -> ColumnBounds | None:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        return None
    try:
        metadata = pq.read_metadata(file)
    except (pa.ArrowException, OSError):
        return None
    # A column inside a struct has a longer path.
    index = next((i for i in range(metadata.num_columns) if metadata.schema.column(i).path == column), None)
    if index is None:
        return None
    least, greatest = [], []
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        if not group.num_rows:
            continue
        statistics = group.column(index).statistics
        if (
            statistics is None
            or not statistics.has_min_max
            or not statistics.has_null_count
            or statistics.null_count
        ):
            return None
        least.append(statistics.min)
        greatest.append(statistics.max)
    return ColumnBounds(tuple(least), tuple(greatest))
