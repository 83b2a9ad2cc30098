"""Cutting scans: every row once, in order, in about equal bytes."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from cudf_polars.lower.footers import RowGroup
from cudf_polars.lower.shares import RowShare, split_as_one, split_files, split_rows

GROUPS = st.lists(
    st.lists(st.integers(1, 50).map(lambda rows: RowGroup(rows, rows * 10)), max_size=4), max_size=5
)


def _rows_of(share: RowShare, heights: list[int]) -> range:
    """Return the rows of a share, counted over all files."""
    start = share.first_row + share.offset
    if share.rows:
        assert share.first_row == sum(heights[: share.files.start])
        assert start + share.rows <= sum(heights[: share.files.stop])
        assert share.offset < heights[share.files.start]
    return range(start, start + share.rows)


@given(GROUPS, st.integers(1, 6), st.none() | st.tuples(st.integers(-60, 60), st.integers(0, 80)))
def test_shares_are_the_window_in_order(
    files: list[list[RowGroup]], nranks: int, window: tuple[int, int] | None
) -> None:
    heights = [sum(group.rows for group in groups) for groups in files]
    shares = split_rows(files, nranks, window)
    rows = list(itertools.chain.from_iterable(_rows_of(share, heights) for share in shares))
    everything = list(range(sum(heights)))
    if window is None:
        assert rows == everything
        return
    offset, length = window
    start = offset if offset >= 0 else len(everything) + offset
    assert rows == everything[max(start, 0) : max(start + length, 0)]


def test_equal_row_groups_are_not_cut() -> None:
    shares = split_rows([[RowGroup(100, 1000)] * 4], 2)
    assert [(share.offset, share.rows) for share in shares] == [(0, 200), (200, 200)]


def test_cut_moves_to_a_near_edge() -> None:
    shares = split_rows([[RowGroup(95, 950), RowGroup(105, 1050)]], 2)
    assert [share.rows for share in shares] == [95, 105]


def test_one_large_row_group_is_cut() -> None:
    shares = split_rows([[RowGroup(90, 900)]], 3)
    assert [share.rows for share in shares] == [30, 30, 30]


def test_shares_follow_bytes_not_rows() -> None:
    shares = split_rows([[RowGroup(10, 1000)], [RowGroup(1000, 1000)]], 2)
    assert [share.files for share in shares] == [range(0, 1), range(1, 2)]


@given(st.lists(st.integers(0, 100), max_size=12), st.integers(1, 5))
def test_each_file_goes_to_one_rank_in_order(sizes: list[int], nranks: int) -> None:
    shares = split_files(sizes, nranks)
    assert len(shares) == nranks
    assert list(itertools.chain.from_iterable(share.files for share in shares)) == list(range(len(sizes)))


def test_files_of_equal_size_are_dealt_evenly() -> None:
    assert [len(share.files) for share in split_files([7] * 6, 3)] == [2, 2, 2]


@given(st.lists(GROUPS, max_size=3), st.integers(1, 5))
def test_tables_cut_together_are_read_one_after_the_other(
    tables: list[list[list[RowGroup]]], nranks: int
) -> None:
    shares = split_as_one(tables, nranks)
    read = []
    for rank in range(nranks):
        for number, (table, parts) in enumerate(zip(tables, shares, strict=True)):
            heights = [sum(group.rows for group in groups) for groups in table]
            read += [(number, row) for row in _rows_of(parts[rank], heights)]
    expected = [
        (number, row)
        for number, table in enumerate(tables)
        for row in range(sum(group.rows for groups in table for group in groups))
    ]
    assert read == expected
