"""Values of a whole table: aggregates of all its rows, and steps that use them beside the rows.

An expression's *leaves* are its aggregates over rows. They are computed first, in as few passes over the table as
their kinds allow, and put side by side in one row; what stands around them is computed from that row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import polars as pl

from cudf_polars.lower.aggregates import DISTINCT, decompose, is_row_source
from cudf_polars.lower.context import Context, node_title
from cudf_polars.lower.estimates import row_width
from cudf_polars.lower.gathered import Gathered, named
from cudf_polars.lower.grouping import outputs_of
from cudf_polars.lower.partitioning import SINGLE, project
from cudf_polars.lower.physical import Estimate, Materialize, Schema, Stream, WithScalars
from cudf_polars.lower.quantiles import is_quantile, quantile_source, sorted_quantiles
from cudf_polars.lower.rowwise import apply_expressions, is_distributable, lower_distributable
from cudf_polars.lower.shape import is_rowwise_step, with_expressions
from cudf_polars.plan.expressions import Agg, Column, Expr, Gather, Len, Literal, NamedExpr, Opaque
from cudf_polars.plan.nodes import Filter, HStack, Node, Select
from cudf_polars.plan.properties import columns, is_deterministic, is_scalar
from cudf_polars.plan.rebuild import rebuild_node
from cudf_polars.plan.rebuild_expressions import to_expr, to_exprs

__all__ = ["is_constant", "lower_constants", "lower_scalars", "lower_with_scalars", "scalars_beside_rows"]

_ONE_ROW = Estimate(1.0, 64.0)
_SCALAR = "__rr_scalar"
"""The columns that hold values of the table beside its rows."""


class _Rows:
    """The rows of a table, to be read by one reader or by several.

    Parameters
    ----------
    read
        Gives the rows to one more reader.
    """

    def __init__(self, read: Callable[[], Stream]) -> None:
        self._read = read
        self._next: Stream | None = None

    def peek(self) -> Stream:
        """Return what the next reader will get."""
        if self._next is None:
            self._next = self._read()
        return self._next

    def read(self) -> Stream:
        """Return the rows for one more reader."""
        stream, self._next = self.peek(), None
        return stream

    @classmethod
    def of_node(cls, ctx: Context, node: Node, *, several: bool) -> _Rows:
        """Return the rows of a node.

        What only reads files is lowered again for each reader, which then prunes its own columns; the rows of
        everything else are materialized when there are several readers.
        """
        if ctx.properties.is_row_pipeline(node):
            return cls(lambda: ctx.lower(node))
        return cls.of_stream(ctx, ctx.lower(node), several=several)

    @classmethod
    def of_stream(cls, ctx: Context, stream: Stream, *, several: bool) -> _Rows:
        """Return the rows of a stream, materialized when there are several readers."""
        shared = isinstance(stream, Materialize) and stream.shared
        if several and not shared and not ctx.builder.is_whole(stream):
            stream = ctx.builder.materialize(stream, "read by several aggregates", shared=True)
        return cls(lambda: stream)


@dataclass
class _Leaves:
    """The aggregates over rows that expressions are made of, with the columns that stand for them."""

    names: dict[Expr, str] = field(default_factory=dict)

    def value(self, leaf: Expr) -> Expr:
        """Return what stands for an aggregate: one value, as it is."""
        name = self.names.setdefault(leaf, f"__rr_leaf{len(self.names)}")
        return Agg("first", Column(name, dtype=leaf.dtype), dtype=leaf.dtype)

    def stands_for_one(self, expr: Expr) -> bool:
        """Whether ``expr`` is what :meth:`value` gave, and nothing of the user's."""
        return (
            isinstance(expr, Agg)
            and expr.name == "first"
            and isinstance(expr.child, Column)
            and expr.child.name in self.names.values()
        )

    def outputs(self) -> tuple[NamedExpr, ...]:
        """Return the aggregates under the names of their columns."""
        return tuple(NamedExpr(name, leaf) for leaf, name in self.names.items())

    def nested(self) -> list[Expr]:
        """Return the values of the table that the aggregates compare rows with: they are computed before."""
        return [
            found
            for leaf in self.names
            for child in leaf.children
            if not is_scalar(child)  # an argument (which row, which quantile), not a value beside each row
            for found in scalars_beside_rows(child)
        ]

    def are_typed(self) -> bool:
        """Whether the type of each is known."""
        return all(leaf.dtype is not None for leaf in self.names)


def lower_scalars(ctx: Context, node: Select) -> Stream:
    """Aggregate the whole table to one row."""
    if all(isinstance(expr, Literal) for expr in node.expressions):
        return _literals(ctx, node)
    leaves, _ = _taken_apart(node.exprs)
    if not leaves.names:
        # Constants do not depend on the rows at all.
        return ctx.apply(node, [ctx.builder.gather(ctx.lower(node.child))], estimate=_ONE_ROW)
    nested = leaves.nested()
    if not leaves.are_typed() or any(scalar.dtype is None for scalar in nested):
        return ctx.on_one_rank(node, [ctx.lower(node.child)], Gathered.UNKNOWN_TYPE)
    several = bool(nested) or len(_passes(leaves)) > 1
    rows = _Rows.of_node(ctx, node.child, several=several)
    if ctx.builder.is_whole(rows.peek()):
        return ctx.apply(node, [rows.read()], estimate=_ONE_ROW)
    return _one_row(ctx, node, node.exprs, rows)


def _literals(ctx: Context, node: Select) -> Stream:
    """Return the row of literals without running what is below them, which may raise an error: nor does Polars."""
    below = dict(node.child.schema)
    return ctx.builder.local(
        node_title(node),
        [],
        lambda frames, _: rebuild_node(node, [pl.LazyFrame(schema=below)]),
        schema=node.schema,
        partitioning=SINGLE,
        ordered=True,
        estimate=_ONE_ROW,
    )


def lower_constants(ctx: Context, node: Select) -> Stream:
    """Compute what depends on no row, nor on the number of rows, once: on rank 0, beside no rows."""
    none = ctx.builder.local(
        "NO ROWS",
        [ctx.lower(node.child)],
        lambda frames, _: frames[0].head(0),
        schema=node.child.schema,
        estimate=Estimate(0.0, 0.0),
    )
    return ctx.apply(node, [ctx.builder.gather(none)], estimate=_ONE_ROW)


def is_constant(expr: Expr) -> bool:
    """Whether ``expr`` depends neither on rows nor on their number, nor on anything that Polars does not show."""
    return not _reads_rows(expr) and is_deterministic(expr) and not _is_hidden(expr)


def _is_hidden(expr: Expr) -> bool:
    return isinstance(expr, Opaque) or any(map(_is_hidden, expr.children))


def _taken_apart(exprs: Sequence[NamedExpr]) -> tuple[_Leaves, tuple[NamedExpr, ...]]:
    """Return the leaves of scalar expressions, and the expressions over one row of these."""
    leaves = _Leaves()
    return leaves, tuple(output.with_expr(_output(output.expr, leaves)) for output in exprs)


def _one_row(ctx: Context, node: Node, exprs: Sequence[NamedExpr], rows: _Rows) -> Stream:
    """Return scalar expressions of the table as one row on rank 0."""
    leaves, outer = _taken_apart(exprs)
    nested = leaves.nested()
    if nested:
        joined, column = _joined(ctx, node, rows, nested)
        exprs = [each.with_expr(_replace_inside_aggregates(each.expr, column)) for each in exprs]
        leaves, outer = _taken_apart(exprs)
        rows = _Rows.of_stream(ctx, joined, several=len(_passes(leaves)) > 1)
    row = _row_of(ctx, node, rows, _passes(leaves))
    outputs = to_exprs(outer)
    return ctx.builder.local(
        "OUTPUTS",
        [row],
        lambda frames, _: frames[0].select(outputs),
        schema=_schema_of(exprs),
        estimate=_ONE_ROW,
    )


def _joined(
    ctx: Context, node: Node, rows: _Rows, scalars: Sequence[Expr]
) -> tuple[Stream, Callable[[Expr], Expr]]:
    """Return the rows with scalars of the table beside them, and what gives the column of each."""
    depth = sum(name.startswith(_SCALAR) for name in rows.peek().schema)
    names = {scalar: f"{_SCALAR}{depth + i}" for i, scalar in enumerate(dict.fromkeys(scalars))}
    row = _one_row(ctx, node, [NamedExpr(name, scalar) for scalar, name in names.items()], rows)
    main = rows.read()
    joined = WithScalars(
        inputs=(main, row),
        schema={**main.schema, **row.schema},
        partitioning=main.partitioning,
        ordered=main.ordered,
        estimate=main.estimate,
    )
    return joined, lambda scalar: Column(names[scalar], dtype=scalar.dtype)


def _output(expr: Expr, leaves: _Leaves) -> Expr:
    """Return a scalar expression over the columns of its leaves, which have one row."""
    replaced = _outside(expr, leaves)
    if leaves.stands_for_one(replaced):
        assert isinstance(replaced, Agg)
        # Alone, the column is the value. Polars 2.1 plans other types for some aggregates than they have (a product of
        # UInt128), which only matters to a step that computes.
        return replaced.child
    nested = (
        replaced.dtype is None or replaced.dtype.is_nested()
    )  # Polars' first() of a struct without fields panics
    if not isinstance(replaced, Literal) and not columns(replaced) and not nested:
        # Over plain columns and constants Polars would look at a filter of the row first, and not compute what raises.
        return Agg("first", replaced, dtype=replaced.dtype)
    return replaced


def _outside(expr: Expr, leaves: _Leaves) -> Expr:
    """Replace the leaves of a scalar expression by columns of one row."""
    if isinstance(expr, Literal):
        return expr
    if not _reads_rows(expr):
        return expr
    if not expr.children or not all(map(is_scalar, expr.children)):
        return leaves.value(expr)
    # an aggregate of an aggregate has one value to look at, as in Polars
    return expr.with_children([_outside(child, leaves) for child in expr.children])


def _reads_rows(expr: Expr) -> bool:
    return isinstance(expr, Len) or bool(columns(expr)) or any(map(_reads_rows, expr.children))


# -- passes over the table -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Pass:
    """Aggregates that one pass over the table computes; ``kind`` is how."""

    kind: str
    outputs: tuple[NamedExpr, ...]


def _passes(leaves: _Leaves) -> list[_Pass]:
    """Sort leaves by how they are computed: by partial aggregates, distinct values, places, or from all rows."""
    partial, whole, passes = [], [], []
    quantiles: dict[Expr, list[NamedExpr]] = {}
    for output in leaves.outputs():
        split = decompose([output], of_table=True)
        if split is None and is_quantile(output.expr):
            quantiles.setdefault(quantile_source(output.expr), []).append(output)
        elif split is None and _is_place(output.expr):
            passes.append(_Pass("place", (output,)))
        elif split is None:
            whole.append(output)
        elif split.distinct is not None:
            passes.append(_Pass("distinct", (output,)))
        else:
            partial.append(output)
    if partial:
        passes.insert(0, _Pass("partial", tuple(partial)))
    passes += [_Pass("quantiles", tuple(outputs)) for outputs in quantiles.values()]
    if whole:
        passes.append(_Pass("whole", tuple(whole)))
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


def _row_of(ctx: Context, node: Node, rows: _Rows, passes: Sequence[_Pass]) -> Stream:
    """Return the outputs of all passes as one row on rank 0."""
    parts = [_PASSES[each.kind](ctx, node, rows.read(), each.outputs) for each in passes]
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


def _schema_of(outputs: Sequence[NamedExpr]) -> Schema:
    return {output.name: output.expr.dtype for output in outputs if output.expr.dtype is not None}


def _partial_pass(ctx: Context, node: Node, child: Stream, outputs: Sequence[NamedExpr]) -> Stream:
    """Aggregate where the rows are, and aggregate the ranks' results on rank 0."""
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
        estimate=_ONE_ROW,
    )
    totals = builder.local(
        "FINAL AGGREGATE",
        [builder.gather(parts)],
        lambda frames, _: frames[0].select(final),
        estimate=_ONE_ROW,
    )
    return outputs_of(ctx, totals, [], split.outputs, _schema_of(outputs))


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
        estimate=_ONE_ROW,
    )
    totals = builder.local(
        "FINAL AGGREGATE",
        [builder.gather(counts)],
        lambda frames, _: frames[0].select(pl.col(name).sum()),
        estimate=_ONE_ROW,
    )
    return outputs_of(ctx, totals, [], split.outputs, _schema_of(outputs))


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
        estimate=_ONE_ROW,
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
        schema=_schema_of(outputs),
        partitioning=SINGLE,
        estimate=_ONE_ROW,
    )


_PASSES: dict[str, Callable[[Context, Node, Stream, Sequence[NamedExpr]], Stream]] = {
    "partial": _partial_pass,
    "distinct": _distinct_pass,
    "quantiles": _quantiles_pass,
    "place": _place_pass,
    "whole": _whole_pass,
}


# -- beside rows -----------------------------------------------------------------------------------------------


def scalars_beside_rows(expr: Expr) -> list[Expr]:
    """Return the outermost parts of ``expr`` that are one value for the table, through row-wise steps only."""
    found: list[Expr] = []

    def note(part: Expr) -> Expr:
        found.append(part)
        return part

    _replace_beside_rows(expr, note)
    return found


def _replace_beside_rows(expr: Expr, replacement: Callable[[Expr], Expr]) -> Expr:
    """Replace what :func:`scalars_beside_rows` finds, and nothing elsewhere.

    The same aggregate inside a window, say, is another value: that of the window's partition.
    """
    if isinstance(expr, Literal):
        return expr
    if is_scalar(expr):
        return replacement(expr) if _reads_rows(expr) else expr
    if not is_rowwise_step(expr):
        return expr
    return expr.with_children([_replace_beside_rows(child, replacement) for child in expr.children])


def _replace_inside_aggregates(expr: Expr, replacement: Callable[[Expr], Expr]) -> Expr:
    """Replace the table's values beside the rows that the aggregates of a scalar expression read."""
    if isinstance(expr, Literal) or not expr.children:
        return expr
    if all(map(is_scalar, expr.children)):
        return expr.with_children([_replace_inside_aggregates(child, replacement) for child in expr.children])
    return expr.with_children(
        [child if is_scalar(child) else _replace_beside_rows(child, replacement) for child in expr.children]
    )


def lower_with_scalars(ctx: Context, node: Select | HStack | Filter, scalars: Sequence[Expr]) -> Stream:
    """Compute values of the table first, give them to every rank, and go on with them as constants."""
    if any(scalar.dtype is None for scalar in scalars):
        return ctx.on_one_rank(node, [ctx.lower(node.child)], Gathered.UNKNOWN_TYPE)
    blank = _with_constants(node, lambda scalar: Column(_SCALAR, dtype=scalar.dtype))
    if not is_distributable(blank):
        return ctx.on_one_rank(node, [ctx.lower(node.child)], Gathered.OTHER_ROWS, named(blank.expressions))
    if isinstance(node, Select) and not any({*columns(expr)} - {_SCALAR} for expr in blank.expressions):
        # Each rank would give the rows of a literal series, whatever rows it has.
        return ctx.on_one_rank(node, [ctx.lower(node.child)], Gathered.LITERAL_ROWS)
    rows = _Rows.of_node(ctx, node.child, several=True)
    if ctx.builder.is_whole(rows.peek()):
        return apply_expressions(ctx, node, rows.read())
    joined, column = _joined(ctx, node, rows, scalars)
    new = _with_constants(node, column)
    if isinstance(new, Filter):
        new = replace(new, schema=joined.schema)
    elif isinstance(new, HStack):
        new = replace(new, schema={**joined.schema, **node.schema})
    return ctx.builder.select(lower_distributable(ctx, new, joined), list(node.schema))


def _with_constants(
    node: Select | HStack | Filter, column: Callable[[Expr], Expr]
) -> Select | HStack | Filter:
    return with_expressions(node, lambda expr: _replace_beside_rows(expr, column))
