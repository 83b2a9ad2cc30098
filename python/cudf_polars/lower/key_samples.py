"""Samples of the keys of tables: how many values they have, and which of them are frequent."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import polars as pl

from cudf_polars.lower.estimates import GroupCount
from cudf_polars.lower.footers import FooterError, read_row_groups
from cudf_polars.lower.scans import on_files
from cudf_polars.plan.cloud import is_remote
from cudf_polars.plan.dag import Plan
from cudf_polars.plan.errors import CannotRebuild
from cudf_polars.plan.expressions import Expr
from cudf_polars.plan.file_versions import file_version
from cudf_polars.plan.fingerprint import fingerprint
from cudf_polars.plan.nodes import DataFrameScan, Node, Scan
from cudf_polars.plan.rebuild import rebuild_node, to_lazyframe
from cudf_polars.plan.rebuild_expressions import to_expr

__all__ = ["KeySample", "frequent_together", "sample_of_steps", "sample_of_table"]

_ROWS = 1 << 14
"""Rows of each of the two samples of a table: the first, and some from its middle."""
_FREQUENT = 0.01
"""A key that so large a part of a sample has is counted by itself."""
_CACHED = 1_000
_kept: dict[tuple[object, ...], KeySample | None] = {}
"""Samples of steps over files, by what was asked."""
_FAILURES = (
    FooterError,
    CannotRebuild,
    OSError,
    pl.exceptions.PolarsError,
    pl.exceptions.PanicException,
)
"""What fails here, fails in the query, too, or tells only that nothing is known."""


@dataclass(frozen=True)
class KeySample:
    """Keys in two samples of a table.

    Attributes
    ----------
    frequent
        The columns of the keys that many rows have, and the part of the rows that each has (the last column).
    with_key
        The part of the rows in which no key is null.
    groups
        What the samples have in common.
    height
        How many rows of the table the steps after it leave, as far as the samples tell; None: there are no steps.
    """

    frequent: pl.DataFrame
    with_key: float
    groups: GroupCount
    height: float | None = None


def sample_of_table(
    table: Scan | DataFrameScan, columns: Sequence[str], *, nulls_equal: bool
) -> KeySample | None:
    """Count keys in samples of a table; ``None`` if that is in a store, or in files other than Parquet.

    Parameters
    ----------
    nulls_equal
        Whether rows whose key is null have equal ones.
    """
    if isinstance(table, DataFrameScan):
        try:
            first, second = (part.frame.select(_numbered(columns)) for part in _parts_of_frame(table))
            return _counted(first, second, nulls_equal=nulls_equal)
        except _FAILURES:
            return None  # of values that cannot be grouped, say
    if table.kind != "parquet" or not _can_be_sampled(table):
        return None
    start, middle = ((path, *file_version(path)) for path in (table.paths[0], _middle(table)))
    return _sample_of_files(start, middle, columns=tuple(columns), nulls_equal=nulls_equal)


def sample_of_steps(
    node: Node, table: Scan | DataFrameScan, height: float, exprs: Sequence[Expr], *, nulls_equal: bool
) -> KeySample | None:
    """Count keys in samples of a table that have been taken through the steps up to ``node``.

    ``None`` if no row is left, and as for :func:`sample_of_table`; but files may be of any kind.

    Parameters
    ----------
    node
        Is made of the table row by row.
    height
        Rows of the table.
    exprs
        The keys, of the columns of ``node``.
    """
    if isinstance(table, DataFrameScan):
        return _through_steps(node, table, height, exprs, nulls_equal=nulls_equal)
    if not _can_be_sampled(table):
        return None
    versions = [file_version(path) for path in (table.paths[0], _middle(table))]
    asked = fingerprint(Plan(node)), repr(exprs), *versions, height, nulls_equal
    if asked not in _kept:
        if len(_kept) >= _CACHED:
            _kept.clear()
        _kept[asked] = _through_steps(node, table, height, exprs, nulls_equal=nulls_equal)
    return _kept[asked]


def _through_steps(
    node: Node, table: Scan | DataFrameScan, height: float, exprs: Sequence[Expr], *, nulls_equal: bool
) -> KeySample | None:
    keys = [to_expr(expr).alias(f"{place}") for place, expr in enumerate(exprs)]
    read = 0
    parts = []
    try:
        for part in _parts_of(table):
            parts.append(_taken_through(node, table, part).select(keys).collect(engine="streaming"))
            read += _ROWS if isinstance(part, Scan) else part.frame.height
        left = sum(part.height for part in parts)
        if not left:
            return None
        counted = _counted(*parts, nulls_equal=nulls_equal)
    except _FAILURES:
        return None
    return replace(counted, height=height * min(1.0, left / min(read, height)))


def _taken_through(node: Node, table: Node, part: Node) -> pl.LazyFrame:
    """Return ``node`` with a part of its table in place of that."""
    leaf = rebuild_node(part, [])
    return to_lazyframe(node, lambda each: leaf if each is table else None)


def _can_be_sampled(table: Scan) -> bool:
    return bool(table.paths) and not any(map(is_remote, table.paths))


def _middle(table: Scan) -> str:
    return table.paths[len(table.paths) // 2]


def _parts_of(table: Scan | DataFrameScan) -> Iterator[Scan | DataFrameScan]:
    """Yield two parts of a table."""
    if isinstance(table, DataFrameScan):
        yield from _parts_of_frame(table)
        return
    if table.kind != "parquet" or table.slice is not None:
        # To skip rows of text takes as long as to read them.
        start = 0 if table.slice is None else max(0, table.slice[0])
        for number in range(2):
            yield replace(on_files(table, range(1)), slice=(start + number * _ROWS, _ROWS))
        return
    middle = len(table.paths) // 2
    yield replace(on_files(table, range(1)), slice=(0, _ROWS))
    start = _middle_row(table.paths[middle], is_first=middle == 0)
    yield replace(on_files(table, range(middle, middle + 1)), slice=(start, _ROWS))


def _parts_of_frame(table: DataFrameScan) -> Iterator[DataFrameScan]:
    height = table.frame.height
    yield replace(table, frame=table.frame.head(_ROWS))
    yield replace(table, frame=table.frame.slice(max(_ROWS, height // 2), _ROWS))


def _middle_row(path: str, *, is_first: bool) -> int:
    """Return a row from the middle of a Parquet file, after the first sample if that is of the same file."""
    starts = list(itertools.accumulate((group.rows for group in read_row_groups(path)), initial=0))
    # To skip rows inside of a row group takes as long as to read them.
    start = starts[len(starts) // 2] if len(starts) > 2 else starts[-1] // 2
    return max(_ROWS, start) if is_first else start


@functools.lru_cache(maxsize=_CACHED)
def _sample_of_files(
    first: tuple[str | int, ...],
    middle: tuple[str | int, ...],
    *,
    columns: tuple[str, ...],
    nulls_equal: bool,
) -> KeySample | None:
    """Count keys in the first rows of a Parquet file, and in rows from the middle of another, or of the same."""
    try:
        start = _middle_row(str(middle[0]), is_first=first == middle)
        # One by one: what Polars runs together reads a file that is in both as a whole.
        parts = [
            pl.scan_parquet(str(path), glob=False, hive_partitioning=False)
            .slice(offset, _ROWS)
            .select(_numbered(columns))
            .collect(engine="streaming")
            for (path, *_), offset in ((first, 0), (middle, start))
        ]
        return _counted(*parts, nulls_equal=nulls_equal)
    except _FAILURES:
        return None  # columns that come from paths, say


def _numbered(columns: Sequence[str]) -> list[pl.Expr]:
    """Return columns of a key, of which one may be there twice, named by their places."""
    return [pl.col(name).alias(f"{place}") for place, name in enumerate(columns)]


def _counted(first: pl.DataFrame, second: pl.DataFrame, *, nulls_equal: bool) -> KeySample:
    """Count the keys of two samples, whose columns are named by their places."""
    keys = first.columns
    rows = pl.concat([part.with_columns(first=pl.lit(part is first)) for part in (first, second)])
    known = rows if nulls_equal else rows.drop_nulls(keys)
    groups = known.group_by(keys).agg(
        pl.col("first").any().alias("in_first"),
        pl.col("first").not_().any().alias("in_second"),
        pl.len().alias("rows"),
    )
    times = groups.get_column("rows")
    part = pl.col("rows") / max(1, known.height)
    return KeySample(
        groups.select(*keys, part).filter(pl.col("rows") >= _FREQUENT),
        known.height / max(1, rows.height),
        GroupCount(
            float(known.height),
            float(groups.get_column("in_first").sum()),
            float(groups.get_column("in_second").sum()),
            float(groups.height),
            *(float((times == n).sum()) for n in (1, 2, 3)),
        ),
    )


def frequent_together(left: KeySample, right: KeySample) -> float:
    """Return the fraction of all pairs of rows that match by a key which is frequent in both samples."""
    ours, theirs = left.frequent, right.frequent
    keys = ours.columns[:-1]
    if ours.select(keys).schema != theirs.select(keys).schema:
        return 0.0
    try:
        both = ours.join(theirs, on=keys, how="inner", nulls_equal=True)
    except _FAILURES:
        return 0.0  # of a type that is no key
    return float((both.to_series(-2) * both.to_series(-1)).sum())
