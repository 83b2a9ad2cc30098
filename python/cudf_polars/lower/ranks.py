"""Ranks over all rows of a table: rows are sent by ranges of the ranked values, numbered there, and put back in order.

Equal values meet on one rank, so that a row's rank is the one that it has there and the number of values, or of
distinct values, on the ranks before.
"""

from __future__ import annotations

import polars as pl

from cudf_polars.lower.aggregates import is_row_source
from cudf_polars.lower.builder import StreamBuilder
from cudf_polars.lower.partitioning import ARBITRARY
from cudf_polars.lower.physical import Carried, SortKey, Stream
from cudf_polars.lower.ranges import is_comparable
from cudf_polars.lower.shape import Extended, extended
from cudf_polars.plan.expressions import Column, Expr, Function
from cudf_polars.plan.nodes import Filter, HStack, Select
from cudf_polars.plan.properties import is_elementwise
from cudf_polars.plan.rebuild_expressions import to_expr

__all__ = ["RANKS", "add_ranks", "ranks_of"]

RANKS = ("rank",)
"""The functions that are computed so, by their names in a plan."""
_METHODS = ("average", "min", "max", "dense", "ordinal")
_KEY, _PLACE = "__rr_ranked", "__rr_ranked_place"
_VALUES, _DISTINCT, _FIRST, _LAST = "values", "distinct", "first", "last"


def ranks_of(node: Select | HStack | Filter) -> Extended:
    """Return a node with a column for each rank of values that are made row by row."""
    return extended(node, "__rr_rank", _is_rank)


def _is_rank(expr: Expr) -> bool:
    match expr:
        case Function("rank", (values,), (method, _, _)) if method in _METHODS:
            dtype = values.dtype
            return (
                is_elementwise(values)
                and is_row_source(values)
                and dtype is not None
                and is_comparable(dtype)
                and expr.dtype is not None
            )
    return False


def add_ranks(builder: StreamBuilder, found: Extended, stream: Stream) -> Stream:
    """Return an ordered stream, which no rank has whole, with the columns of ranks."""
    for call, column in found.columns.items():
        assert isinstance(call, Function)
        stream = _ranked(builder, call, column.name, stream)
    return stream


def _ranked(builder: StreamBuilder, call: Function, name: str, stream: Stream) -> Stream:
    (values,) = call.inputs
    method, descending, _ = call.args
    names = list(stream.schema)
    keyed = builder.with_columns(stream, [to_expr(values).alias(_KEY)], "RANKED VALUES")
    # By the value alone, so that equal ones meet; there they come in the order of their rows, which 'ordinal' ranks by.
    ranges = [SortKey(_KEY, descending=descending, nulls_last=True)]
    ordered = builder.range_sort(
        builder.attach_order(keyed, _PLACE),
        ranges,
        lambda frame: frame.sort([_KEY, _PLACE], descending=[descending, False], nulls_last=[True, False]),
    )
    assert call.dtype is not None
    local = to_expr(call.with_children((Column(_KEY, dtype=values.dtype),)))
    if builder.is_whole(ordered):
        counted: Stream = builder.with_columns(ordered, [local.alias(name)], "RANK")
    else:
        counted = _counted_over_ranks(ordered, local, name, call.dtype, is_dense=method == "dense")
    restored = builder.restore_order(builder.select(counted, [*names, _PLACE, name]), [_PLACE])
    return builder.select(restored, [*names, name])


def _counted_over_ranks(
    stream: Stream, local: pl.Expr, name: str, dtype: pl.DataType, *, is_dense: bool
) -> Stream:
    """Add what the ranks before have: they hold the lesser values."""
    key, number = stream.schema[_KEY], pl.UInt64()
    summary = {_VALUES: number, _DISTINCT: number, _FIRST: key, _LAST: key}
    value = pl.col(_KEY)

    def summarize(rows: pl.DataFrame) -> pl.DataFrame:
        present = rows.select(value).drop_nulls()
        return present.select(
            pl.len().cast(number).alias(_VALUES),
            value.n_unique().cast(number).alias(_DISTINCT),
            value.first().alias(_FIRST),
            value.last().alias(_LAST),
        )

    def merge(summaries: pl.DataFrame) -> pl.DataFrame:
        full = summaries.filter(pl.col(_VALUES) > 0)
        # Values that two parts share are equal at the parts' common end.
        shared = (
            full.select((pl.col(_FIRST).eq_missing(pl.col(_LAST).shift(1))).sum()).item()
            if full.height
            else 0
        )
        return full.select(
            pl.col(_VALUES).sum(),
            (pl.col(_DISTINCT).sum() - shared).cast(number),
            pl.col(_FIRST).first(),
            pl.col(_LAST).last(),
        )

    def apply(rows: pl.LazyFrame, before: pl.DataFrame, _: pl.DataFrame) -> pl.LazyFrame:
        column = _DISTINCT if is_dense else _VALUES
        lesser = int(before[column].sum()) if before.height else 0
        return rows.with_columns((local + lesser).cast(dtype).alias(name))

    return Carried(
        inputs=(stream,),
        schema={**stream.schema, name: dtype},
        partitioning=ARBITRARY,
        ordered=True,
        estimate=stream.estimate,
        summary=summary,
        summarize=summarize,
        merge=merge,
        apply=apply,
        title="RANK over the ranks",
        together=(_KEY,),
    )
