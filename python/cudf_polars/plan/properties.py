"""What an expression shows of itself: which rows and columns it needs, whether order matters.

Polars' own ``meta.is_row_separable`` looks at the top of an expression only; these functions look at all of
it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cudf_polars.plan import expressions as ex
from cudf_polars.plan.functions import FUNCTIONS, Kind

__all__ = [
    "columns",
    "depends_on_order",
    "is_deterministic",
    "is_elementwise",
    "is_length_preserving",
    "is_scalar",
    "is_scalar_aggregation",
    "needs_whole_column",
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
            rest = expr.inputs
            if expr.name in ("is_in", "replace", "replace_strict") or expr.name.endswith("_many"):
                # what to look for may be a whole column of literals
                rest = tuple(e for e in rest if not isinstance(e, ex.Literal))
            return all(is_elementwise(e) for e in rest)
        case ex.Opaque():
            return expr.source.elementwise and all(is_elementwise(e) for e in expr.inputs)
    return False


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


def depends_on_order(expr: ex.Expr) -> bool:
    """Whether the result, as a set of rows or as a value, changes with the order of the input's rows.

    An elementwise expression does not depend on order: its rows move with the input's.
    """
    match expr:
        case ex.Agg():
            ordered = expr.name in ("first", "last", "first_non_null", "last_non_null") or (
                expr.name == "implode" and bool(expr.options and expr.options[0])
            )
            # a float sum differs in the last digits, which Polars itself does not promise
            if ordered and not _sorted_by_itself(expr.child):
                return True
        case ex.Slice() | ex.Gather():
            if not _sorted_by_itself(expr.children[0]):
                return True
        case ex.SortBy() | ex.Rolling():
            return True  # ties keep the input's order; a rolling index must be sorted
        case ex.Window():
            if expr.order_by is not None:
                return any(depends_on_order(e) for e in expr.partition_by)
        case ex.Function():
            spec = FUNCTIONS[expr.name]
            if spec.ordered or not spec.deterministic:
                return True
            if expr.name in ("unique", "mode") and expr.args[0]:
                return True
            if expr.name == "rank" and expr.args[0] in ("ordinal", "random"):
                return True
        case ex.Opaque():
            return not expr.source.elementwise or any(depends_on_order(e) for e in expr.inputs)
    return any(depends_on_order(e) for e in expr.children)


def _sorted_by_itself(expr: ex.Expr) -> bool:
    return isinstance(expr, ex.Sort)


def is_deterministic(expr: ex.Expr) -> bool:
    """Whether the same rows always give the same result."""
    return all(FUNCTIONS[e.name].deterministic for e in walk(expr) if isinstance(e, ex.Function))
