"""Quantiles of a whole table: the one or two values that count are looked up among those that are near them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from cudf_polars.lower.aggregates import is_row_source
from cudf_polars.lower.builder import StreamBuilder
from cudf_polars.lower.estimates import FILTERED
from cudf_polars.lower.partitioning import SINGLE, project
from cudf_polars.lower.physical import Estimate, SortKey, Stream, WithScalars
from cudf_polars.plan.expressions import Agg, Expr, Function, Literal, NamedExpr
from cudf_polars.plan.rebuild_expressions import to_expr

__all__ = ["QUANTILES", "Places", "is_quantile", "places", "quantile_source", "sorted_quantiles"]

QUANTILES = ("median", "quantile")
"""The aggregates of a whole table that are looked up."""
_VALUE = "__rr_value"
_LOW, _HIGH = "__rr_low", "__rr_high"
_ONE_ROW = Estimate(1.0, 64.0)
_SAMPLE = 1 << 14
"""How many values of all ranks are looked at to say which are near a quantile."""
_MARGIN = 4 / math.sqrt(_SAMPLE)
"""How far from it, in quantiles, these may be: eight times the standard error of the median of a sample."""


@dataclass(frozen=True)
class Places:
    """Which rows of sorted values a quantile is made of, and how.

    Attributes
    ----------
    first, rows
        The place of the first, and how many there are (0 to 2).
    share
        The quantile that they have, taken by themselves.
    """

    first: int
    rows: int
    share: float


def is_quantile(expr: Expr) -> bool:
    """Whether ``expr`` is the median or a constant quantile of values that are made row by row."""
    match expr:
        case Agg("median", child):
            pass
        case Function("quantile", (child, Literal(float() | int() as share))) if 0 <= share <= 1:
            pass
        case _:
            return False
    dtype = child.dtype
    return is_row_source(child) and dtype is not None and (dtype.is_numeric() or dtype.is_temporal())


def quantile_source(expr: Expr) -> Expr:
    """Return the values that a quantile is of."""
    return expr.children[0]


def places(share: float, interpolation: str, values: int, nulls: int) -> Places:
    """Return what a quantile of sorted values, nulls first, is made of; Polars rounds the same way.

    Parameters
    ----------
    share
        From 0 to 1.
    values, nulls
        How many there are.
    """
    if not values:
        return Places(0, 0, share)
    last = nulls + values - 1
    place = (values - 1) * share + nulls
    match interpolation:
        case "nearest":
            return Places(min(math.floor(place + 0.5), last), 1, 0.0)
        case "equiprobable":
            return Places(min(max(math.ceil(values * share) - 1, 0) + nulls, last), 1, 0.0)
        case "lower":
            return Places(min(math.floor(place), last), 1, 0.0)
        case "higher":
            return Places(min(math.ceil(place), last), 1, 0.0)
    below = min(math.floor(place), last)
    return Places(below, 1 if math.ceil(place) <= below else 2, place - below)


def sorted_quantiles(builder: StreamBuilder, child: Stream, outputs: Sequence[NamedExpr]) -> list[Stream]:
    """Return quantiles of the same values, each as one row on rank 0."""
    source = to_expr(quantile_source(outputs[0].expr)).alias(_VALUE)
    everything = builder.materialize(
        builder.local(
            "VALUES",
            [child],
            lambda frames, _: frames[0].select(source),
            partitioning=project(child.partitioning, {}),
            ordered=False,
        ),
        "counted, then sorted",
        shared=True,
    )
    size = builder.count(everything)
    missing = builder.local(
        "NULLS",
        [everything],
        lambda frames, _: frames[0].filter(pl.col(_VALUE).is_null()),
        ordered=False,
        estimate=everything.estimate.scaled(FILTERED),
    )
    nulls = builder.count(builder.materialize(missing, "nulls are counted")).rows
    small = size.nbytes <= builder.settings.small_limit
    counted = _Counted(everything, size.rows - nulls, nulls)
    found = [_wanted(output.expr, counted) for output in outputs]
    narrow = [None if small else _narrowed(builder, counted, each) for each in found]
    if any(each is None for each in narrow):
        ordered = _sorted(builder, everything, small=small, several=narrow.count(None) > 1)
    results = []
    for output, each, window in zip(outputs, found, narrow, strict=True):
        rows = window or builder.gather(builder.slice(ordered, (each.first, each.rows)))
        results.append(_computed(builder, rows, output, each))
    return results


@dataclass(frozen=True)
class _Counted:
    """Values on all ranks, and how many there are."""

    stream: Stream
    values: int
    nulls: int


def _wanted(expr: Expr, counted: _Counted) -> Places:
    if isinstance(expr, Function):
        share = expr.inputs[1]
        assert isinstance(share, Literal)
        return places(float(share.value), expr.args[0], counted.values, counted.nulls)
    return places(0.5, "linear", counted.values, counted.nulls)


def _sorted(builder: StreamBuilder, values: Stream, *, small: bool, several: bool) -> Stream:
    key = SortKey(_VALUE, descending=False, nulls_last=False)
    moved = builder.gather(values) if small else builder.by_ranges(values, [key])
    ordered: Stream = builder.local(
        "SORT values", [moved], lambda frames, _: frames[0].sort(_VALUE), ordered=True, schema=moved.schema
    )
    return builder.materialize(ordered, "read by several quantiles", shared=True) if several else ordered


def _narrowed(builder: StreamBuilder, counted: _Counted, wanted: Places) -> Stream | None:
    """Return the rows that a quantile is made of, on rank 0, out of the few values that a sample says are near them.

    ``None`` if they are not among these; then all values are sorted.
    """
    first = wanted.first - counted.nulls
    if not wanted.rows or first < 0:
        return None
    column, share = pl.col(_VALUE), first / max(counted.values - 1, 1)
    stride = max(1, counted.values // _SAMPLE)
    sample = builder.local(
        "SAMPLE",
        [counted.stream],
        lambda frames, _: frames[0].filter(column.is_not_null()).gather_every(stride),
        ordered=False,
        estimate=counted.stream.estimate.scaled(1 / stride),
    )
    low, high = share - _MARGIN, share + _MARGIN
    bounds = builder.local(
        "BOUNDS",
        [builder.broadcast(sample)],
        lambda frames, _: (
            frames[0]
            .sort(_VALUE)
            .select(
                column.get((pl.len() * max(low, 0.0)).floor().cast(pl.Int64), null_on_oob=True).alias(_LOW),
                column.get((pl.len() * min(high, 1.0)).ceil().cast(pl.Int64), null_on_oob=True).alias(_HIGH),
            )
        ),
        schema={_LOW: counted.stream.schema[_VALUE], _HIGH: counted.stream.schema[_VALUE]},
        estimate=_ONE_ROW,
    )
    beside = WithScalars(
        inputs=(counted.stream, bounds),
        schema={**counted.stream.schema, **bounds.schema},
        partitioning=counted.stream.partitioning,
        ordered=False,
        estimate=counted.stream.estimate,
    )
    is_low = column < pl.col(_LOW) if low > 0 else pl.lit(False)
    is_high = (column > pl.col(_HIGH)).fill_null(False)
    below = builder.local(
        "VALUES BELOW",
        [beside],
        lambda frames, _: frames[0].filter(is_low).select(pl.repeat(False, pl.len()).alias(_VALUE)),
        ordered=False,
    )
    near = builder.local(
        "VALUES NEAR",
        [beside],
        lambda frames, _: frames[0].filter(column.is_not_null(), ~is_low, ~is_high).select(_VALUE),
        ordered=False,
    )
    before = builder.count(builder.materialize(below, "values are counted")).rows
    window = builder.materialize(near, "values near a quantile")
    inside = builder.count(window).rows
    if first < before or first + wanted.rows > before + inside:
        return None
    return builder.local(
        "SORT and SLICE",
        [builder.gather(window)],
        lambda frames, _: frames[0].sort(_VALUE).slice(first - before, wanted.rows),
        partitioning=SINGLE,
        estimate=_ONE_ROW,
    )


def _computed(builder: StreamBuilder, rows: Stream, output: NamedExpr, found: Places) -> Stream:
    expr, column = output.expr, pl.col(_VALUE)
    value = column.quantile(found.share, expr.args[0]) if isinstance(expr, Function) else column.median()
    value = value.cast(expr.dtype) if expr.dtype is not None else value
    return builder.local(
        f"QUANTILE {output.name}",
        [rows],
        lambda frames, _: frames[0].select(value.alias(output.name)),
        partitioning=SINGLE,
        estimate=_ONE_ROW,
    )
