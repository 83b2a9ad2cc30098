"""Windows that another column's values give: ``rolling_mean_by`` and its kind, and ``Expr.rolling``.

Each rank gets the rows of other ranks that the windows of its own rows reach. For ``Expr.rolling`` the table is in the
order of the index. For the others it need not be: rows are sent by ranges of it, and put back in order.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from cudf_polars.lower.aggregates import is_row_source
from cudf_polars.lower.builder import StreamBuilder
from cudf_polars.lower.durations import Reach, at_most, index_number
from cudf_polars.lower.partitioning import ARBITRARY
from cudf_polars.lower.physical import Carried, SortKey, Stream
from cudf_polars.lower.shape import Extended, extended
from cudf_polars.plan.expressions import Column, Expr, Function, Rolling
from cudf_polars.plan.nodes import Filter, HStack, Select
from cudf_polars.plan.properties import columns, is_elementwise
from cudf_polars.plan.rebuild_expressions import to_expr

__all__ = ["ROLLING_BY", "add_rolling", "rolling_of"]

ROLLING_BY = tuple(
    f"rolling_{kind}_by" for kind in ("sum", "mean", "min", "max", "std", "var", "quantile", "rank")
)
"""The functions that are computed so, by their names in a plan."""
_PLACE, _INDEX, _OWN = "__rr_rolled_place", "__rr_rolled_index", "__rr_own"
_PART = "__rr_part"
"""Whether a row of a summary (Boolean) is for those who come before."""


def rolling_of(node: Select | HStack | Filter) -> Extended:
    """Return a node with a column for each of these windows."""
    return extended(node, "__rr_rolled", lambda expr: _reach_of(expr) is not None)


def _reach_of(expr: Expr) -> Reach | None:
    """Return how far the windows of a row reach; ``None``: it is no such expression, or not known."""
    if expr.dtype is None:
        return None
    match expr:
        case Function(name, (values, index), (str() as size, *_)) if name in ROLLING_BY:
            if index.dtype is None or not all(
                is_row_source(e) and is_elementwise(e) for e in (values, index)
            ):
                return None
            before = at_most(size, index.dtype)
            return None if before is None else Reach(before, 0)
        case Rolling(_, index) if index.dtype is not None and is_elementwise(index) and columns(index):
            return Reach.of_window(expr.offset, expr.period, index.dtype)
    return None


def add_rolling(builder: StreamBuilder, found: Extended, stream: Stream) -> Stream:
    """Return an ordered stream, which no rank has whole, with the columns of windows."""
    for expr, column in found.columns.items():
        reach = _reach_of(expr)
        assert reach is not None
        if isinstance(expr, Rolling):
            names = dict.fromkeys([*columns(expr.child), *columns(expr.index)])
            index = to_expr(expr.index)
            rows = builder.materialize(stream, "read for the ends of its parts", shared=True)
            # Polars checks each rank's own rows.
            stream = builder.checked_order(rows, rows, index.alias(_INDEX), _INDEX, "rolling")
            stream = _beside_others(builder, stream, to_expr(expr), column, index, list(names), reach)
        else:
            stream = _by_ranges(builder, stream, expr, column, reach)
    return stream


def _by_ranges(builder: StreamBuilder, stream: Stream, expr: Expr, column: Column, reach: Reach) -> Stream:
    values, index = expr.children
    names = list(stream.schema)
    computed = [to_expr(values).alias(_OWN), to_expr(index).alias(_INDEX)]
    keyed = builder.with_columns(builder.attach_order(stream, _PLACE), computed, "VALUES and INDEX")
    by = [SortKey(_INDEX, descending=False, nulls_last=True)]
    ordered = builder.range_sort(
        keyed, by, lambda frame: frame.sort([_INDEX, _PLACE], nulls_last=[True, False])
    )
    call = to_expr(expr.with_children((Column(_OWN, dtype=values.dtype), Column(_INDEX, dtype=index.dtype))))
    if builder.is_whole(ordered):
        rolled: Stream = builder.with_columns(ordered, [call.alias(column.name)], "ROLLING")
    else:
        rolled = _beside_others(
            builder, ordered, call, column, pl.col(_INDEX), [_OWN, _INDEX], reach, together=(_INDEX,)
        )
    restored = builder.restore_order(builder.select(rolled, [*names, _PLACE, column.name]), [_PLACE])
    return builder.select(restored, [*names, column.name])


def _beside_others(
    builder: StreamBuilder,
    stream: Stream,
    call: pl.Expr,
    column: Column,
    index: pl.Expr,
    names: Sequence[str],
    reach: Reach,
    together: tuple[str, ...] = (),
) -> Stream:
    """Compute an expression over rows in the order of an index, beside the rows of other ranks that it reaches.

    Parameters
    ----------
    together
        See :class:`Carried`. Windows that reach no row behind their own hold rows with the same index nevertheless.
    """
    schema = {name: stream.schema[name] for name in names}
    number, mark = index_number(index), "__rr_rolled_own"

    def ends(first: pl.DataFrame, last: pl.DataFrame) -> pl.DataFrame:
        near = last.filter(number >= number.max() - reach.before)
        far = first.filter(number <= number.min() + reach.behind) if reach.behind else first.head(0)
        return pl.concat(
            [far.with_columns(pl.lit(True).alias(_PART)), near.with_columns(pl.lit(False).alias(_PART))]
        )

    def rows_of(summary: pl.DataFrame, behind: bool) -> pl.DataFrame:
        return summary.filter(pl.col(_PART) == behind).drop(_PART)

    def strangers(summary: pl.DataFrame, behind: bool) -> pl.LazyFrame:
        rows = rows_of(summary, behind)
        nothing = [
            pl.lit(None, dtype=dtype).alias(name)
            for name, dtype in stream.schema.items()
            if name not in schema
        ]
        return rows.lazy().with_columns(nothing).select(*stream.schema, pl.lit(False).alias(mark))

    def apply(rows: pl.LazyFrame, before: pl.DataFrame, behind: pl.DataFrame) -> pl.LazyFrame:
        own = rows.with_columns(pl.lit(True).alias(mark))
        every = pl.concat([strangers(before, False), own, strangers(behind, True)], how="vertical")
        return every.with_columns(call.alias(column.name)).filter(pl.col(mark)).drop(mark)

    assert column.dtype is not None
    return Carried(
        inputs=(stream,),
        schema={**stream.schema, column.name: column.dtype},
        partitioning=ARBITRARY,
        ordered=True,
        estimate=stream.estimate,
        summary={**schema, _PART: pl.Boolean()},
        summarize=lambda rows: ends(rows.select(names), rows.select(names)),
        merge=lambda summaries: ends(rows_of(summaries, True), rows_of(summaries, False)),
        apply=apply,
        title="ROLLING windows, with the rows of other ranks that they reach",
        together=together,
    )
