"""Aggregations over windows of time, or of an index: ``group_by_dynamic`` and ``LazyFrame.rolling``.

With keys, the rows of a key meet on one rank. Without, each rank computes the windows of its own rows: it gets the rows
around its own that these windows reach, and leaves to the other ranks the windows that belong to them.
"""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from cudf_polars.lower.aggregates import ORDER
from cudf_polars.lower.context import Context
from cudf_polars.lower.durations import Reach, at_most, index_number
from cudf_polars.lower.estimates import AGGREGATED
from cudf_polars.lower.gathered import Gathered
from cudf_polars.lower.grouping import key_columns
from cudf_polars.lower.partitioning import ARBITRARY
from cudf_polars.lower.physical import Carried, Materialize, SortKey, Stream
from cudf_polars.lower.ranges import is_comparable
from cudf_polars.plan.expressions import Agg, Column, NamedExpr
from cudf_polars.plan.nodes import GroupBy
from cudf_polars.plan.properties import columns, is_elementwise

__all__ = ["lower_time_windows", "reach_of"]

_OWN = "__rr_own"
"""Whether a row (Boolean) is the rank's own; of a window, whether its first row is."""
_PART = "__rr_part"
"""What a row of a summary (UInt8) is for: one of the three below."""
_FIRST, _BEFORE, _BEHIND = 0, 1, 2
"""The first row of all, the rows for those who come behind, and the rows for those who come before."""
_NUMBER = "__rr_number"
_LOW, _HIGH = "__rr_low", "__rr_high"
_LENGTH = "__rr_length"


def lower_time_windows(ctx: Context, node: GroupBy) -> Stream:
    """Return the stream of a node with ``dynamic`` or ``rolling``."""
    child = ctx.lower(node.child)
    if ctx.builder.is_whole(child):
        return ctx.apply(node, [child], estimate=child.estimate.scaled(AGGREGATED))
    # Of a constant as a key, Polars has one value, not one for each row.
    if not all(is_elementwise(key.expr) and columns(key.expr) for key in node.keys):
        return ctx.on_one_rank(node, [child], Gathered.NOT_ROWWISE_KEYS)
    used = {_index(node), *(name for expr in node.expressions for name in columns(expr))}
    child = ctx.builder.select(child, [name for name in child.schema if name in used])
    plain = replace(node, slice=None)
    result = _of_groups(ctx, plain, child) if node.keys else _of_table(ctx, plain, child)
    return ctx.builder.slice(result, node.slice)


def _index(node: GroupBy) -> str:
    options = node.dynamic or node.rolling
    assert options is not None
    return options.index_column


# -- with keys ---------------------------------------------------------------------------------------------------


def _of_groups(ctx: Context, node: GroupBy, child: Stream) -> Stream:
    """Send the rows by their keys, and give the groups in the order that Polars has.

    Groups of nested keys, Categorical ones and texts of 254 bytes and more are in another order.
    """
    builder = ctx.builder
    keyed, names = key_columns(ctx, child, [key.expr for key in node.keys], "__rr_key")
    keys = tuple(
        NamedExpr(key.name, Column(name, dtype=key.expr.dtype))
        for key, name in zip(node.keys, names, strict=True)
    )
    moved = builder.sort_locally(builder.shuffle(builder.attach_order(keyed), names), [ORDER])
    groups = ctx.apply(
        replace(node, keys=keys),
        [moved],
        partitioning=ARBITRARY,
        ordered=True,
        estimate=child.estimate.scaled(AGGREGATED),
    )
    if not (ctx.ordered(node) or node.slice is not None):
        return groups
    by: list[SortKey] = []
    lengths: list[pl.Expr] = []
    for key in node.keys:
        dtype, name = groups.schema[key.name], f"{_LENGTH}{len(lengths)}"
        texts = dtype in (pl.String, pl.Binary)
        if texts:
            # Polars compares how it writes keys: of text the length first, and more than any length for null.
            value = pl.col(key.name)
            size = value.str.len_bytes() if dtype == pl.String else value.bin.size("b").cast(pl.UInt32)
            lengths.append(size.alias(name))
            by.append(SortKey(name, descending=False, nulls_last=True))
        if is_comparable(dtype):
            by.append(SortKey(key.name, descending=False, nulls_last=texts))
    # Of one group, the windows are in their order on one rank.
    by.append(SortKey(ORDER, descending=False, nulls_last=False))
    columns_of_keys = [key.column for key in by]
    nulls_last = [key.nulls_last for key in by]
    ordered = builder.range_sort(
        builder.attach_order(builder.with_columns(groups, lengths, "LENGTHS OF KEYS")),
        by,
        lambda frame: frame.sort(columns_of_keys, nulls_last=nulls_last),
    )
    return builder.select(ordered, list(node.schema))


# -- of the whole table ------------------------------------------------------------------------------------------


def reach_of(node: GroupBy, dtype: pl.DataType) -> Reach | None:
    """Return how far the windows of a row reach; ``None`` if it is not known.

    Parameters
    ----------
    dtype
        The type of the index column.
    """
    if node.rolling is not None:
        return Reach.of_window(node.rolling.offset, node.rolling.period, dtype)
    assert node.dynamic is not None
    period = at_most(node.dynamic.period, dtype)
    # That a window has rows before is seen by the last of them.
    return None if period is None else Reach(0, period)


def _of_table(ctx: Context, node: GroupBy, child: Stream) -> Stream:
    name = _index(node)
    reach = reach_of(node, child.schema[name])
    if reach is None:
        return ctx.on_one_rank(node, [child], Gathered.TIME_WINDOWS)
    rows, small = _kept(ctx, child)
    if small:
        return ctx.apply(node, [ctx.builder.gather(rows)], estimate=child.estimate.scaled(AGGREGATED))
    if _is_wide(ctx, rows, name, reach):
        return ctx.on_one_rank(node, [rows], Gathered.TIME_WINDOWS, "as wide as a rank's part of the table")
    return _windows_of_parts(ctx, node, rows, reach)


def _kept(ctx: Context, child: Stream) -> tuple[Materialize, bool]:
    builder = ctx.builder
    rows = builder.materialize(child, "read for the width of windows, too", shared=True)
    size = builder.findings.measure(rows, None)
    return rows, size.nbytes <= builder.settings.small_limit


def _is_wide(ctx: Context, rows: Materialize, name: str, reach: Reach) -> bool:
    """Whether a rank would get about as many rows of others as there are: then it is cheaper that one has all.

    Where small tables are distributed all the same, they are here.
    """
    builder = ctx.builder
    if not builder.settings.small_limit:
        return False
    place = index_number(pl.col(name))
    # The rows are in this order; where they are not, the step that needs it says so.
    ends = [place.first().cast(pl.Float64).alias(_LOW), place.last().cast(pl.Float64).alias(_HIGH)]
    bounds = builder.local(
        "BOUNDS",
        [rows],
        lambda frames, _: frames[0].select(ends),
        ordered=False,
        partitioning=ARBITRARY,
    )
    span = pl.col(_HIGH).max() - pl.col(_LOW).min()
    most = float(reach.before + reach.behind) * builder.settings.nranks
    wide = builder.local(
        "WIDTH",
        [builder.broadcast(bounds)],
        lambda frames, _: frames[0].select(span.alias(_HIGH)).filter(pl.col(_HIGH) < most),
        ordered=False,
    )
    return builder.count(builder.materialize(wide, "width of windows")).rows > 0


def _windows_of_parts(ctx: Context, node: GroupBy, rows: Stream, reach: Reach) -> Stream:
    name, schema = _index(node), dict(rows.schema)
    is_dynamic = node.dynamic is not None
    wide = {**schema, _OWN: pl.Boolean()}
    if is_dynamic:
        own = NamedExpr(_OWN, Agg("first", Column(_OWN, dtype=pl.Boolean()), dtype=pl.Boolean()))
        node = replace(node, aggs=(*node.aggs, own), schema={**node.schema, _OWN: pl.Boolean()})
    names = [column for column in node.schema if column != _OWN]
    compute = ctx.rebuilt(node, [wide])

    def part(frame: pl.DataFrame, kind: int) -> pl.DataFrame:
        return frame.with_columns(pl.lit(kind, dtype=pl.UInt8).alias(_PART))

    def ends(first: pl.DataFrame, before: pl.DataFrame, behind: pl.DataFrame) -> pl.DataFrame:
        # Where one is unknown, the rows are not sorted, which their own rank finds.
        nearest = index_number(pl.col(name)).last() - reach.before
        farthest = index_number(pl.col(name)).first() + reach.behind
        last = before.tail(1) if is_dynamic else before.filter(index_number(pl.col(name)) >= nearest)
        return pl.concat(
            [
                part(first.head(1 if is_dynamic else 0), _FIRST),
                part(last, _BEFORE),
                part(behind.filter(index_number(pl.col(name)) <= farthest), _BEHIND),
            ]
        )

    def rows_of(summary: pl.DataFrame, kind: int) -> pl.DataFrame:
        return summary.filter(pl.col(_PART) == kind).drop(_PART)

    def apply(mine: pl.LazyFrame, before: pl.DataFrame, behind: pl.DataFrame) -> pl.LazyFrame:
        strangers = [rows_of(before, _FIRST).head(1), rows_of(before, _BEFORE), rows_of(behind, _BEHIND)]
        first, last, next_ = (frame.lazy().with_columns(pl.lit(False).alias(_OWN)) for frame in strangers)
        every = pl.concat([first, last, mine.with_columns(pl.lit(True).alias(_OWN)), next_], how="vertical")
        result = compute([every])
        if is_dynamic:
            return result.filter(pl.col(_OWN)).select(names)
        # A window a row, in the order of the rows.
        count = [frame.height for frame in strangers]
        number, start, stop = pl.col(_NUMBER), sum(count[:2]), count[2]
        return (
            result.with_row_index(_NUMBER)
            .filter(number >= start, number.cast(pl.Int64) < pl.len().cast(pl.Int64) - stop)
            .select(names)
        )

    scale = AGGREGATED if is_dynamic else 1.0
    # Polars checks each rank's own rows, of windows for rows.
    ordered = rows if is_dynamic else ctx.builder.checked_order(rows, rows, pl.col(name), name, "rolling")
    return Carried(
        inputs=(ordered,),
        schema={column: node.schema[column] for column in names},
        partitioning=ARBITRARY,
        ordered=True,
        estimate=rows.estimate.scaled(scale),
        summary={**schema, _PART: pl.UInt8()},
        summarize=lambda frame: ends(frame, frame, frame),
        merge=lambda summaries: ends(*(rows_of(summaries, kind) for kind in (_FIRST, _BEFORE, _BEHIND))),
        apply=apply,
        title=f"TIME WINDOWS over {name}, with the rows of other ranks that they reach",
    )
