"""Steps that keep or drop rows and compute columns: projections, filters, slices, concatenations."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

from cudf_polars.lower.context import Context
from cudf_polars.lower.distinct_values import as_groups
from cudf_polars.lower.gathered import Gathered, named
from cudf_polars.lower.group_windows import as_joined_groups
from cudf_polars.lower.partitioning import ARBITRARY, REPLICATED, SINGLE, Distribution, Partitioning, project
from cudf_polars.lower.physical import Estimate, GlobalRowIndex, OrderedConcat, PositionExchange, Stream
from cudf_polars.lower.reshapes import as_steps, is_of_parts
from cudf_polars.lower.rowwise import apply_expressions, is_distributable, lower_distributable
from cudf_polars.lower.scalars import (
    is_constant,
    lower_constants,
    lower_scalars,
    lower_with_scalars,
    scalars_beside_rows,
)
from cudf_polars.lower.scans import scan_in_sequence
from cudf_polars.lower.shares import is_even
from cudf_polars.lower.sorted_windows import in_sorted_table
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
]


def lower_one_to_one(ctx: Context, node: Node) -> Stream:
    """Do on each rank what works row by row, or list by list."""
    (child,) = (ctx.lower(child) for child in node.children)
    if isinstance(node, HintSorted) and not ctx.builder.is_whole(child):
        # The ranks' parts of sorted rows are sorted; after a shuffle nothing is. The hint only saves time.
        return child
    names = {name: [name] for name in node.schema}
    partitioning = (
        child.partitioning if isinstance(node, SimpleProjection) else _changed_only(child.partitioning, node)
    )
    return ctx.apply(node, [child], partitioning=project(partitioning, names))


def _changed_only(partitioning: Partitioning, node: Node) -> Partitioning:
    """Return ``partitioning`` if the columns that ``node`` replaces are no part of it."""
    changed = set(getattr(node, "columns", ()))
    if any(key & changed for key in partitioning.keys):
        return ARBITRARY
    return partitioning


def lower_expressions(ctx: Context, node: Node) -> Stream:
    """Lower ``select``, ``with_columns`` and ``filter``: row-wise, with scalars of the table, or with windows."""
    assert isinstance(node, Select | HStack | Filter)
    if isinstance(node, Select) and all(is_scalar(expr) for expr in node.expressions):
        return lower_scalars(ctx, node)
    if all(map(is_elementwise, node.expressions)):
        return apply_expressions(ctx, node, ctx.lower(node.child))
    if isinstance(node, Select):
        if all(map(is_constant, node.expressions)):
            return lower_constants(ctx, node)
        if is_of_parts(node):
            return ctx.apply(node, [ctx.lower(node.child)])
        if (steps := as_steps(node) or as_groups(node)) is not None:
            return ctx.lower(steps)
    if (steps := in_sorted_table(node, ordered=ctx.ordered(node))) is not None:
        return ctx.lower(steps)
    scalars = [scalar for expr in node.expressions for scalar in scalars_beside_rows(expr)]
    if scalars:
        return lower_with_scalars(ctx, node, scalars)
    if (steps := as_joined_groups(ctx, node)) is not None:
        return ctx.lower(steps)
    child = ctx.lower(node.child)
    if ctx.builder.is_whole(child):
        return apply_expressions(ctx, node, child)
    if not is_distributable(node):
        return ctx.on_one_rank(node, [child], Gathered.OTHER_ROWS, named(node.expressions))
    return lower_distributable(ctx, node, child)


def lower_slice(ctx: Context, node: Node) -> Stream:
    """Keep rows by their position over all ranks."""
    assert isinstance(node, Slice)
    return ctx.builder.slice(ctx.lower(node.child), (node.offset, node.length))


def lower_row_index(ctx: Context, node: Node) -> Stream:
    """Number rows over all ranks."""
    assert isinstance(node, RowIndex)
    child = ctx.lower(node.child)
    if ctx.builder.is_whole(child):
        return ctx.apply(node, [child])
    return GlobalRowIndex(
        inputs=(child,),
        schema=node.schema,
        partitioning=child.partitioning,
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
    distributions = {stream.partitioning.distribution for stream in inputs}
    plain = replace(node, slice=None)
    result: Stream
    if distributions == {Distribution.REPLICATED}:
        result = ctx.apply(plain, inputs, partitioning=REPLICATED, ordered=ordered, estimate=total)
    else:
        inputs = [builder.disjoint(stream) for stream in inputs]
        if all(stream.partitioning.distribution is Distribution.SINGLE for stream in inputs):
            result = ctx.apply(plain, inputs, partitioning=SINGLE, ordered=ordered, estimate=total)
        elif ordered and sequence is None:
            result = OrderedConcat(
                inputs=tuple(inputs), schema=node.schema, partitioning=ARBITRARY, ordered=True, estimate=total
            )
        else:
            partitionings = {stream.partitioning for stream in inputs}
            same = partitionings.pop() if len(partitionings) == 1 else ARBITRARY
            partitioning = same if same.is_by_value() else ARBITRARY
            result = ctx.apply(plain, inputs, partitioning=partitioning, ordered=ordered, estimate=total)
    return builder.slice(result, node.slice)


def lower_hconcat(ctx: Context, node: Node) -> Stream:
    """Concatenate tables horizontally: rows of one position meet on a rank."""
    assert isinstance(node, HConcat)
    builder = ctx.builder
    inputs = [ctx.lower(child) for child in node.inputs]
    if {stream.partitioning.distribution for stream in inputs} == {Distribution.REPLICATED}:
        return ctx.apply(node, inputs)
    if all(builder.is_whole(stream) for stream in inputs) or not all(stream.schema for stream in inputs):
        return ctx.on_one_rank(node, inputs, Gathered.PAIRED_ROWS)
    tables = [builder.materialize(builder.disjoint(stream), "to pair rows by position") for stream in inputs]
    sizes = [builder.count(table) for table in tables]
    heights = {size.rows for size in sizes}
    rows, nbytes = max(heights), sum(size.nbytes for size in sizes)
    if nbytes <= builder.settings.small_limit or (
        node.strict and len(heights) > 1
    ):  # the latter Polars refuses
        return ctx.apply(node, [builder.gather(table) for table in tables], partitioning=SINGLE)
    bounds = _bounds(max(sizes, key=lambda size: size.rows).heights)
    moved = [
        PositionExchange(
            inputs=(table,),
            schema=table.schema,
            partitioning=ARBITRARY,
            ordered=True,
            estimate=table.estimate,
            bounds=bounds,
        )
        for table in tables
    ]
    estimate = Estimate(float(rows), float(nbytes))
    return ctx.apply(node, moved, partitioning=ARBITRARY, ordered=True, estimate=estimate)


def _bounds(heights: Sequence[int]) -> tuple[int, ...]:
    """Return the ranges of positions of the ranks: those of a table's rows where they are, unless one has too many."""
    rows, nranks = sum(heights), len(heights)
    if is_even(heights, nranks):
        return tuple(itertools.accumulate(heights, initial=0))
    return tuple(rows * rank // nranks for rank in range(nranks + 1))


def lower_unpivot(ctx: Context, node: Node) -> Stream:
    """Unpivot each rank's rows; the order of the result is not promised by Polars' streaming engine either."""
    (child,) = (ctx.lower(child) for child in node.children)
    return ctx.apply(node, [child], partitioning=project(child.partitioning, {}))
