"""Filters from facts: the keys of a small side of a join leave out rows of the other side before these move.

The small side has been run, so that its keys are known and counted. Where they are few beside the values that the other
side's key may have, a filter by them goes on top of that side's steps, and Polars takes it from there to the scan. Rows
that have no partner must be of no use for that: those of a preserved side stay.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Sequence

import polars as pl

from cudf_polars.lower.builder import Settings
from cudf_polars.lower.context import Context
from cudf_polars.lower.findings import KeyLimit, Keys
from cudf_polars.lower.footers import FooterError, row_groups
from cudf_polars.lower.origins import origin_of
from cudf_polars.lower.physical import Materialize, Stream
from cudf_polars.lower.scans import sample_pipeline
from cudf_polars.plan.nodes import DataFrameScan, Join, Node, Scan

__all__ = ["can_filter", "filter_by_keys", "is_filtered", "key_predicate", "origin_rows"]

_FILTERED = {
    "inner": ("left", "right"),
    "left": ("right",),
    "right": ("left",),
    "semi": ("left", "right"),
    "anti": ("right",),
}
"""By kind of join, the sides of which rows without a partner change nothing."""
_OTHER = {"left": "right", "right": "left"}
_SAMPLE_ROWS, _SAMPLE_SHARE = 1 << 14, 0.9
"""Of so many rows of each rank, no larger part may be left. They are the first, which may lie close together."""
_BYTES_OF_KEY = 3
"""Of a Bloom filter, at most."""
_FEWER = 1.5
"""How many times the rows of the side whose keys filter the other one is to have, as estimated."""


def can_filter(ctx: Context, join: Join, side: str, rows: Stream, node: Node, small: Stream) -> bool:
    """Whether rows of which the join's ``side`` is made may be left out, and running ``small`` for that may pay.

    Parameters
    ----------
    rows, node
        The rows, and what they are in the plan.
    small
        The other side.
    """
    settings = ctx.builder.settings
    scan = ctx.properties.pipeline_scan(node)
    # How many rows are left of what has been joined before, nobody knows; of a file, a sample can be taken.
    is_known = scan is not None and scan.kind == "parquet"
    return (
        settings.filter_keys > 0
        and (is_known or settings.filter_share >= 1)
        and side in _FILTERED.get(join.how, ())
        and join.validate == "m:m"  # doubles of a key are errors wherever they are
        and rows.estimate.nbytes >= settings.filter_least
        and (
            small.estimate.rows * _FEWER <= rows.estimate.rows
            or (is_filtered(ctx, join, _OTHER[side]) and not ctx.properties.is_filtered(node))
        )
    )


def is_filtered(ctx: Context, node: Join, side: str) -> bool:
    """Whether a side leaves out rows: how many, estimates do not know."""
    return ctx.properties.is_filtered(node.left if side == "left" else node.right)


def filter_by_keys(
    ctx: Context,
    small: Materialize,
    small_node: Node,
    large: Stream,
    large_node: Node,
    names: Sequence[tuple[str, str]],
    *,
    nulls_equal: bool,
) -> Stream:
    """Return ``large`` without rows that have no partner in ``small``, as far as that pays.

    Parameters
    ----------
    small
        A side of a join, which was run to its end.
    large
        The other side, or rows under it.
    small_node, large_node
        What they are in the plan.
    names
        Pairs of key columns: of ``large``, and of ``small``.
    nulls_equal
        Whether the join takes nulls for equal.
    """
    settings = ctx.builder.settings
    pairs = [
        (ours, theirs, min(origin_rows(ctx, large_node, ours), origin_rows(ctx, small_node, theirs)))
        for ours, theirs in names
        if large.schema[ours] == small.schema[theirs] and _is_comparable(large.schema[ours])
    ]
    if settings.filter_share < 1:  # of how many values, must be known
        pairs = [pair for pair in pairs if math.isfinite(pair[2])]
    if not pairs:
        return large
    # A column may be the partner of several.
    wanted: dict[str, float] = {}
    for _, theirs, domain in pairs:
        wanted[theirs] = max(domain, wanted.get(theirs, 0))
    limits = {theirs: _limit(settings, domain) for theirs, domain in wanted.items()}
    found = dict(zip(limits, ctx.builder.findings.find_keys(small, limits), strict=True))
    for ours, theirs, domain in pairs:
        keys = found[theirs]
        kept = _kept_part(keys, domain)
        if kept > settings.filter_share:
            continue
        predicate = key_predicate(ours, keys, nulls_equal=nulls_equal)
        if _agrees(ctx, large_node, ours, predicate, kept):
            large = _filtered(ctx, large, ours, keys, predicate, kept)
    return large


def _limit(settings: Settings, domain: float) -> KeyLimit:
    """Return how many keys are worth a filter, of a column that may have so many values."""
    most = settings.filter_share * domain if settings.filter_share < 1 else math.inf
    in_filter = settings.bloom_filter_bytes // _BYTES_OF_KEY
    return KeyLimit(int(min(settings.filter_keys, most)), int(min(in_filter, most)))


def _kept_part(keys: Keys, domain: float) -> float:
    """Return the part of the rows that is expected to stay.

    The values of a key are taken to be equally frequent, and not to be more than the rows of either table that the keys
    come from.
    """
    count: float = keys.count
    if keys.values is None and keys.bloom_filter is None:
        # Only the bounds filter: by how many values they leave.
        low, high = keys.bounds or (None, None)
        if not (isinstance(low, int) and isinstance(high, int)):
            return 1.0
        count = high - low + 1
    return min(1.0, count / domain) if 0 < domain < math.inf else 1.0


def _agrees(ctx: Context, node: Node, name: str, predicate: pl.Expr, kept: float) -> bool:
    """Whether some of the first rows of each rank's files would be left out, too.

    Keys are guessed to be as many as their table has rows; where they are fewer, a set may hold all of them.
    """
    if ctx.builder.settings.filter_share >= 1:
        return True
    heights = []
    for title, condition, part in (
        ("SAMPLE", pl.lit(True), 1.0),
        ("SAMPLE of what is left", predicate, kept),
    ):
        sample = sample_pipeline(ctx, node, _SAMPLE_ROWS)
        if sample is None:  # its footers cannot be read
            return False
        one = ctx.builder.local(
            title,
            [sample],
            lambda frames, _, condition=condition: frames[0].filter(condition).select(name),  # type: ignore[misc]
            schema={name: sample.schema[name]},
            estimate=sample.estimate.scaled(part),
        )
        rows = ctx.builder.materialize(one, "to see whether keys of a join leave out rows")
        heights.append(ctx.builder.findings.measure(rows, None).expected_rows)
    return heights[1] <= _SAMPLE_SHARE * heights[0]


def _filtered(ctx: Context, stream: Stream, name: str, keys: Keys, predicate: pl.Expr, kept: float) -> Stream:
    what = "the bounds of the keys"
    if keys.values is not None:
        what = f"{keys.count} keys"
    elif keys.bloom_filter is not None:
        what = f"a Bloom filter of {keys.count} keys"
    if keys.bounds is not None:
        what += f" from {keys.bounds[0]} to {keys.bounds[1]}"
    return ctx.builder.local(
        f"KEEP {name} in {what} of the other side, about {kept:.1%}",
        [stream],
        lambda frames, _: frames[0].filter(predicate),
        schema=stream.schema,
        estimate=stream.estimate.scaled(kept),
    )


def key_predicate(name: str, keys: Keys, *, nulls_equal: bool) -> pl.Expr:
    """Return what is true of rows whose key is among ``keys`` as a join compares: NaN is NaN, and -0.0 is 0.0.

    By a Bloom filter it may be true of a few others, too.
    """
    column = pl.col(name)
    predicates = [] if keys.bounds is None else [column.is_between(*keys.bounds)]
    if keys.values is not None:
        predicates.append(column.is_in(keys.values.implode()))
    elif keys.bloom_filter is not None:
        # Which says nothing of null.
        predicates += [column.is_not_null(), keys.bloom_filter.may_contain(column)]
    if not predicates:
        return pl.lit(True)
    predicate = functools.reduce(operator.and_, predicates)
    return predicate | column.is_null() if nulls_equal and keys.has_null else predicate


def _is_comparable(dtype: pl.DataType) -> bool:
    """Whether Polars finds values of a type in a set as a join finds its partners."""
    return dtype.is_integer() or dtype.is_float() or dtype.is_temporal() or dtype == pl.String


def origin_rows(ctx: Context, node: Node, name: str, *, of_groups: bool = True) -> float:
    """Return how many rows the table has that a column comes from as it is; infinity if that is unknown.

    Parameters
    ----------
    of_groups
        Whether groups may have been made of its rows on the way.
    """
    found = origin_of(node, name, of_groups=of_groups)
    origin = None if found is None else found[0]
    if isinstance(origin, DataFrameScan):
        return ctx.properties.frame_size(origin).rows
    if isinstance(origin, Scan) and origin.kind == "parquet":
        try:
            return float(sum(group.rows for group in row_groups(ctx.footers, origin.paths, origin.cloud)))
        except FooterError:
            pass
    return math.inf
