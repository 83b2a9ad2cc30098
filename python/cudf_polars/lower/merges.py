"""``merge_sorted``: by ranges of its keys over the ranks, where both tables are seen to be in their order."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import polars as pl

from cudf_polars.lower.context import Context
from cudf_polars.lower.gathered import Gathered
from cudf_polars.lower.partitioning import ARBITRARY, SINGLE
from cudf_polars.lower.physical import Estimate, SortKey, Stream
from cudf_polars.lower.ranges import comparable, is_comparable
from cudf_polars.plan.columns import keep_columns
from cudf_polars.plan.nodes import MergeSorted, Node

__all__ = ["lower_merge_sorted"]

_SIDE = "__rr_side"
_SORTED = "__rr_sorted"
_NULLS_FIRST, _NULLS_LAST, _UNSORTED = range(3)
"""How many rows the verdict on the order of both tables has."""


def lower_merge_sorted(ctx: Context, node: Node) -> Stream:
    """Merge two tables that are sorted by the same keys.

    Rows of the left one come first among equal keys, where ``maintain_order`` asks for that.

    Rows that are not sorted, or of which one table has its nulls first and the other last, Polars merges into an order
    of which nothing is promised: it has it from the order of all rows, so one rank merges them.
    """
    assert isinstance(node, MergeSorted)
    builder = ctx.builder
    inputs = [ctx.lower(child) for child in node.children]
    if all(builder.is_whole(stream) for stream in inputs):
        return ctx.on_one_rank(node, inputs, Gathered.NO_FORM)
    if not ctx.ordered(node):
        return _stacked(ctx, node, inputs)
    for key in node.key:
        if not is_comparable(node.schema[key]):
            return ctx.on_one_rank(node, inputs, Gathered.NESTED_SORT_KEY, str(node.schema[key]))
    inputs = [
        stream
        if stream.rereadable
        else builder.materialize(stream, "its order is looked at first", shared=True)
        for stream in map(builder.disjoint, inputs)
    ]
    verdict = builder.materialize(_verdict(ctx, node, inputs), "to choose how to merge")
    order = builder.count(verdict).rows
    if order >= _UNSORTED:
        return ctx.on_one_rank(node, inputs, Gathered.NO_FORM, "its inputs are not sorted in one order")
    nulls_last = order == _NULLS_LAST
    keys = [SortKey(key, descending=False, nulls_last=nulls_last) for key in node.key]
    # A sort by two keys takes four times as long as one by one.
    by = [*node.key, _SIDE] if node.maintain_order else list(node.key)
    merged = builder.range_sort(
        _stacked(ctx, node, inputs, side=node.maintain_order),
        keys,
        lambda frame: frame.sort(by, nulls_last=nulls_last, maintain_order=True),
    )
    return builder.select(merged, list(node.schema))


def _stacked(ctx: Context, node: MergeSorted, inputs: Sequence[Stream], *, side: bool = False) -> Stream:
    """Return the rows of the left table on each rank and behind them those of the right one."""
    names = list(node.schema)

    def build(frames: Sequence[pl.LazyFrame], _: int) -> pl.LazyFrame:
        parts = [keep_columns(frame, names) for frame in frames]
        if side:
            parts = [part.with_columns(pl.lit(n, pl.UInt8).alias(_SIDE)) for n, part in enumerate(parts)]
        return pl.concat(parts, how="vertical")

    inputs = [ctx.builder.disjoint(stream) for stream in inputs]
    return ctx.builder.local(
        "CONCATENATE",
        inputs,
        build,
        schema=dict(node.schema) | ({_SIDE: pl.UInt8()} if side else {}),
        partitioning=ARBITRARY,
        estimate=Estimate(
            sum(stream.estimate.rows for stream in inputs), sum(stream.estimate.nbytes for stream in inputs)
        ),
    )


# --- the order of the tables ---------------------------------------------------------------------------------


def _verdict(ctx: Context, node: MergeSorted, inputs: Sequence[Stream]) -> Stream:
    """Return a stream of as many rows as the order of both tables says, on rank 0."""
    builder = ctx.builder
    keys = [comparable(key, node.schema[key]).alias(str(n)) for n, key in enumerate(node.key)]
    flags = ("sorted", "nulls_first", "nulls_last")

    def ends(frames: Sequence[pl.LazyFrame], _: int) -> pl.LazyFrame:
        rows = frames[0].select(keys)
        columns = [pl.col(str(n)) for n in range(len(keys))]
        first_and_last = [
            reduce(pl.Expr.append, (c.first(), c.drop_nulls().first(), c.drop_nulls().last(), c.last()))
            for c in columns
        ]
        found = rows.select(*first_and_last, *_order(columns), pl.len().alias("rows"))
        return found.filter(pl.col("rows") > 0).drop("rows")

    def side(frame: pl.LazyFrame) -> pl.LazyFrame:
        columns = [pl.col(str(n)) for n in range(len(keys))]
        order = [own & pl.col(flag).all() for own, flag in zip(_order(columns), flags, strict=True)]
        some = pl.any_horizontal(c.count() > 0 for c in columns) | (pl.len() == 0)
        return frame.select(order[0] & some, *order[1:])

    def verdict(frames: Sequence[pl.LazyFrame], _: int) -> pl.LazyFrame:
        is_sorted, first, last = map(pl.col, flags)
        both = pl.concat([side(frame) for frame in frames]).select(pl.all().all())
        rows = pl.when(~is_sorted).then(_UNSORTED).when(first).then(_NULLS_FIRST).when(last).then(_NULLS_LAST)
        count = both.select(rows.otherwise(_UNSORTED).alias("rows"))
        numbers = pl.LazyFrame({"row": range(_UNSORTED)}, schema={"row": pl.Int32})
        return numbers.join(count, how="cross").filter(pl.col("row") < pl.col("rows")).select("row")

    sides = [
        builder.gather(builder.local("ENDS and order", [stream], ends, partitioning=ARBITRARY))
        for stream in inputs
    ]
    return builder.local(
        "LOOK AT the order of both tables",
        sides,
        verdict,
        schema={"row": pl.Int32()},
        partitioning=SINGLE,
        estimate=Estimate(0.0, 0.0),
    )


def _order(keys: Sequence[pl.Expr]) -> list[pl.Expr]:
    """Return whether rows are in ascending order of keys, nulls aside; and whether these come first, or come last."""
    values = [key.drop_nulls() for key in keys] if len(keys) == 1 else keys
    in_order = pl.lit(True)
    for value in reversed(values):
        before = value.shift(1)
        in_order = (before < value) | ((before == value) & in_order)
    nulls = [key.null_count() for key in keys]
    if len(keys) == 1:
        (key,), (count,) = keys, nulls
        first, last = (part.null_count() == count for part in (key.head(count), key.tail(count)))
    else:
        # Where rows are compared key by key, nulls may stand anywhere.
        first = last = pl.all_horizontal(count == 0 for count in nulls)
    return [
        in_order.fill_null(True).all().alias("sorted"),
        first.alias("nulls_first"),
        last.alias("nulls_last"),
    ]
