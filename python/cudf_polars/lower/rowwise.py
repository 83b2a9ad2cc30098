"""Expressions that each rank computes over its rows, after the rows of a window's partition were sent to one rank."""

from __future__ import annotations

from cudf_polars.lower.context import Context
from cudf_polars.lower.estimates import FILTERED, row_width
from cudf_polars.lower.physical import Estimate, Stream
from cudf_polars.lower.windows import lower_windows, window_keys
from cudf_polars.plan.nodes import Filter, HStack, Select
from cudf_polars.plan.properties import is_elementwise

__all__ = ["apply_expressions", "is_distributable", "lower_distributable"]


def is_distributable(node: Select | HStack | Filter) -> bool:
    """Whether the expressions are row-wise, or windows over columns that they have in common."""
    return all(map(is_elementwise, node.expressions)) or window_keys(node) is not None


def lower_distributable(ctx: Context, node: Select | HStack | Filter, child: Stream) -> Stream:
    """Compute expressions for which :func:`is_distributable` holds."""
    if all(map(is_elementwise, node.expressions)):
        return apply_expressions(ctx, node, child)
    return lower_windows(ctx, node, child)


def apply_expressions(ctx: Context, node: Select | HStack | Filter, child: Stream) -> Stream:
    """Compute expressions on each rank over its rows."""
    if isinstance(node, Filter):
        return ctx.apply(node, [child], estimate=child.estimate.scaled(FILTERED))
    return ctx.apply(
        node,
        [child],
        estimate=Estimate(child.estimate.rows, child.estimate.rows * row_width(node.schema)),
    )
