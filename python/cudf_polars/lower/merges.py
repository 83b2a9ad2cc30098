"""``merge_sorted``: by ranges of its keys over the ranks, where both tables are seen to be in their order."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import polars as pl

from cudf_polars.lower.context import Context
from cudf_polars.lower.gathered import Gathered
from cudf_polars.lower.partitioning import ARBITRARY, SINGLE
from cudf_polars.lower.physical import Estimate, SortKey, Stream
from cudf_polars.lower.ranges import boundary_frame, comparable, destination, is_comparable
from cudf_polars.lower.shares import is_even
from cudf_polars.plan.columns import keep_columns
from cudf_polars.plan.nodes import MergeSorted, Node

__all__ = ["lower_merge_sorted"]

_SIDE = "__rr_side"
_NO_NULLS, _NULLS_FIRST, _NULLS_LAST, _UNSORTED = range(4)
"""How many rows the verdict on the order of both tables has."""
_SAMPLES = 64
"""Rows of the sample of each rank and table."""
_PLACE, _ROWS = "__rr_place", "__rr_rows"
"""Columns of what is looked at: which row it is, and how many a row of the sample stands for."""
_FIRST, _END, _SAMPLE = range(3)
"""The first row of a rank's part; the other ones that say whether the parts are in order; a row of the sample."""
_FLAGS = ("__rr_nulls_first", "__rr_nulls_last", "__rr_no_nulls")
"""Columns of what is looked at: whether all rows of a rank's part are sorted so."""


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
    in_partitions = builder.settings.partitions > 1
    inputs = [
        stream
        if stream.rereadable and in_partitions
        else builder.materialize(stream, "its order is looked at first", shared=True)
        for stream in map(builder.disjoint, inputs)
    ]
    seen = [
        builder.materialize(_looked_at(ctx, node, stream), "order and samples of a table", shared=True)
        for stream in inputs
    ]
    order = builder.count(builder.materialize(_verdict(ctx, node, seen), "to choose how to merge")).rows
    if order >= _UNSORTED:
        return ctx.on_one_rank(node, inputs, Gathered.NO_FORM, "its inputs are not sorted in one order")
    nulls_last = order == _NULLS_LAST
    keys = [SortKey(key, descending=False, nulls_last=nulls_last) for key in node.key]
    # Polars merges nulls that come last to other places, does not keep their order, and compares codes of categories.
    is_merged_by_polars = order == _NO_NULLS or (order == _NULLS_FIRST and not node.maintain_order)
    of_categories = any(isinstance(node.schema[key], pl.Categorical) for key in node.key)
    if is_merged_by_polars and not of_categories and not in_partitions:
        boundaries = _boundaries(ctx, node, seen, keys)
        parts = [builder.by_ranges(stream, keys, boundaries) for stream in inputs]
        return ctx.apply(node, parts, partitioning=ARBITRARY, ordered=True)
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


def _looked_at(ctx: Context, node: MergeSorted, stream: Stream) -> Stream:
    """Return some rows of each rank's part of a table: those at its ends, and a sample; beside how they are sorted."""
    keys = [comparable(key, node.schema[key]).alias(str(n)) for n, key in enumerate(node.key)]
    columns = [pl.col(str(n)) for n in range(len(keys))]
    flags = [order.alias(flag) for order, flag in zip(_order(columns), _FLAGS, strict=True)]
    some = pl.min_horizontal(pl.len(), pl.lit(_SAMPLES, pl.UInt32))
    places = pl.int_range(some, dtype=pl.UInt32) * pl.len() // some

    def look(frames: Sequence[pl.LazyFrame], _: int) -> pl.LazyFrame:
        rows = frames[0].select(keys)
        ends = [
            reduce(pl.Expr.append, (c.first(), c.drop_nulls().first(), c.drop_nulls().last(), c.last()))
            for c in columns
        ]
        which = pl.lit(pl.Series([_FIRST, _END, _END, _END], dtype=pl.UInt8)).alias(_PLACE)
        at_ends = rows.select(*ends, which, *flags, pl.len().cast(pl.Float64).alias(_ROWS))
        sample = rows.select(
            *(column.gather(places) for column in columns),
            pl.lit(_SAMPLE, pl.UInt8).alias(_PLACE),
            *flags,
            (pl.len() / some).alias(_ROWS),
        )
        return pl.concat([at_ends.filter(pl.col(_ROWS) > 0), sample])

    types = pl.LazyFrame(schema=dict(node.schema)).select(keys).collect_schema()
    count = float((_SAMPLES + 4) * ctx.builder.settings.nranks)
    return ctx.builder.local(
        "LOOK AT order and samples",
        [stream],
        look,
        schema={**types, _PLACE: pl.UInt8(), **dict.fromkeys(_FLAGS, pl.Boolean()), _ROWS: pl.Float64()},
        partitioning=ARBITRARY,
        estimate=Estimate(count, 16 * count),
    )


def _verdict(ctx: Context, node: MergeSorted, seen: Sequence[Stream]) -> Stream:
    """Return a stream of as many rows as the order of both tables says, on rank 0."""
    builder = ctx.builder
    columns = [pl.col(str(n)) for n in range(len(node.key))]

    def side(frame: pl.LazyFrame) -> pl.LazyFrame:
        ends = frame.filter(pl.col(_PLACE) != _SAMPLE)
        order = [
            (own & pl.col(flag).all()).alias(flag) for own, flag in zip(_order(columns), _FLAGS, strict=True)
        ]
        # Nulls alone are at both ends.
        some = pl.any_horizontal(c.count() > 0 for c in columns) | (pl.len() == 0)
        return ends.select(each & some for each in order)

    def verdict(frames: Sequence[pl.LazyFrame], _: int) -> pl.LazyFrame:
        both = pl.concat([side(frame) for frame in frames]).select(pl.all().all())
        first, last, none = map(pl.col, _FLAGS)
        rows = (
            pl.when(first & none)
            .then(_NO_NULLS)
            .when(first)
            .then(_NULLS_FIRST)
            .when(last)
            .then(_NULLS_LAST)
            .otherwise(_UNSORTED)
        )
        numbers = pl.LazyFrame({"row": range(_UNSORTED)}, schema={"row": pl.Int32})
        counted = numbers.join(both.select(rows.alias("rows")), how="cross")
        return counted.filter(pl.col("row") < pl.col("rows")).select("row")

    return builder.local(
        "LOOK AT the order of both tables",
        [builder.gather(stream) for stream in seen],
        verdict,
        schema={"row": pl.Int32()},
        partitioning=SINGLE,
        estimate=Estimate(0.0, 0.0),
    )


def _order(keys: Sequence[pl.Expr]) -> list[pl.Expr]:
    """Return whether rows are in ascending order of keys with nulls first; with nulls last; whether none is null."""
    none = pl.all_horizontal(key.null_count() == 0 for key in keys)
    if len(keys) == 1:
        return [keys[0].is_sorted(), keys[0].is_sorted(nulls_last=True), none]
    # Where rows are compared key by key, nulls may stand anywhere.
    in_order = pl.lit(True)
    for key in reversed(keys):
        before = key.shift(1)
        in_order = (before < key) | ((before == key) & in_order)
    return [in_order.fill_null(True).all() & none] * 2 + [none]


# --- the ranges of the ranks ---------------------------------------------------------------------------------


def _boundaries(ctx: Context, node: MergeSorted, seen: Sequence[Stream], keys: Sequence[SortKey]) -> Stream:
    """Return the first keys of the ranges of all ranks but the first, on all ranks.

    They are those of the left table's parts, whose rows then stay; or they split both tables evenly, if a rank would
    have too many.
    """
    builder = ctx.builder
    nranks = builder.settings.nranks
    names = [str(n) for n in range(len(keys))]
    types = {name: seen[0].schema[name] for name in names}
    by_name = [
        SortKey(name, descending=False, nulls_last=key.nulls_last)
        for name, key in zip(names, keys, strict=True)
    ]

    def choose(rows: pl.DataFrame) -> pl.DataFrame:
        sample = rows.filter(pl.col(_PLACE) == _SAMPLE).select(*names, _ROWS)
        starts = rows.filter(pl.col(_PLACE) == _FIRST, pl.col(_SIDE) == 0).select(names)[1:]
        rank = destination(by_name, starts, types).alias(_PLACE)
        shares = sample.group_by(rank).agg(pl.col(_ROWS).sum())[_ROWS].to_list()
        if starts.height == nranks - 1 and is_even(shares, nranks):
            return starts
        return boundary_frame(sample, keys, _ROWS, nranks)

    def build(frames: Sequence[pl.LazyFrame], _: int) -> pl.LazyFrame:
        sides = [frame.with_columns(pl.lit(n, pl.UInt8).alias(_SIDE)) for n, frame in enumerate(frames)]
        return pl.concat(sides).map_batches(choose, schema=types)

    chosen = builder.local(
        "BOUNDARIES of the ranks",
        [builder.gather(stream) for stream in seen],
        build,
        schema=types,
        partitioning=SINGLE,
        ordered=True,
        estimate=Estimate(float(nranks), 32.0 * nranks),
    )
    return builder.materialize(builder.broadcast(chosen), "first keys of the ranks", shared=True)
