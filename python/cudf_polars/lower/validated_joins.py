"""Joins whose keys Polars checks (``validate``), where a part of a rank's rows may have none of one side.

An inner join by several keys ends at once where one of its sides is empty, and checks nothing. So does each part of a
distributed join, although its side is empty only here. Left and full joins check their keys in any case, and so do
inner joins by one key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import polars as pl

from cudf_polars.lower.context import Context
from cudf_polars.lower.physical import Stream
from cudf_polars.plan.nodes import Join
from cudf_polars.plan.rebuild_expressions import to_expr

__all__ = ["check_keys", "without_check_if_empty"]


def _may_end_unchecked(ctx: Context, node: Join, left: Stream, right: Stream) -> bool:
    several_keys = node.how == "inner" and node.validate != "m:m" and len(node.left_on) > 1
    return several_keys and not (ctx.builder.is_whole(left) and ctx.builder.is_whole(right))


def without_check_if_empty(
    ctx: Context, node: Join, left: Stream, right: Stream
) -> tuple[Join, Stream, Stream]:
    """Return a join and its sides; it checks nothing if one side has no rows on any rank, as Polars does."""
    if not _may_end_unchecked(ctx, node, left, right):
        return node, left, right
    left = ctx.builder.materialize(left, "to see if there are keys to check")
    right = ctx.builder.materialize(right, "to see if there are keys to check")
    for side in (left, right):
        if ctx.builder.is_empty(side):
            node = replace(node, validate="m:m")
    return node, left, right


def check_keys(ctx: Context, node: Join, left: Stream, right: Stream) -> tuple[Stream, Stream]:
    """Return the sides of a join, of which rows with equal keys have met, such that each part's keys are checked."""
    if not _may_end_unchecked(ctx, node, left, right):
        return left, right
    of_left, of_right = node.validate.split(":")
    if of_left == "1":
        left = _checked(ctx, node, left, is_left=True)
    if of_right == "1":
        right = _checked(ctx, node, right, is_left=False)
    return left, right


def _checked(ctx: Context, node: Join, stream: Stream, *, is_left: bool) -> Stream:
    """Join a side with no rows, in a way that checks its keys and keeps its rows."""
    keys = [to_expr(key.expr) for key in (node.left_on if is_left else node.right_on)]
    names = [f"__rr_key_{i}" for i in range(len(keys))]
    schema = list(stream.schema)

    def build(frames: Sequence[pl.LazyFrame], _: int) -> pl.LazyFrame:
        rows = frames[0]
        types = rows.select(key.alias(name) for key, name in zip(keys, names, strict=True)).collect_schema()
        none = pl.LazyFrame(schema=types)
        if is_left:
            joined = rows.join(
                none,
                left_on=keys,
                right_on=names,
                how="left",
                validate=node.validate,  # type: ignore[arg-type]  # one of Polars' words
                nulls_equal=node.nulls_equal,
            )
        else:
            joined = none.join(
                rows,
                left_on=names,
                right_on=keys,
                how="full",
                coalesce=False,
                validate=node.validate,  # type: ignore[arg-type]
                nulls_equal=node.nulls_equal,
            )
            # Below an inner join Polars would make a left join of this, its sides exchanged, and check the wrong one.
            return joined.select(schema).map_batches(
                lambda frame: frame,
                predicate_pushdown=False,
                projection_pushdown=False,
                slice_pushdown=False,
                streamable=True,
                schema=dict(stream.schema),
            )
        return joined.select(schema)

    side = "left" if is_left else "right"
    title = f"CHECK KEYS of the {side} side ({node.validate})"
    return ctx.builder.local(title, [stream], build, schema=stream.schema, ordered=False)
