"""Values of a whole table: aggregates of all its rows, and steps that use them beside the rows.

An expression's *leaves* are its aggregates over rows. They are computed first, in as few passes over the table as
their kinds allow, and put side by side in one row; what stands around them is computed from that row.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import polars as pl

from cudf_polars.lower.context import Context, node_title
from cudf_polars.lower.distinct_values import as_groups
from cudf_polars.lower.gathered import Gathered, named
from cudf_polars.lower.partitioning import SINGLE
from cudf_polars.lower.physical import Estimate, Materialize, Schema, Stream, WithScalars
from cudf_polars.lower.reshapes import as_steps
from cudf_polars.lower.rowwise import apply_expressions, is_distributable, lower_distributable
from cudf_polars.lower.shape import extended, is_rowwise_step, with_expressions
from cudf_polars.lower.table_passes import ONE_ROW, Pass, passes_of, row_of, schema_of
from cudf_polars.plan.expressions import Agg, Column, Expr, Len, Literal, NamedExpr, Opaque
from cudf_polars.plan.nodes import Filter, HStack, Node, Select
from cudf_polars.plan.properties import (
    RowOrder,
    columns,
    depends_on_order,
    is_deterministic,
    is_length_preserving,
    is_scalar,
    pair_by_order,
    row_order,
    substitute,
)
from cudf_polars.plan.rebuild import rebuild_node
from cudf_polars.plan.rebuild_expressions import to_exprs

__all__ = ["is_constant", "lower_constants", "lower_scalars", "lower_with_scalars", "scalars_beside_rows"]

_COMPUTED = "__rr_computed"
"""The columns that aggregates are of."""
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

    @functools.cached_property
    def passes(self) -> list[Pass]:
        """The passes over the table that compute the aggregates; to be asked for when these are complete."""
        return passes_of(self.outputs())

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
    taken = leaves, _ = _taken_apart(node.exprs)
    if not leaves.names:
        # Constants do not depend on the rows at all.
        return ctx.apply(node, [ctx.builder.gather(ctx.lower(node.child))], estimate=ONE_ROW)
    nested = leaves.nested()
    if not leaves.are_typed() or any(scalar.dtype is None for scalar in nested):
        return ctx.on_one_rank(node, [ctx.lower(node.child)], Gathered.UNKNOWN_TYPE)
    if (steps := _of_steps(node, leaves)) is not None:
        return ctx.lower(steps)
    several = bool(nested) or (len(leaves.passes) > 1 and _computed(node, leaves, node.child.schema) is None)
    rows = _Rows.of_node(ctx, node.child, several=several)
    if ctx.builder.is_whole(rows.peek()):
        return ctx.apply(node, [rows.read()], estimate=ONE_ROW)
    return _one_row(ctx, node, node.exprs, taken, rows)


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
        estimate=ONE_ROW,
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
    return ctx.apply(node, [ctx.builder.gather(none)], estimate=ONE_ROW)


def is_constant(expr: Expr) -> bool:
    """Whether ``expr`` depends neither on rows nor on their number, nor on anything that Polars does not show."""
    return not _reads_rows(expr) and is_deterministic(expr) and not _is_hidden(expr)


def _is_hidden(expr: Expr) -> bool:
    return isinstance(expr, Opaque) or any(map(_is_hidden, expr.children))


def _taken_apart(exprs: Sequence[NamedExpr]) -> tuple[_Leaves, tuple[NamedExpr, ...]]:
    """Return the leaves of scalar expressions, and the expressions over one row of these."""
    leaves = _Leaves()
    return leaves, tuple(output.with_expr(_output(output.expr, leaves)) for output in exprs)


def _one_row(
    ctx: Context,
    node: Node,
    exprs: Sequence[NamedExpr],
    taken: tuple[_Leaves, tuple[NamedExpr, ...]],
    rows: _Rows,
) -> Stream:
    """Return scalar expressions of the table, and what :func:`_taken_apart` makes of them, as one row on rank 0."""
    leaves, outer = taken
    nested = leaves.nested()
    if nested:
        joined, column = _joined(ctx, node, rows, nested)
        exprs = [each.with_expr(_replace_inside_aggregates(each.expr, column)) for each in exprs]
        leaves, outer = _taken_apart(exprs)
        rows = _Rows.of_stream(ctx, joined, several=len(leaves.passes) > 1)
    found = _computed(node, leaves, rows.peek().schema)
    if found is not None:
        exprs = [each.with_expr(substitute(each.expr, found.aggregates)) for each in exprs]
        leaves, outer = _taken_apart(exprs)
        ordered = pair_by_order(leaves.names, beside_rows=False)
        wide = lower_distributable(ctx, found.columns, rows.read(), ordered=ordered)
        if ctx.builder.is_whole(wide):
            return _of_whole(ctx, exprs, wide)
        rows = _Rows.of_stream(ctx, wide, several=len(leaves.passes) > 1)
    row = row_of(ctx, node, rows.read, leaves.passes)
    outputs = to_exprs(outer)
    return ctx.builder.local(
        "OUTPUTS",
        [row],
        lambda frames, _: frames[0].select(outputs),
        schema=schema_of(exprs),
        estimate=ONE_ROW,
    )


def _of_whole(ctx: Context, exprs: Sequence[NamedExpr], rows: Stream) -> Stream:
    """Return scalar expressions of rows that one rank has all of."""
    outputs = to_exprs(exprs)
    return ctx.builder.local(
        "AGGREGATE",
        [ctx.builder.disjoint(rows)],
        lambda frames, _: frames[0].select(outputs),
        schema=schema_of(exprs),
        estimate=ONE_ROW,
    )


def _joined(
    ctx: Context, node: Node, rows: _Rows, scalars: Sequence[Expr]
) -> tuple[Stream, Callable[[Expr], Expr]]:
    """Return the rows with scalars of the table beside them, and what gives the column of each."""
    depth = sum(name.startswith(_SCALAR) for name in rows.peek().schema)
    names = {scalar: f"{_SCALAR}{depth + i}" for i, scalar in enumerate(dict.fromkeys(scalars))}
    exprs = [NamedExpr(name, scalar) for scalar, name in names.items()]
    row = _one_row(ctx, node, exprs, _taken_apart(exprs), rows)
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


# -- aggregates of values that are not made row by row ---------------------------------------------------------


@dataclass(frozen=True)
class _Computed:
    """Columns that aggregates are of, and that are computed first.

    Attributes
    ----------
    columns
        The step that computes them.
    aggregates
        By aggregate, the same of these columns.
    """

    columns: HStack
    aggregates: dict[Expr, Expr]


def _computed(node: Node, leaves: _Leaves, schema: Schema) -> _Computed | None:
    """Return the window and sequence expressions to compute as columns first, so that aggregates of them decompose.

    Parameters
    ----------
    schema
        The columns that there are.
    """
    (below,) = node.children
    whole = [output for each in leaves.passes if each.kind == "whole" for output in each.outputs]
    select = Select(below, tuple(whole), schema=schema_of(whole))

    def step(columns: Mapping[Expr, Column]) -> HStack:
        outputs = tuple(NamedExpr(column.name, expr) for expr, column in columns.items())
        return HStack(below, outputs, schema={**schema, **schema_of(outputs)})

    def is_column(expr: Expr) -> bool:
        return (
            expr.dtype is not None
            and is_length_preserving(expr)
            and is_distributable(step({expr: Column("", dtype=expr.dtype)}))
        )

    depth = sum(name.startswith(_COMPUTED) for name in schema)
    found = extended(select, f"{_COMPUTED}{depth}_", is_column)
    if not found.columns or not is_distributable(step(found.columns)):
        return None
    assert isinstance(found.node, Select)
    pairs = zip(whole, found.node.exprs, strict=True)
    return _Computed(step(found.columns), {old.expr: new.expr for old, new in pairs})


def _of_steps(node: Select, leaves: _Leaves) -> Select | None:
    """Return an aggregate of sorted or distinct values as that of the rows of another selection, which is steps."""
    passes = leaves.passes
    if len(leaves.names) != 1 or passes[0].kind != "whole":
        return None
    (leaf,) = leaves.names
    values: Expr = leaf
    while values is leaf or is_rowwise_step(values):
        rows = [child for child in values.children if not is_scalar(child)]
        if len(rows) != 1:
            return None
        values = rows[0]
    if values.dtype is None:
        return None
    column = Column(_COMPUTED, dtype=values.dtype)
    inner = Select(node.child, (NamedExpr(_COMPUTED, values),), schema={_COMPUTED: values.dtype})
    if as_steps(inner) is None and as_groups(inner) is None:
        return None
    if row_order(values) is RowOrder.SUBSET and depends_on_order(substitute(leaf, {values: column})):
        return None  # the first of values in no order: it is what one rank finds first
    exprs = tuple(each.with_expr(substitute(each.expr, {values: column})) for each in node.exprs)
    return replace(node, child=inner, exprs=exprs)


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
