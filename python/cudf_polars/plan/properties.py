"""What an expression shows of itself: which rows and columns it needs, whether order matters.

Polars' own ``meta.is_row_separable`` looks at the top of an expression only; these functions look at all of
it.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping

from cudf_polars.plan import expressions as ex
from cudf_polars.plan.functions import FUNCTIONS, Kind

__all__ = [
    "RowOrder",
    "calls_python",
    "columns",
    "depends_on_order",
    "groups_depend_on_order",
    "holds_choice",
    "is_deterministic",
    "is_elementwise",
    "is_length_preserving",
    "is_process_local",
    "is_scalar",
    "is_scalar_aggregation",
    "needs_whole_column",
    "pair_by_order",
    "row_order",
    "substitute",
    "substitute_columns",
    "walk",
]


def walk(expr: ex.Expr) -> Iterator[ex.Expr]:
    """Yield the expression and all below it, parents first."""
    stack = [expr]
    while stack:
        e = stack.pop()
        yield e
        stack.extend(reversed(e.children))


def columns(expr: ex.Expr) -> tuple[str, ...]:
    """Return the names of the columns that the expression reads, in the order of their first use."""
    return tuple(dict.fromkeys(e.name for e in walk(expr) if isinstance(e, ex.Column)))


def substitute(expr: ex.Expr, replacements: Mapping[ex.Expr, ex.Expr]) -> ex.Expr:
    """Replace sub-expressions, the largest first."""
    found = replacements.get(expr)
    if found is not None:
        return found
    children = expr.children
    return expr.with_children([substitute(c, replacements) for c in children]) if children else expr


def substitute_columns(expr: ex.Expr, replacements: Mapping[str, ex.Expr]) -> ex.Expr:
    """Replace columns by expressions."""
    if isinstance(expr, ex.Column):
        return replacements.get(expr.name, expr)
    children = expr.children
    return expr.with_children([substitute_columns(c, replacements) for c in children]) if children else expr


def is_scalar(expr: ex.Expr) -> bool:
    """Whether the expression gives one value whatever the number of rows (literals among them)."""
    match expr:
        case ex.Literal():
            return expr.scalar
        case ex.Column():
            return False
        case ex.Agg() | ex.Len():
            return True
        case ex.Gather():
            return expr.scalar
        case ex.Function():
            kind = FUNCTIONS[expr.name].kind
            if kind is Kind.AGGREGATION:
                return True
            return kind is Kind.ELEMENTWISE and all(is_scalar(e) for e in expr.inputs)
        case ex.Opaque():
            return expr.source.scalar
        case ex.BinaryOp() | ex.Cast() | ex.Ternary() | ex.StructEval():
            return all(is_scalar(e) for e in expr.children)
    return False


def is_scalar_aggregation(expr: ex.Expr) -> bool:
    """Whether the expression reduces the rows to one value: scalar, and it reads rows."""
    return is_scalar(expr) and any(
        isinstance(e, ex.Agg | ex.Len | ex.Gather)
        or (isinstance(e, ex.Function) and FUNCTIONS[e.name].kind is Kind.AGGREGATION)
        or (isinstance(e, ex.Opaque) and e.source.scalar)
        for e in walk(expr)
    )


def is_elementwise(expr: ex.Expr) -> bool:
    """Whether each row of the result depends on the same row of the input only.

    Literals are elementwise: they repeat to any number of rows. Functions that are not deterministic are not.
    """
    match expr:
        case ex.Column():
            return True
        case ex.Literal():
            return expr.scalar
        case ex.BinaryOp() | ex.Cast() | ex.Ternary() | ex.StructEval():
            return all(is_elementwise(e) for e in expr.children)
        case ex.Function():
            spec = FUNCTIONS[expr.name]
            if spec.kind is not Kind.ELEMENTWISE or not spec.deterministic:
                return False
            if not all(isinstance(expr.inputs[i], ex.Literal) for i in spec.constant_inputs):
                return False
            return all(is_elementwise(e) for e in _row_inputs(expr))
        case ex.Opaque():
            return expr.source.elementwise and all(is_elementwise(e) for e in expr.inputs)
    return False


def _is_one_value(expr: ex.Expr) -> bool:
    """Whether this is a series of one value, which repeats to any number of rows beside a column."""
    return (
        isinstance(expr, ex.Literal)
        and isinstance(expr.value, ex.FrozenSeries)
        and len(expr.value.series) == 1
    )


def is_process_local(expr: ex.Expr) -> bool:
    """Whether the result has a meaning only in the process that computed it (codes of categories)."""
    return any(
        (isinstance(e, ex.Function) and FUNCTIONS[e.name].process_local)
        or (isinstance(e, ex.Opaque) and e.source.process_local)
        for e in walk(expr)
    )


def is_length_preserving(expr: ex.Expr) -> bool:
    """Whether the result has a row for each input row."""
    match expr:
        case ex.Column():
            return True
        case ex.Literal() | ex.Agg() | ex.Len():
            return False
        case ex.Filter() | ex.Slice() | ex.Explode() | ex.Gather():
            return False
        case ex.Sort():
            return is_length_preserving(expr.child)
        case ex.SortBy():
            return is_length_preserving(expr.child)
        case ex.Window():
            return expr.mapping != "explode"
        case ex.Rolling():
            return True
        case ex.Function("diff", (values, _), ("ignore",)):  # what has no row before it is null
            return is_length_preserving(values)
        case ex.Function():
            kind = FUNCTIONS[expr.name].kind
            if kind is Kind.WHOLE_COLUMN:
                return is_length_preserving(expr.inputs[0])
            if kind is not Kind.ELEMENTWISE:
                return False
        case ex.Opaque():
            return expr.source.length_preserving and not expr.source.scalar
    parts = [e for e in expr.children if not is_scalar(e)]
    return bool(parts) and all(is_length_preserving(e) for e in parts)


def needs_whole_column(expr: ex.Expr) -> bool:
    """Whether a part of the rows does not suffice to compute a part of the result."""
    return not is_elementwise(expr)


def holds_choice(expr: ex.Expr) -> bool:
    """Whether a part of the expression is a ``when``.

    Polars takes a list of such values for one without an order where both branches are constants, though the condition
    has a value for each row.
    """
    return any(isinstance(e, ex.Ternary) for e in walk(expr))


class RowOrder(enum.Enum):
    """What the order of the input's rows means for the rows of an expression's result."""

    SCALAR = enum.auto()
    """One value, whatever the order."""
    ALIGNED = enum.auto()
    """A row for each input row, which moves with it."""
    SUBSET = enum.auto()
    """The same rows in any order of the input, but not a row for each of them, and in no order of their own."""
    FIXED = enum.auto()
    """The same rows at the same places whatever the order (sorted values, a literal series)."""
    DEPENDS = enum.auto()
    """Another order of the input makes other rows."""


def row_order(expr: ex.Expr) -> RowOrder:
    """Tell what the order of the input's rows means for ``expr``.

    A float sum may differ in its last digits, which Polars does not promise either.
    """
    match expr:
        case ex.Column():
            return RowOrder.ALIGNED
        case ex.Literal():
            return RowOrder.SCALAR if expr.scalar else RowOrder.FIXED
        case ex.Len():
            return RowOrder.SCALAR
        case ex.Agg():
            inner = row_order(expr.child)
            picks = expr.name in ("first", "last", "first_non_null", "last_non_null") or (
                expr.name == "implode" and bool(expr.options and expr.options[0])
            )
            if inner is RowOrder.DEPENDS or (picks and inner in (RowOrder.ALIGNED, RowOrder.SUBSET)):
                return RowOrder.DEPENDS
            return RowOrder.SCALAR
        case ex.Filter():
            pair = _paired((expr.child, expr.predicate))
            return RowOrder.SUBSET if pair is RowOrder.ALIGNED else pair
        case ex.Explode():
            inner = row_order(expr.child)
            return {RowOrder.ALIGNED: RowOrder.SUBSET, RowOrder.SCALAR: RowOrder.FIXED}.get(inner, inner)
        case ex.Sort():
            inner = row_order(expr.child)
            return inner if inner in (RowOrder.SCALAR, RowOrder.DEPENDS) else RowOrder.FIXED
        case ex.Slice() | ex.Gather():
            if not all(row_order(e) in (RowOrder.SCALAR, RowOrder.FIXED) for e in expr.children):
                return RowOrder.DEPENDS
            return RowOrder.SCALAR if isinstance(expr, ex.Gather) and expr.scalar else RowOrder.FIXED
        case ex.SortBy():
            # rows with equal keys stay in the input's order
            fixed = all(row_order(e) in (RowOrder.SCALAR, RowOrder.FIXED) for e in expr.children)
            return RowOrder.FIXED if fixed else RowOrder.DEPENDS
        case ex.Window():
            return _window_order(expr)
        case ex.Function():
            return _function_order(expr)
        case ex.Opaque():
            return _paired(expr.inputs) if expr.source.elementwise else RowOrder.DEPENDS
        case ex.BinaryOp() | ex.Cast() | ex.Ternary() | ex.StructEval():
            return _paired(expr.children)
    return RowOrder.DEPENDS


def _paired(exprs: Iterable[ex.Expr]) -> RowOrder:
    """Tell what the order means for values that are computed from one row of each expression."""
    found = [order for order in map(row_order, exprs) if order is not RowOrder.SCALAR]
    if not found:
        return RowOrder.SCALAR
    # rows of two subsets are paired by position, which depends on the order of the input
    if len(set(found)) > 1 or (found[0] is RowOrder.SUBSET and len(found) > 1):
        return RowOrder.DEPENDS
    return found[0]


def _window_order(expr: ex.Window) -> RowOrder:
    keys = all(row_order(e) in (RowOrder.SCALAR, RowOrder.ALIGNED) for e in expr.partition_by)
    inner = row_order(expr.child)
    per_row = inner in (RowOrder.SCALAR, RowOrder.ALIGNED) and expr.mapping == "group_to_rows"
    whole = inner in (RowOrder.SCALAR, RowOrder.FIXED) and expr.mapping == "join"
    # with order_by, rows with equal keys stay in the input's order
    known = keys and expr.order_by is None and (per_row or whole)
    return RowOrder.ALIGNED if known else RowOrder.DEPENDS


def _function_order(expr: ex.Function) -> RowOrder:
    spec = FUNCTIONS[expr.name]
    if not spec.deterministic:
        return RowOrder.DEPENDS
    inputs = _paired(_row_inputs(expr))
    ordered = (
        spec.ordered
        or (expr.name in ("unique", "mode") and expr.args[0])
        or (expr.name == "rank" and expr.args[0] in ("ordinal", "random"))
    )
    if inputs is RowOrder.DEPENDS or (ordered and inputs in (RowOrder.ALIGNED, RowOrder.SUBSET)):
        return RowOrder.DEPENDS
    match spec.kind:
        case Kind.AGGREGATION:
            return RowOrder.SCALAR
        case Kind.RESHAPE:
            return RowOrder.FIXED if ordered else RowOrder.SUBSET
    return inputs


def _row_inputs(expr: ex.Function) -> tuple[ex.Expr, ...]:
    """Return the inputs of a function that give it a value a row."""
    rest = tuple(e for e in expr.inputs if not _is_one_value(e))
    return expr.inputs if all(map(is_scalar, rest)) else rest


def depends_on_order(expr: ex.Expr) -> bool:
    """Whether the result, by itself and as a set of rows, changes with the order of the input's rows."""
    return row_order(expr) is RowOrder.DEPENDS


def pair_by_order(exprs: Iterable[ex.Expr], *, beside_rows: bool) -> bool:
    """Whether the rows that expressions make side by side change with the order of the input's rows.

    Parameters
    ----------
    exprs
        The columns.
    beside_rows
        The input's own rows stand beside them.
    """
    found = [order for order in map(row_order, exprs) if order is not RowOrder.SCALAR]
    if beside_rows:
        found.append(RowOrder.ALIGNED)
    return RowOrder.DEPENDS in found or len(set(found)) > 1 or (RowOrder.SUBSET in found and len(found) > 1)


def groups_depend_on_order(exprs: Iterable[ex.Expr]) -> bool:
    """Whether aggregates of a group, or rows that are listed for it, change with the order of its rows."""
    return any(row_order(e) not in (RowOrder.SCALAR, RowOrder.FIXED) for e in exprs)


def calls_python(expr: ex.Expr) -> bool:
    """Whether the expression calls a function of the user's, of which nothing is known."""
    return any(isinstance(e, ex.Opaque) and bool(e.source.functions) for e in walk(expr))


def is_deterministic(expr: ex.Expr) -> bool:
    """Whether the same rows always give the same result; of functions of the user's that is taken for granted."""
    return all(FUNCTIONS[e.name].deterministic for e in walk(expr) if isinstance(e, ex.Function))
