"""Sorting: by ranges over the ranks, or, when only its head is wanted, by merging the heads."""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from cudf_polars.lower.context import Context
from cudf_polars.lower.gathered import Gathered
from cudf_polars.lower.grouping import key_columns
from cudf_polars.lower.physical import Estimate, SortKey, Stream
from cudf_polars.lower.ranges import is_comparable
from cudf_polars.plan.nodes import Node, Sort
from cudf_polars.plan.properties import is_elementwise

__all__ = ["lower_sort"]


def lower_sort(ctx: Context, node: Node) -> Stream:
    """Sort over the ranks; afterwards rank order is the sorted order."""
    assert isinstance(node, Sort)
    child = ctx.lower(node.child)
    if ctx.builder.is_whole(child):
        return ctx.apply(node, [child], ordered=True)
    if not all(is_elementwise(key.expr) for key in node.by):
        return ctx.on_one_rank(node, [child], Gathered.NOT_ROWWISE_KEYS)
    if node.slice is not None:
        offset, length = node.slice
        if offset >= 0 and offset + length <= ctx.builder.settings.head_limit:
            return _head(ctx, node, child, offset + length)
        whole = _sort(ctx, replace(node, slice=None), child)
        return ctx.builder.slice(whole, node.slice)
    return _sort(ctx, node, child)


def _head(ctx: Context, node: Sort, child: Stream, rows: int) -> Stream:
    """Gather each rank's head and sort those: rank order keeps ties in input order."""
    estimate = Estimate(float(rows), float(rows) * child.estimate.nbytes / max(child.estimate.rows, 1.0))
    heads = ctx.apply(replace(node, slice=(0, rows)), [child], ordered=True, estimate=estimate)
    return ctx.apply(node, [ctx.builder.gather(heads)], ordered=True, estimate=estimate)


def _sort(ctx: Context, node: Sort, child: Stream) -> Stream:
    names = list(child.schema)
    keyed, keys = key_columns(ctx, child, [key.expr for key in node.by], "__rr_sort")
    if not is_comparable(keyed.schema[keys[0]]):
        return ctx.on_one_rank(node, [child], Gathered.NESTED_SORT_KEY, str(keyed.schema[keys[0]]))
    sort_keys = [
        SortKey(name, descending, nulls_last)
        for name, descending, nulls_last in zip(keys, node.descending, node.nulls_last, strict=True)
    ]
    descending, nulls_last, stable = list(node.descending), list(node.nulls_last), node.maintain_order

    def sort(frame: pl.LazyFrame) -> pl.LazyFrame:
        return frame.sort(keys, descending=descending, nulls_last=nulls_last, maintain_order=stable)

    return ctx.builder.select(ctx.builder.range_sort(keyed, sort_keys, sort), names)
