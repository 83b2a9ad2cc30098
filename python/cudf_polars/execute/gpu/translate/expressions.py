"""Row-wise expressions as calls of primitives."""

from __future__ import annotations

import polars as pl

from cudf_polars.execute.gpu.translate import decimals, operators
from cudf_polars.execute.gpu.translate.casts import cast
from cudf_polars.execute.gpu.translate.functions import translate_function
from cudf_polars.execute.gpu.translate.typed import Constants, Scope, Typed, call, null
from cudf_polars.execute.gpu.translate.types import device_type
from cudf_polars.execute.gpu.translate.untranslatable import Unsupported
from cudf_polars.plan import expressions as ex
from cudf_polars.plan.properties import walk
from cudf_polars.plan.rebuild_expressions import to_expr

__all__ = ["choose", "translate_expression"]


def translate_expression(expr: ex.Expr, scope: Scope) -> Typed:
    """Return a row-wise expression as calls of primitives.

    Raises
    ------
    Unsupported
        If it has no form on a GPU; names the innermost expression that has none.
    """
    try:
        made = _translate(expr, scope)
    except Unsupported as refused:
        if refused.expression is None:
            raise Unsupported(refused.reason, expr) from None
        raise
    if expr.dtype is not None and expr.dtype != made.dtype and not isinstance(expr.dtype, pl.Null):
        raise Unsupported(f"Polars gives it the type {expr.dtype}, not {made.dtype}", expr)
    return made


def _translate(expr: ex.Expr, scope: Scope) -> Typed:
    match expr:
        case ex.Column():
            found = scope.columns.get(expr.name)
            if found is None:
                if expr.dtype is not None:
                    device_type(expr.dtype)  # sources leave out columns that have no form
                raise Unsupported(f"the column {expr.name!r} is not there")
            return found
        case ex.Literal():
            return _literal(expr, scope.constants)
        case _ if _is_constant(expr):
            return _literal(_folded(expr), scope.constants)
        case ex.BinaryOp():
            left, right = (translate_expression(e, scope) for e in (expr.left, expr.right))
            return operators.binary(expr.op, left, right, scope.constants, expr.dtype)
        case ex.Cast():
            child = translate_expression(expr.child, scope)
            return cast(child, expr.to, expr.mode, scope.constants)
        case ex.Ternary():
            return _ternary(expr, scope)
        case ex.Function():
            return translate_function(expr, scope, translate_expression)
        case _:
            raise Unsupported(f"the expression {type(expr).__name__} has no form on a GPU")


def _is_constant(expr: ex.Expr) -> bool:
    """Whether Polars can compute an expression without rows."""
    return all(isinstance(e, ex.Literal | ex.BinaryOp | ex.Cast | ex.Ternary) for e in walk(expr))


def _folded(expr: ex.Expr) -> ex.Literal:
    try:
        series = pl.select(to_expr(expr)).to_series()
    except Exception as error:
        raise Unsupported(f"Polars cannot compute this constant: {error}") from error
    if len(series) != 1:
        raise Unsupported("a constant of several rows")
    return ex.Literal(ex.FrozenSeries(series), dtype=series.dtype)


def _literal(expr: ex.Literal, constants: Constants) -> Typed:
    value, dtype = expr.value, expr.dtype
    if isinstance(value, ex.FrozenSeries):
        series = value.series
        if len(series) != 1 or series.dtype.is_nested():
            raise Unsupported("a literal of several values")
        if not isinstance(series.dtype, pl.Null):
            return constants.only(series)
        value, dtype = None, series.dtype
    if dtype is None:
        raise Unsupported("a literal without a type")
    if value is None and isinstance(dtype, pl.Null):
        dtype = pl.Boolean()  # whoever uses it brings it to the type of its other input
    return constants.value(value, dtype)


def _ternary(expr: ex.Ternary, scope: Scope) -> Typed:
    predicate = translate_expression(expr.predicate, scope)
    truthy, falsy = (translate_expression(e, scope) for e in (expr.truthy, expr.falsy))
    return choose(predicate, truthy, falsy, scope.constants)


def choose(predicate: Typed, truthy: Typed, falsy: Typed, constants: Constants) -> Typed:
    """Return ``truthy`` where a condition holds, else ``falsy``; both of one type.

    Raises
    ------
    Unsupported
        If the types differ.
    """
    if truthy.is_null_literal and falsy.is_null_literal:
        return truthy
    if truthy.is_null_literal:
        truthy = null(falsy.dtype, falsy.type)
    elif falsy.is_null_literal:
        falsy = null(truthy.dtype, truthy.type)
    elif isinstance(truthy.dtype, pl.Decimal) and isinstance(falsy.dtype, pl.Decimal):
        if truthy.dtype != falsy.dtype:
            raise Unsupported(f"a choice between {truthy.dtype} and {falsy.dtype}")
        truthy, falsy = decimals.align([truthy, falsy], constants)
    if truthy.dtype != falsy.dtype:
        raise Unsupported(f"a choice between {truthy.dtype} and {falsy.dtype}")
    if predicate.literal is not None or predicate.is_null_literal:
        return truthy if predicate.literal else falsy
    both = [t for t in (truthy, falsy) if not t.is_null_literal]
    return call(
        "copy_if_else",
        (predicate, truthy, falsy),
        truthy.dtype,
        type=truthy.type,
        range=operators.hull(*(t.range for t in both)),
        nullable=truthy.nullable or falsy.nullable,
    )
