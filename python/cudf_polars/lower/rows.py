"""Steps that keep or drop rows and compute columns: projections, filters, slices, concatenations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import polars as pl

from cudf_polars.lower.context import Context, is_row_pipeline
from cudf_polars.lower.estimates import FILTERED, row_width
from cudf_polars.lower.grouping import aggregate_table
from cudf_polars.lower.physical import (
    Estimate,
    GlobalRowIndex,
    GlobalSlice,
    OrderedConcat,
    Stream,
    WithScalars,
)
from cudf_polars.lower.scans import scan_in_sequence
from cudf_polars.lower.shape import contains_window, is_rowwise_step, replace_parts
from cudf_polars.lower.spread import ARBITRARY, REPLICATED, SINGLE, Placement, Spread, project
from cudf_polars.lower.windows import lower_windows
from cudf_polars.plan.expressions import Agg, Column, Expr, Function, Literal, NamedExpr
from cudf_polars.plan.nodes import (
    Filter,
    HConcat,
    HintSorted,
    HStack,
    Node,
    RowIndex,
    Select,
    SimpleProjection,
    Slice,
    Union,
)
from cudf_polars.plan.properties import is_elementwise, is_scalar

__all__ = [
    "lower_expressions",
    "lower_hconcat",
    "lower_one_to_one",
    "lower_row_index",
    "lower_slice",
    "lower_union",
    "lower_unpivot",
    "slice_stream",
]


# Polars writes "to the end" as the largest length of its index type.
_OPEN_END = 2**32 - 1


def lower_one_to_one(ctx: Context, node: Node) -> Stream:
    """Do on each rank what works row by row, or list by list."""
    (child,) = (ctx.lower(child) for child in node.children)
    if isinstance(node, HintSorted) and not ctx.builder.is_whole(child):
        # The ranks' parts of sorted rows are sorted; after a shuffle nothing is. The hint only saves time.
        return child
    names = {name: [name] for name in node.schema}
    spread = child.spread if isinstance(node, SimpleProjection) else _changed_only(child.spread, node)
    return ctx.apply(node, [child], spread=project(spread, names))


def _changed_only(spread: Spread, node: Node) -> Spread:
    """Return ``spread`` if the columns that ``node`` replaces are no part of it."""
    changed = set(getattr(node, "columns", ()))
    if any(key & changed for key in spread.keys):
        return ARBITRARY
    return spread


def lower_expressions(ctx: Context, node: Node) -> Stream:
    """Lower ``select``, ``with_columns`` and ``filter``: row-wise, with scalars of the table, or with windows."""
    assert isinstance(node, Select | HStack | Filter)
    if isinstance(node, Select) and all(is_scalar(expr) for expr in node.expressions):
        return _lower_scalars(ctx, node)
    if not all(map(is_elementwise, node.expressions)):
        outer = [scalar for expr in node.expressions for scalar in _scalars(expr)]
        if outer:
            return _with_scalars(ctx, node, outer)
        child = ctx.lower(node.child)
        if not ctx.builder.is_whole(child):
            if any(map(contains_window, node.expressions)):
                result = lower_windows(ctx, node, child)
                if result is not None:
                    return result
            return ctx.on_one_rank(node, [child], "an expression looks at other rows")
        return _apply_expressions(ctx, node, child)
    return _apply_expressions(ctx, node, ctx.lower(node.child))


def _apply_expressions(ctx: Context, node: Select | HStack | Filter, child: Stream) -> Stream:
    if isinstance(node, Filter):
        return ctx.apply(node, [child], estimate=child.estimate.scaled(FILTERED))
    renames: dict[str, list[str]] = {}
    if isinstance(node, HStack):
        replaced = {output.name for output in node.exprs}
        renames = {name: [name] for name in child.schema if name not in replaced}
    for output in node.exprs:
        if isinstance(output.expr, Column):
            renames.setdefault(output.expr.name, []).append(output.name)
    return ctx.apply(
        node,
        [child],
        spread=project(child.spread, renames),
        estimate=Estimate(child.estimate.rows, child.estimate.rows * row_width(node.schema)),
    )


def _lower_scalars(ctx: Context, node: Select) -> Stream:
    """Aggregate the whole table to one row."""
    if all(isinstance(expr, Literal) for expr in node.expressions):
        # Constants do not depend on the rows at all.
        child = ctx.builder.gather(ctx.lower(node.child))
        return ctx.apply(node, [child], estimate=Estimate(1.0, 64.0))
    child = ctx.lower(node.child)
    if ctx.builder.is_whole(child):
        return ctx.apply(node, [child], estimate=Estimate(1.0, 64.0))
    result = aggregate_table(ctx, child, node.exprs, node.schema) or _split_scalars(ctx, node, child)
    if result is not None:
        return result
    inner = [scalar for expr in node.expressions for scalar in _inner_scalars(expr)]
    if inner:
        return _with_scalars(ctx, node, inner)
    return ctx.on_one_rank(node, [child], "an aggregate has no partial form")


def _inner_scalars(expr: Expr) -> list[Expr]:
    """Return the aggregates of the table that the aggregates in ``expr`` are computed from."""
    if isinstance(expr, Agg | Function) and not is_rowwise_step(expr):
        return [scalar for child in expr.children for scalar in _scalars(child)]
    return [scalar for child in expr.children for scalar in _inner_scalars(child)]


def _split_scalars(ctx: Context, node: Select, child: Stream) -> Stream | None:
    """Aggregate each output by itself and put the results side by side; ``None`` if one cannot be."""
    if len(node.exprs) == 1:
        return None
    held = ctx.builder.hold(child, "read by several aggregates", shared=True)
    parts = []
    for output in node.exprs:
        schema = {output.name: node.schema[output.name]}
        part = aggregate_table(ctx, held, [output], schema)
        if part is None:
            return None
        parts.append(part)
    return _side_by_side(ctx, parts, node)


def _side_by_side(ctx: Context, parts: Sequence[Stream], node: Node) -> Stream:
    return ctx.builder.local(
        "SIDE BY SIDE",
        [ctx.builder.gather(part) for part in parts],
        lambda frames, _: pl.concat(list(frames), how="horizontal"),
        schema=node.schema,
        spread=SINGLE,
        estimate=Estimate(1.0, row_width(node.schema)),
    )


def _scalars(expr: Expr) -> list[Expr]:
    """Return the outermost parts of ``expr`` that are one value for the whole table, through row-wise steps only."""
    if isinstance(expr, Literal):
        return []
    if is_scalar(expr):
        return [expr]
    if not is_rowwise_step(expr):
        return []
    return [scalar for child in expr.children for scalar in _scalars(child)]


def _with_scalars(ctx: Context, node: Select | HStack | Filter, scalars: Sequence[Expr]) -> Stream:
    """Compute the table's scalars first, give them to every rank, and go on with them as constants."""
    distinct = list(dict.fromkeys(scalars))
    names = {scalar: f"__rr_scalar{i}" for i, scalar in enumerate(distinct)}
    if any(scalar.dtype is None for scalar in distinct):
        return ctx.on_one_rank(node, [ctx.lower(node.child)], "an aggregate of unknown type")
    schema = {name: scalar.dtype for scalar, name in names.items() if scalar.dtype is not None}
    outputs = tuple(NamedExpr(name, scalar) for scalar, name in names.items())
    if is_row_pipeline(node.child):
        main, side = ctx.lower(node.child), ctx.lower(node.child)
    else:
        child = ctx.lower(node.child)
        main = side = ctx.builder.hold(child, "read for its own aggregates", shared=True)
    if ctx.builder.is_whole(main):
        return _apply_expressions(ctx, node, main)
    source = Select(node.child, outputs, schema=schema)
    row = aggregate_table(ctx, side, outputs, schema) or _split_scalars(ctx, source, side)
    if row is None:
        return ctx.on_one_rank(node, [main], "an aggregate has no partial form")
    joined = WithScalars(
        inputs=(main, row),
        schema={**main.schema, **schema},
        spread=main.spread,
        ordered=main.ordered,
        estimate=main.estimate,
    )

    def constant(part: Expr) -> Expr | None:
        name = names.get(part)
        return None if name is None else Column(name, dtype=part.dtype)

    def substitute(expr: Expr) -> Expr:
        return replace_parts(expr, constant)

    new: Select | HStack | Filter
    if isinstance(node, Filter):
        new = replace(node, predicate=substitute(node.predicate), schema=joined.schema)
    else:
        exprs = tuple(output.with_expr(substitute(output.expr)) for output in node.exprs)
        kept = {**node.schema, **schema} if isinstance(node, HStack) else node.schema
        new = replace(node, exprs=exprs, schema=kept)
    rest: Stream | None
    if isinstance(new, Select) and all(map(is_scalar, new.expressions)):
        rest = aggregate_table(ctx, joined, new.exprs, new.schema)
        if rest is None:
            return ctx.on_one_rank(node, [main], "an aggregate has no partial form")
    elif all(map(is_elementwise, new.expressions)):
        rest = _apply_expressions(ctx, new, joined)
    else:
        rest = lower_windows(ctx, new, joined) if any(map(contains_window, new.expressions)) else None
        if rest is None:
            return ctx.on_one_rank(node, [main], "an expression looks at other rows")
    return ctx.builder.select(rest, list(node.schema))


def slice_stream(ctx: Context, stream: Stream, offset: int, length: int | None) -> Stream:
    """Return rows ``offset`` to ``offset + length`` of ``stream``; no rank keeps more than it may need."""
    builder = ctx.builder
    if length is not None and length >= _OPEN_END:
        length = None
    if builder.is_whole(stream):
        return builder.local(
            "SLICE", [stream], lambda frames, _: frames[0].slice(offset, length), schema=stream.schema
        )
    bound = stream
    if offset >= 0 and length is not None:
        stop = offset + length
        bound = builder.local("HEAD", [stream], lambda frames, _: frames[0].head(stop), schema=stream.schema)
    elif offset < 0:
        bound = builder.local(
            "TAIL", [stream], lambda frames, _: frames[0].tail(-offset), schema=stream.schema
        )
    rows = float(length if length is not None else stream.estimate.rows)
    if bound is not stream and offset < 0:
        # The tail of each rank holds the tail of all; the offset still counts from the end.
        rows = min(rows, float(-offset))
    return GlobalSlice(
        inputs=(bound,),
        schema=stream.schema,
        spread=stream.spread,
        ordered=stream.ordered,
        estimate=Estimate(rows, rows * row_width(stream.schema)),
        offset=offset,
        length=length,
    )


def lower_slice(ctx: Context, node: Node) -> Stream:
    """Cut rows by their position over all ranks."""
    assert isinstance(node, Slice)
    return slice_stream(ctx, ctx.lower(node.child), node.offset, node.length)


def lower_row_index(ctx: Context, node: Node) -> Stream:
    """Number rows over all ranks."""
    assert isinstance(node, RowIndex)
    child = ctx.lower(node.child)
    if ctx.builder.is_whole(child):
        return ctx.apply(node, [child])
    return GlobalRowIndex(
        inputs=(child,),
        schema=node.schema,
        spread=child.spread,
        ordered=child.ordered,
        estimate=child.estimate,
        name=node.name,
        offset=node.offset,
    )


def lower_union(ctx: Context, node: Node) -> Stream:
    """Concatenate rank by rank; where order matters, so that the first input's rows come first over all ranks."""
    assert isinstance(node, Union)
    builder = ctx.builder
    ordered = node.maintain_order and (ctx.ordered(node) or node.slice is not None)
    sequence = scan_in_sequence(ctx, node.inputs) if ordered else None
    inputs = sequence or [ctx.lower(child) for child in node.inputs]
    total = Estimate(sum(s.estimate.rows for s in inputs), sum(s.estimate.nbytes for s in inputs))
    placements = {stream.spread.placement for stream in inputs}
    plain = replace(node, slice=None)
    result: Stream
    if placements == {Placement.REPLICATED}:
        result = ctx.apply(plain, inputs, spread=REPLICATED, ordered=ordered, estimate=total)
    else:
        inputs = [builder.disjoint(stream) for stream in inputs]
        if all(stream.spread.placement is Placement.SINGLE for stream in inputs):
            result = ctx.apply(plain, inputs, spread=SINGLE, ordered=ordered, estimate=total)
        elif ordered and sequence is None:
            result = OrderedConcat(
                inputs=tuple(inputs), schema=node.schema, spread=ARBITRARY, ordered=True, estimate=total
            )
        else:
            spreads = {stream.spread for stream in inputs}
            same = spreads.pop() if len(spreads) == 1 else ARBITRARY
            spread = same if same.is_hash() else ARBITRARY
            result = ctx.apply(plain, inputs, spread=spread, ordered=ordered, estimate=total)
    return result if node.slice is None else slice_stream(ctx, result, *node.slice)


def lower_hconcat(ctx: Context, node: Node) -> Stream:
    """Put tables side by side on rank 0: rows belong together by position only."""
    assert isinstance(node, HConcat)
    inputs = [ctx.lower(child) for child in node.inputs]
    if {stream.spread.placement for stream in inputs} == {Placement.REPLICATED}:
        return ctx.apply(node, inputs)
    return ctx.on_one_rank(node, inputs, "rows belong together by position")


def lower_unpivot(ctx: Context, node: Node) -> Stream:
    """Unpivot each rank's rows; the order of the result is not promised by Polars' streaming engine either."""
    (child,) = (ctx.lower(child) for child in node.children)
    return ctx.apply(node, [child], spread=project(child.spread, {}))
