"""Least and greatest values of a column in each row group of Parquet files, from their footers."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cudf_polars.plan.cloud import is_remote

__all__ = ["ColumnBounds", "read_column_bounds"]

_CACHED_COLUMNS = 1_000
_WIDE = 0.25
"""Row groups whose bounds enclose less than this part of all bounds, on average, have values of their own."""


@dataclass(frozen=True)
class ColumnBounds:
    """The bounds of a column in the row groups of a table, in scan order; empty row groups are left out.

    Attributes
    ----------
    least, greatest
        By row group. None of its values is null.
    """

    least: tuple[Any, ...]
    greatest: tuple[Any, ...]

    def is_ascending(self) -> bool:
        """Whether neither bound falls from a row group to the next."""
        return all(
            values[i] <= values[i + 1]
            for values in (self.least, self.greatest)
            for i in range(len(values) - 1)
        )

    def follows_position(self) -> bool:
        """Whether rows that lie together have values that lie together, so that a filter leaves neighbours."""
        count = len(self.least)
        if count < 2:
            return False
        # By ranks among all bounds, so that values need not be numbers. Of a column in no order, all least ones come
        # first, then all greatest ones, so that each row group encloses half of them.
        places = sorted(range(2 * count), key=[*self.least, *self.greatest].__getitem__)
        rank = [0] * (2 * count)
        for place, item in enumerate(places):
            rank[item] = place
        widths = (rank[count + i] - rank[i] for i in range(count))
        return sum(widths) / count < _WIDE * 2 * count


def read_column_bounds(paths: Sequence[str], column: str) -> ColumnBounds | None:
    """Return the bounds of a column of Parquet files; ``None`` where footers do not tell, or a value is null."""
    least: list[Any] = []
    greatest: list[Any] = []
    for path in paths:
        found = _of_file(path, column)
        if found is None:
            return None
        least += found.least
        greatest += found.greatest
    return ColumnBounds(tuple(least), tuple(greatest))


def _of_file(path: str, column: str) -> ColumnBounds | None:
    if is_remote(path):
        return None
    try:
        found = os.stat(path)
    except OSError:
        return None
    return _of_version(str(path), column, found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


@functools.lru_cache(maxsize=_CACHED_COLUMNS)
def _of_version(path: str, column: str, *version: int) -> ColumnBounds | None:
    """Read the footer of one version of a file: its device, inode, size and time of modification."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        return None
    try:
        metadata = pq.read_metadata(path)
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
