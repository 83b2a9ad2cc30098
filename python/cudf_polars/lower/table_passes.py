"""Aggregates of a whole table: the passes over its rows that compute them, each by one row on rank 0."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import polars as pl

from cudf_polars.lower.aggregates import DISTINCT, Decomposition, decompose, is_row_source
from cudf_polars.lower.context import Context, node_title
from cudf_polars.lower.estimates import row_width
from cudf_polars.lower.gathered import Gathered, named
from cudf_polars.lower.grouping import outputs_of
from cudf_polars.lower.partitioning import SINGLE, project
from cudf_polars.lower.physical import Estimate, Schema, Stream
from cudf_polars.lower.quantiles import is_quantile, quantile_source, sorted_quantiles
from cudf_polars.plan.expressions import Expr, Gather, Literal, NamedExpr
from cudf_polars.plan.nodes import Node
from cudf_polars.plan.properties import columns
from cudf_polars.plan.rebuild_expressions import to_expr, to_exprs

__all__ = ["ONE_ROW", "Pass", "passes_of", "row_of", "schema_of"]

ONE_ROW = Estimate(1.0, 64.0)
"""The size of what they are computed to."""


@dataclass(frozen=True)
class Pass:
    """Aggregates that one pass over the table computes; ``kind`` is how."""

    kind: str
    outputs: tuple[NamedExpr, ...]


def passes_of(outputs: Iterable[NamedExpr]) -> list[Pass]:
    """Sort aggregates by how they are computed: by partial aggregates, distinct values, places, or from all rows."""
    partial, whole, passes = [], [], []
    quantiles: dict[Expr, list[NamedExpr]] = {}
    for output in outputs:
        split = decompose([output], of_table=True)
        if split is None and is_quantile(output.expr):
            quantiles.setdefault(quantile_source(output.expr), []).append(output)
        elif split is None and _is_place(output.expr):
            passes.append(Pass("place", (output,)))
        elif split is None:
            whole.append(output)
        elif split.distinct is not None:
            passes.append(Pass("distinct", (output,)))
        else:
            partial.append(output)
    if partial:
        passes.insert(0, Pass("partial", tuple(partial)))
    passes += [Pass("quantiles", tuple(outputs)) for outputs in quantiles.values()]
    if whole:
        passes.append(Pass("whole", tuple(whole)))
    return passes


def _is_place(expr: Expr) -> bool:
    """Whether ``expr`` is the value at a constant place of values that are made row by row."""
    return (
        isinstance(expr, Gather)
        and expr.scalar
        and isinstance(expr.indices, Literal)
        and isinstance(expr.indices.value, int)
        and is_row_source(expr.child)
    )


def row_of(ctx: Context, node: Node, read: Callable[[], Stream], passes: Sequence[Pass]) -> Stream:
    """Return the outputs of all passes as one row on rank 0."""
    parts = [_PASSES[each.kind](ctx, node, read(), each.outputs) for each in passes]
    return _side_by_side(ctx, parts)


def _side_by_side(ctx: Context, parts: Sequence[Stream]) -> Stream:
    if len(parts) == 1:
        return parts[0]
    schema = {name: dtype for part in parts for name, dtype in part.schema.items()}
    return ctx.builder.local(
        "SIDE BY SIDE",
        [ctx.builder.gather(part) for part in parts],
        lambda frames, _: pl.concat(list(frames), how="horizontal"),
        schema=schema,
        partitioning=SINGLE,
        estimate=Estimate(1.0, row_width(schema)),
    )


def schema_of(outputs: Sequence[NamedExpr]) -> Schema:
    """Return the columns of outputs whose types are known."""
    return {output.name: output.expr.dtype for output in outputs if output.expr.dtype is not None}


def _partial_pass(ctx: Context, node: Node, child: Stream, outputs: Sequence[NamedExpr]) -> Stream:
    """Compute partial aggregates on each rank, and the final ones on rank 0."""
    split = decompose(outputs, of_table=True)
    assert split is not None
    builder = ctx.builder
    if split.needs_order:
        child = builder.attach_order(child)
    partial, final = split.partial, split.final
    parts = builder.local(
        "PARTIAL AGGREGATE",
        [child],
        lambda frames, _: frames[0].select(partial),
        partitioning=project(child.partitioning, {}),
        ordered=False,
        estimate=ONE_ROW,
    )
    return _final(ctx, parts, final, split, outputs)


def _distinct_pass(ctx: Context, node: Node, child: Stream, outputs: Sequence[NamedExpr]) -> Stream:
    """Count distinct values: equal ones meet by their hash, then each rank's counts add up."""
    split = decompose(outputs, of_table=True)
    assert split is not None
    assert split.distinct is not None
    builder = ctx.builder
    value = to_expr(split.distinct).alias(DISTINCT)
    groups = builder.local(
        "PARTIAL DISTINCT VALUES",
        [child],
        lambda frames, _: frames[0].select(value).unique(),
        partitioning=project(child.partitioning, {}),
        ordered=False,
        of_any_rows=True,
    )
    moved = builder.gather_or_shuffle(groups, [DISTINCT], "partial distinct values")
    (count,) = split.final
    name = count.meta.output_name()
    counts = builder.local(
        "COUNT DISTINCT VALUES",
        [moved],
        lambda frames, _: frames[0].select(count),
        partitioning=project(moved.partitioning, {}),
        ordered=False,
        estimate=ONE_ROW,
    )
    return _final(ctx, counts, [pl.col(name).sum()], split, outputs)


def _final(
    ctx: Context, parts: Stream, final: Sequence[pl.Expr], split: Decomposition, outputs: Sequence[NamedExpr]
) -> Stream:
    """Compute the final aggregates of the ranks' partial ones on rank 0, and the outputs from them."""
    totals = ctx.builder.local(
        "FINAL AGGREGATE",
        [ctx.builder.gather(parts)],
        lambda frames, _: frames[0].select(final),
        estimate=ONE_ROW,
    )
    return outputs_of(ctx, totals, [], split.outputs, schema_of(outputs))


def _quantiles_pass(ctx: Context, node: Node, child: Stream, outputs: Sequence[NamedExpr]) -> Stream:
    """Sort the values over the ranks, and look up those that the quantiles are made of."""
    return _side_by_side(ctx, sorted_quantiles(ctx.builder, child, outputs))


def _place_pass(ctx: Context, node: Node, child: Stream, outputs: Sequence[NamedExpr]) -> Stream:
    """Find the row at a place over all ranks."""
    (output,) = outputs
    expr, builder = output.expr, ctx.builder
    assert isinstance(expr, Gather)
    assert isinstance(expr.indices, Literal)
    place, value = expr.indices.value, to_expr(expr.child).alias(output.name)
    rows = builder.local(
        "VALUES",
        [child],
        lambda frames, _: frames[0].select(value),
        partitioning=project(child.partitioning, {}),
    )
    found = builder.gather(builder.slice(rows, (place, 1)))
    one = pl.col(output.name).get(min(place, 0) and -1, null_on_oob=expr.null_on_oob)
    return builder.local(
        f"ROW {place}",
        [found],
        lambda frames, _: frames[0].select(one),
        partitioning=SINGLE,
        estimate=ONE_ROW,
    )


def _whole_pass(ctx: Context, node: Node, child: Stream, outputs: Sequence[NamedExpr]) -> Stream:
    """Let rank 0 aggregate all rows of the columns that are read."""
    builder = ctx.builder
    builder.fall_back(
        f"{node_title(node)} ({Gathered.WHOLE_AGGREGATE.value}: {named(o.expr for o in outputs)})"
    )
    used = {name for output in outputs for name in columns(output.expr)}
    names = [name for name in child.schema if name in used] or list(child.schema)[:1]
    exprs = to_exprs(outputs)
    return builder.local(
        "AGGREGATE",
        [builder.gather(builder.select(child, names))],
        lambda frames, _: frames[0].select(exprs),
        schema=schema_of(outputs),
        partitioning=SINGLE,
        estimate=ONE_ROW,
    )


_PASSES: dict[str, Callable[[Context, Node, Stream, Sequence[NamedExpr]], Stream]] = {
    "partial": _partial_pass,
    "distinct": _distinct_pass,
    "quantiles": _quantiles_pass,
    "place": _place_pass,
    "whole": _whole_pass,
}
