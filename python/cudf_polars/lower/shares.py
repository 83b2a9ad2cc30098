"""What each rank has of a table: contiguous shares of a scan's files, and whether shares are even."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from cudf_polars.lower.footers import RowGroup

__all__ = [
    "FileShare",
    "RowShare",
    "is_even",
    "one_share",
    "share_of_rows",
    "split_as_one",
    "split_files",
    "split_rows",
]

# A boundary moves to a row group's edge when that changes a rank's share by no more than this part of it: a row group
# that two ranks read is decompressed twice.
_SNAP = 0.15
_LARGEST_SHARE = 1.5
"""How many times its even share a rank may have, so that rows need not move: moving them costs about as much time."""


def is_even(rows: Sequence[float], nranks: int) -> bool:
    """Return whether no rank has much more than its share of the rows; ranks without rows may be left out."""
    return max(rows, default=0) * nranks <= _LARGEST_SHARE * sum(rows)


@dataclass(frozen=True)
class RowShare:
    """One rank's rows of a scan over Parquet files.

    Attributes
    ----------
    files
        Positions of the files that hold them; empty when the rank has none.
    offset, rows
        The rows, counted from the first row of ``files``.
    first_row
        Rows in the files before those: what a row index starts from.
    """

    files: range
    offset: int
    rows: int
    first_row: int


def one_share(shares: Sequence[RowShare]) -> RowShare:
    """Return neighbouring shares, which may overlap, as one."""
    some = [share for share in shares if share.rows]
    if not some:
        return RowShare(range(0), 0, 0, 0)
    first, last = some[0], some[-1]
    rows = last.first_row + last.offset + last.rows - first.first_row - first.offset
    return RowShare(range(first.files.start, last.files.stop), first.offset, rows, first.first_row)


@dataclass(frozen=True)
class FileShare:
    """One rank's whole files of a scan, by position."""

    files: range


def split_rows(
    files: Sequence[Sequence[RowGroup]],
    nranks: int,
    window: tuple[int, int | None] | None = None,
) -> list[RowShare]:
    """Split Parquet files into ``nranks`` contiguous shares of about equal bytes.

    Parameters
    ----------
    files
        The row groups of each file, in scan order.
    window
        Offset (negative: from the end) and length of the rows that the scan keeps; ``None`` keeps all.
    """
    starts = list(itertools.accumulate((sum(g.rows for g in groups) for groups in files), initial=0))
    low, high = _resolve(window, starts[-1])
    # Each piece of a row group inside the window: first row, rows, bytes.
    pieces: list[tuple[int, int, float]] = []
    at = 0
    for group in itertools.chain.from_iterable(files):
        first, last = max(at, low), min(at + group.rows, high)
        at += group.rows
        if last > first:
            pieces.append((first, last - first, group.nbytes * (last - first) / group.rows))
    bounds = [low, *(_boundary(pieces, part, nranks) for part in range(1, nranks)), high]
    bounds = list(itertools.accumulate(bounds, max))
    return [share_of_rows(starts, first, last) for first, last in itertools.pairwise(bounds)]


def split_as_one(tables: Sequence[Sequence[Sequence[RowGroup]]], nranks: int) -> list[list[RowShare]]:
    """Split several tables, one after the other, as if they were one; return each table's shares."""
    shares = split_rows([file for table in tables for file in table], nranks)
    ends = list(itertools.accumulate((share.rows for share in shares), initial=0))
    result, before = [], 0
    for table in tables:
        starts = list(itertools.accumulate((sum(g.rows for g in groups) for groups in table), initial=0))
        bounds = [min(max(end - before, 0), starts[-1]) for end in ends]
        result.append([share_of_rows(starts, first, last) for first, last in itertools.pairwise(bounds)])
        before += starts[-1]
    return result


def _resolve(window: tuple[int, int | None] | None, total: int) -> tuple[int, int]:
    if window is None:
        return 0, total
    offset, length = window
    start = offset if offset >= 0 else total + offset
    stop = total if length is None else start + length
    start = min(max(start, 0), total)
    return start, min(max(stop, start), total)


def _boundary(pieces: Sequence[tuple[int, int, float]], part: int, parts: int) -> int:
    """Return the row before which the first ``part`` of ``parts`` equal shares of ``pieces`` ends."""
    if not pieces:
        return 0
    total = sum(nbytes for _, _, nbytes in pieces)
    target = total * part / parts
    before = 0.0
    for first, rows, nbytes in pieces:
        if before + nbytes >= target:
            tolerance = _SNAP * total / parts
            if target - before <= tolerance:
                return first
            if before + nbytes - target <= tolerance:
                return first + rows
            return first + round(rows * (target - before) / nbytes)
        before += nbytes
    first, rows, _ = pieces[-1]
    return first + rows


def share_of_rows(starts: Sequence[int], first: int, last: int) -> RowShare:
    """Return the share of the rows from ``first`` to before ``last``; ``starts`` has the first row of each file."""
    if last <= first:
        return RowShare(range(0), 0, 0, 0)
    begin = bisect.bisect_right(starts, first) - 1
    end = bisect.bisect_left(starts, last)
    return RowShare(range(begin, end), first - starts[begin], last - first, starts[begin])


def split_files(sizes: Sequence[int], nranks: int) -> list[FileShare]:
    """Split whole files of ``sizes`` bytes into ``nranks`` contiguous shares of about equal bytes."""
    total = sum(sizes)
    counts = [0] * nranks
    before = 0
    for position, size in enumerate(sizes):
        # A file belongs to the rank whose share holds its middle; empty files go by position.
        middle = (before + size / 2) / total if total else (position + 0.5) / len(sizes)
        counts[min(int(middle * nranks), nranks - 1)] += 1
        before += size
    ends = list(itertools.accumulate(counts, initial=0))
    return [FileShare(range(first, last)) for first, last in itertools.pairwise(ends)]
