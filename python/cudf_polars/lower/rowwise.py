"""Expressions that each rank computes over its rows, after the rows of a window's partition were sent to one rank."""

from __future__ import annotations

from dataclasses import replace

from cudf_polars.lower.context import Context
from cudf_polars.lower.estimates import FILTERED, row_width
from cudf_polars.lower.physical import Estimate, Stream
from cudf_polars.lower.ranks import add_ranks, ranks_of
from cudf_polars.lower.rolling_by import add_rolling, rolling_of
from cudf_polars.lower.sequences import add_sequences, sequences_of
from cudf_polars.lower.windows import are_windows, keyed_windows, lower_windows
from cudf_polars.plan.nodes import Filter, HStack, Select
from cudf_polars.plan.properties import is_elementwise
from cudf_polars.plan.rebuild_expressions import to_expr

__all__ = ["apply_expressions", "is_distributable", "lower_distributable"]


def is_distributable(node: Select | HStack | Filter) -> bool:
    """Whether the expressions are row-wise, ranks, over rows in order, or windows over their own partitions."""
    if all(map(is_elementwise, node.expressions)):
        return True
    node = keyed_windows(rolling_of(ranks_of(node).node).node).node
    found = sequences_of(node)
    if found is not None:
        node = found.node
    return all(map(is_elementwise, node.expressions)) or are_windows(node)


def lower_distributable(
    ctx: Context, node: Select | HStack | Filter, child: Stream, *, ordered: bool | None = None
) -> Stream:
    """Compute expressions for which :func:`is_distributable` holds.

    Parameters
    ----------
    ordered
        Whether the order of the node's rows matters; None: as the plan says.
    """
    if all(map(is_elementwise, node.expressions)) or ctx.builder.is_whole(child):
        return apply_expressions(ctx, node, child)
    ordered = ctx.ordered(node) if ordered is None else ordered
    ranked = ranks_of(node)
    wide = add_ranks(ctx.builder, ranked, child)
    rolled = rolling_of(ranked.node)
    wide = add_rolling(ctx.builder, rolled, wide)
    windows = keyed_windows(rolled.node)
    keys = [to_expr(expr).alias(column.name) for expr, column in windows.columns.items()]
    wide = ctx.builder.with_columns(wide, keys, "KEYS")
    found = sequences_of(windows.node)
    if found is not None:
        wide = add_sequences(ctx.builder, found, wide)
    new = windows.node if found is None else found.node
    if isinstance(new, Filter):
        new = replace(new, schema=wide.schema)
    elif isinstance(new, HStack):
        new = replace(new, schema={**wide.schema, **node.schema})
    if all(map(is_elementwise, new.expressions)):
        result = apply_expressions(ctx, new, wide)
    else:
        result = lower_windows(ctx, new, wide, ordered=ordered)
    return ctx.builder.select(result, list(node.schema))


def apply_expressions(ctx: Context, node: Select | HStack | Filter, child: Stream) -> Stream:
    """Compute expressions on each rank over its rows."""
    if isinstance(node, Filter):
        return ctx.apply(node, [child], estimate=child.estimate.scaled(FILTERED))
    return ctx.apply(
        node,
        [child],
        estimate=Estimate(child.estimate.rows, child.estimate.rows * row_width(node.schema)),
    )
