"""Aggregations over groups, and distinct rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import polars as pl

from cudf_polars.lower.aggregates import DISTINCT, ORDER, Decomposition, decompose
from cudf_polars.lower.context import Context, node_title
from cudf_polars.lower.estimates import AGGREGATED, GroupCount, row_width
from cudf_polars.lower.gathered import Gathered
from cudf_polars.lower.group_counts import count_groups
from cudf_polars.lower.partitioning import project
from cudf_polars.lower.physical import Local, Schema, Stream
from cudf_polars.lower.tallies import Tallies
from cudf_polars.plan.expressions import Agg, Column, Expr, NamedExpr
from cudf_polars.plan.nodes import Distinct, GroupBy, Node
from cudf_polars.plan.properties import columns, groups_depend_on_order, is_elementwise
from cudf_polars.plan.rebuild_expressions import to_expr

__all__ = ["key_columns", "lower_distinct", "lower_group_by", "outputs_of"]

_PARTIAL_PAYS = 0.5
"""Groups per row of a rank, up to which partial aggregates are sent in place of rows."""
_FEW_GROUPS = 0.25
"""The part of a chunk's bytes that partial aggregates may take if all rows of a rank are aggregated in one run."""
_REPEATED = 16
"""Each chunk of rows gives partial groups of its own. If the final groups fit ``small_limit``, partial ones of up to so
many times its bytes are gathered on rank 0.
"""
_POSITION = "__rr_position"
"""The position of a group's first row."""


def key_columns(ctx: Context, stream: Stream, keys: Sequence[Expr], prefix: str) -> tuple[Stream, list[str]]:
    """Return ``stream`` with each key as a column, and the columns' names; computed keys are added to it."""
    names, added = [], []
    for position, key in enumerate(keys):
        if isinstance(key, Column):
            names.append(key.name)
        else:
            names.append(f"{prefix}{position}")
            added.append(to_expr(key).alias(names[-1]))
    return ctx.builder.with_columns(stream, added, "KEYS"), names


def lower_group_by(ctx: Context, node: Node) -> Stream:
    """Aggregate where the rows are, send the partial results by their keys, and finish."""
    assert isinstance(node, GroupBy)
    child = ctx.lower_rows(node)
    if ctx.builder.is_whole(child):
        return ctx.apply(node, [child], estimate=child.estimate.scaled(AGGREGATED))
    if not all(is_elementwise(key.expr) for key in node.keys):
        return ctx.on_one_rank(node, [child], Gathered.NOT_ROWWISE_KEYS)
    ordered = node.maintain_order and (ctx.ordered(node) or node.slice is not None)
    plain = replace(node, slice=None, maintain_order=ordered)
    keys = [key.expr.name for key in node.keys if isinstance(key.expr, Column)]
    if not ordered and keys and child.partitioning.collocates(keys):
        return ctx.builder.slice(_groups_in_place(ctx, plain, child), node.slice)
    split = decompose(node.aggs)
    if split is None:
        return ctx.builder.slice(_whole_groups(ctx, plain, child), node.slice)
    exprs = [key.expr for key in node.keys]
    if split.distinct is not None:
        exprs.append(split.distinct)
    count = count_groups(ctx, node.child, child.estimate.rows, exprs)
    if _partial_pays(ctx, child, count):
        result = _two_phases(ctx, plain, child, split, count)
    else:
        result = _whole_groups(ctx, plain, child)
    return ctx.builder.slice(result, node.slice)


def _groups_in_place(ctx: Context, node: GroupBy, child: Stream) -> Stream:
    """Aggregate groups that are whole on their ranks."""
    renames: dict[str, list[str]] = {}
    for key in node.keys:
        if isinstance(key.expr, Column):
            renames.setdefault(key.expr.name, []).append(key.name)
    return ctx.apply(
        node,
        [child],
        partitioning=project(child.partitioning, renames),
        ordered=node.maintain_order,
        estimate=child.estimate.scaled(AGGREGATED),
    )


def _whole_groups(ctx: Context, node: GroupBy, child: Stream) -> Stream:
    """Send the rows themselves by their keys, because some aggregate needs whole groups."""
    used = {name for expr in node.expressions for name in columns(expr)}
    child = ctx.builder.select(child, [name for name in child.schema if name in used])
    child, names = key_columns(ctx, child, [key.expr for key in node.keys], "__rr_key")
    keyed = replace(
        node,
        keys=tuple(
            NamedExpr(key.name, Column(name, dtype=key.expr.dtype))
            for key, name in zip(node.keys, names, strict=True)
        ),
    )
    positioned = node.maintain_order or groups_depend_on_order(agg.expr for agg in node.aggs)
    if positioned:
        child = ctx.builder.attach_order(child)
    moved = ctx.builder.shuffle(child, names)
    if positioned:
        moved = ctx.builder.sort_locally(moved, [ORDER])
    if not node.maintain_order:
        return _groups_in_place(ctx, keyed, moved)
    first = NamedExpr(_POSITION, Agg("min", Column(ORDER, dtype=pl.UInt64()), dtype=pl.UInt64()))
    numbered = replace(
        keyed,
        aggs=(*keyed.aggs, first),
        schema={**node.schema, _POSITION: pl.UInt64()},
        maintain_order=False,
    )
    return ctx.builder.restore_order(_groups_in_place(ctx, numbered, moved), [_POSITION])


def _left_by_partial(ctx: Context, child: Stream, count: GroupCount) -> float:
    """Return the part of the rows that is left when each rank has aggregated its own, or each chunk of them."""
    settings = ctx.builder.settings
    rows = child.estimate.rows / settings.nranks
    if settings.partitions > 1:
        rows = min(rows, settings.chunk_bytes / row_width(child.schema))
    return count.per_row(rows)


def _partial_pays(ctx: Context, child: Stream, count: GroupCount | None) -> bool:
    """Whether to aggregate rows, or to drop doubles, before they move.

    Of nearly unique keys it costs as much as what follows, and saves nothing.
    """
    return count is None or _left_by_partial(ctx, child, count) <= _PARTIAL_PAYS


def _are_few(ctx: Context, child: Stream, schema: Schema, count: GroupCount) -> bool:
    """Whether aggregating all rows of a rank takes little memory, so that chunks of rows would save none."""
    settings = ctx.builder.settings
    groups = count.groups(child.estimate.rows / settings.nranks)
    nbytes = groups * row_width(schema)
    return groups <= settings.groups_at_once and nbytes <= _FEW_GROUPS * settings.chunk_bytes


def _two_phases(
    ctx: Context, node: GroupBy, child: Stream, split: Decomposition, count: GroupCount | None
) -> Stream:
    builder = ctx.builder
    if split.needs_order or node.maintain_order:
        child = builder.attach_order(child)
    keys = [to_expr(key.expr).alias(key.name) for key in node.keys]
    names = [key.name for key in node.keys]
    partial, final = list(split.partial), list(split.final)
    if node.maintain_order:
        partial.append(pl.col(ORDER).min().alias(_POSITION))
        final.append(pl.col(_POSITION).min())
    if split.distinct is not None:
        keys.append(to_expr(split.distinct).alias(DISTINCT))

    def first(frames: Sequence[pl.LazyFrame], _: int) -> pl.LazyFrame:
        return frames[0].group_by(keys).agg(partial)

    def second(frames: Sequence[pl.LazyFrame], _: int) -> pl.LazyFrame:
        return frames[0].group_by(names).agg(final)

    few = AGGREGATED if count is None else count.per_row(child.estimate.rows)
    several = few if count is None else _left_by_partial(ctx, child, count)
    renames: dict[str, list[str]] = {}
    for key in node.keys:
        if isinstance(key.expr, Column):
            renames.setdefault(key.expr.name, []).append(key.name)
    schema = first([pl.LazyFrame(schema=dict(child.schema))], 0).collect_schema()
    in_chunks = count is None or not _are_few(ctx, child, schema, count)
    direct = None
    # The tallies have neither the further key of distinct values nor the position of a group.
    if in_chunks and builder.settings.partitions > 1 and split.distinct is None and not node.maintain_order:
        direct = Tallies.of(node.keys, split.tallies)
    parts = builder.local(
        f"PARTIAL {node_title(node)}",
        [child if direct is None else builder.local("VALUES", [child], direct.values)],
        first if direct is None else direct.groups,
        schema=schema,
        partitioning=project(child.partitioning, renames),
        ordered=False,
        estimate=child.estimate.scaled(several),
        of_any_rows=in_chunks,
    )
    parts.tallies = direct
    limit = builder.settings.small_limit
    if count is not None and in_chunks and count.groups(child.estimate.rows) * row_width(schema) <= limit:
        limit *= _REPEATED
    moved = builder.gather_or_shuffle(parts, names, "partial groups", limit)
    groups = builder.local(
        f"FINAL {node_title(node)}", [moved], second, ordered=False, estimate=child.estimate.scaled(few)
    )
    result = outputs_of(ctx, groups, names, split.outputs, node.schema, keep=node.maintain_order)
    return builder.restore_order(result, [_POSITION]) if node.maintain_order else result


def outputs_of(
    ctx: Context,
    groups: Stream,
    names: Sequence[str],
    outputs: Sequence[NamedExpr],
    schema: Schema,
    *,
    keep: bool = False,
) -> Local:
    """Return the outputs over the final aggregates, in the types that Polars gives them."""
    exprs = [pl.col(name) for name in names]
    exprs += [to_expr(output.expr).cast(schema[output.name]).alias(output.name) for output in outputs]
    if keep:
        exprs.append(pl.col(_POSITION))
    out = {**schema, _POSITION: pl.UInt64()} if keep else dict(schema)
    order = list(out)
    return ctx.builder.local(
        "OUTPUTS", [groups], lambda frames, _: frames[0].select(exprs).select(order), schema=out
    )


def lower_distinct(ctx: Context, node: Node) -> Stream:
    """Drop doubles where the rows are, send what is left by the compared columns, and drop doubles again."""
    assert isinstance(node, Distinct)
    child = ctx.lower_rows(node)
    if ctx.builder.is_whole(child):
        return ctx.apply(node, [child])
    subset = list(node.subset if node.subset is not None else child.schema)
    ordered = node.maintain_order and (ctx.ordered(node) or node.slice is not None)
    plain = replace(node, slice=None, maintain_order=ordered)
    if child.partitioning.collocates(subset):
        result: Stream = ctx.apply(plain, [child], ordered=ordered)
    else:
        result = _distinct_over_ranks(ctx, plain, child, subset)
    return ctx.builder.slice(result, node.slice)


def _distinct_over_ranks(ctx: Context, node: Distinct, child: Stream, subset: list[str]) -> Stream:
    builder = ctx.builder
    positioned = node.maintain_order or node.keep in ("first", "last")
    if positioned:
        child = builder.attach_order(child)
        # Compared columns must not include the position.
        node = replace(node, subset=tuple(subset), schema={**node.schema, ORDER: pl.UInt64()})
    keys = [Column(name, dtype=child.schema[name]) for name in subset]
    # A rank cannot know that a row is the only one of its kind, so ``none`` sends them all.
    if node.keep != "none" and _partial_pays(
        ctx, child, count_groups(ctx, node.child, child.estimate.rows, keys)
    ):
        child = ctx.apply(
            replace(node, maintain_order=positioned), [child], ordered=positioned, of_any_rows=True
        )
    moved = builder.gather_or_shuffle(child, subset, "rows to compare")
    if positioned:
        moved = builder.sort_locally(moved, [ORDER])
    result: Stream = ctx.apply(replace(node, maintain_order=positioned), [moved], ordered=positioned)
    if not positioned:
        return result
    if node.maintain_order:
        return builder.restore_order(result, [ORDER])
    return builder.select(result, [name for name in result.schema if name != ORDER])
