"""Typed expressions back into Polars."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import polars as pl
import polars._plr as plr

from cudf_polars.plan import expressions as ex
from cudf_polars.plan.errors import CannotRebuild
from cudf_polars.plan.functions import FUNCTIONS
from cudf_polars.plan.opaque import expression_over
from cudf_polars.plan.serialized import deserialize_expr, serialize_expr

__all__ = ["column_name", "to_expr", "to_exprs"]


def _rust_division(a: pl.Expr, b: pl.Expr) -> pl.Expr:
    """Divide as Rust does, which Polars' API does not have."""
    form = serialize_expr(a / b)
    form["BinaryExpr"]["op"] = "RustDivide"
    return deserialize_expr(form)


_BINARY: dict[ex.Operator, Callable[[pl.Expr, pl.Expr], pl.Expr]] = {
    ex.Operator.EQ: operator.eq,
    ex.Operator.EQ_MISSING: lambda a, b: a.eq_missing(b),
    ex.Operator.NE: operator.ne,
    ex.Operator.NE_MISSING: lambda a, b: a.ne_missing(b),
    ex.Operator.LT: operator.lt,
    ex.Operator.LE: operator.le,
    ex.Operator.GT: operator.gt,
    ex.Operator.GE: operator.ge,
    ex.Operator.ADD: operator.add,
    ex.Operator.SUB: operator.sub,
    ex.Operator.MUL: operator.mul,
    ex.Operator.TRUE_DIV: operator.truediv,
    ex.Operator.RUST_DIV: _rust_division,
    ex.Operator.TRUNC_DIV: lambda a, b: a.truncdiv(b),
    ex.Operator.FLOOR_DIV: operator.floordiv,
    ex.Operator.MOD: operator.mod,
    ex.Operator.AND: operator.and_,
    ex.Operator.OR: operator.or_,
    ex.Operator.XOR: operator.xor,
}

_AGGREGATIONS: dict[str, Callable[[pl.Expr, tuple[Any, ...]], pl.Expr]] = {
    "sum": lambda e, o: e.sum(),
    "sum_or_null": lambda e, o: pl.when(e.count() > 0).then(e.sum()),
    "mean": lambda e, o: e.mean(),
    "median": lambda e, o: e.median(),
    "min": lambda e, o: e.min(),
    "max": lambda e, o: e.max(),
    "nan_min": lambda e, o: e.nan_min(),
    "nan_max": lambda e, o: e.nan_max(),
    "n_unique": lambda e, o: e.n_unique(),
    "first": lambda e, o: e.first(),
    "last": lambda e, o: e.last(),
    "first_non_null": lambda e, o: e.first(ignore_nulls=True),
    "last_non_null": lambda e, o: e.last(ignore_nulls=True),
    "std": lambda e, o: e.std(ddof=o[0]),
    "var": lambda e, o: e.var(ddof=o[0]),
    "count": lambda e, o: e.count(),
    "len": lambda e, o: e.len(),
    "implode": lambda e, o: e.implode(maintain_order=o[0]),
    "item": lambda e, o: e.item(allow_empty=o[0]),
}


def to_expr(expr: ex.Expr) -> pl.Expr:
    """Return the Polars expression that computes ``expr``.

    Raises
    ------
    CannotRebuild
        When Polars' API has no form for it; never for a plan that :func:`~cudf_polars.plan.read.read_plan`
        returned.
    """
    match expr:
        case ex.Column():
            return pl.col(column_name(expr.name))
        case ex.Literal():
            return _literal(expr)
        case ex.BinaryOp():
            build = _BINARY.get(expr.op)
            if build is None:
                raise CannotRebuild(f"operator {expr.op}")
            return build(to_expr(expr.left), to_expr(expr.right))
        case ex.Cast():
            return to_expr(expr.child).cast(
                expr.to,
                strict=expr.mode is ex.CastMode.STRICT,
                wrap_numerical=expr.mode is ex.CastMode.WRAP,
            )
        case ex.Agg():
            aggregate = _AGGREGATIONS.get(expr.name)
            if aggregate is None:
                raise CannotRebuild(f"aggregation {expr.name}")
            return aggregate(to_expr(expr.child), expr.options)
        case ex.Function():
            spec = FUNCTIONS.get(expr.name)
            if spec is None:
                raise CannotRebuild(f"function {expr.name}")
            inputs = [to_expr(e) for e in expr.inputs]
            try:
                return spec.build(inputs, expr.args)
            except (TypeError, ValueError, IndexError, AttributeError) as e:
                raise CannotRebuild(f"function {expr.name}{expr.args!r}: {e}") from e
        case ex.Ternary():
            return pl.when(to_expr(expr.predicate)).then(to_expr(expr.truthy)).otherwise(to_expr(expr.falsy))
        case ex.Filter():
            return to_expr(expr.child).filter(to_expr(expr.predicate))
        case ex.Len():
            return pl.len()
        case ex.Slice():
            return to_expr(expr.child).slice(to_expr(expr.offset), to_expr(expr.length))
        case ex.Sort():
            return to_expr(expr.child).sort(descending=expr.descending, nulls_last=expr.nulls_last)
        case ex.SortBy():
            return to_expr(expr.child).sort_by(
                [to_expr(e) for e in expr.by],
                descending=list(expr.descending),
                nulls_last=list(expr.nulls_last),
                maintain_order=expr.maintain_order,
            )
        case ex.Gather():
            child, indices = to_expr(expr.child), to_expr(expr.indices)
            if expr.scalar:
                return child.get(indices, null_on_oob=expr.null_on_oob)
            return child.gather(indices, null_on_oob=expr.null_on_oob)
        case ex.Explode():
            return to_expr(expr.child).explode(empty_as_null=expr.empty_as_null, keep_nulls=expr.keep_nulls)
        case ex.Window():
            mapping: Any = expr.mapping
            return to_expr(expr.child).over(
                [to_expr(e) for e in expr.partition_by] or None,
                order_by=None if expr.order_by is None else to_expr(expr.order_by),
                descending=expr.descending,
                nulls_last=expr.nulls_last,
                mapping_strategy=mapping,
            )
        case ex.Rolling():
            closed: Any = expr.closed
            return to_expr(expr.child).rolling(
                to_expr(expr.index), period=expr.period, offset=expr.offset, closed=closed
            )
        case ex.StructEval():
            return to_expr(expr.child).struct.with_fields(to_exprs(expr.fields))
        case ex.Opaque():
            return expression_over(expr.source, [to_expr(e) for e in expr.inputs])
    raise CannotRebuild(f"expression {type(expr).__name__}")


def to_exprs(exprs: Sequence[ex.NamedExpr]) -> list[pl.Expr]:
    """Return Polars expressions that carry their output names."""
    return [to_expr(e.expr).alias(e.name) for e in exprs]


def column_name(name: str) -> str:
    """Return a name for ``pl.col``, which takes it for that of one column.

    Raises
    ------
    CannotRebuild
        When it does not.
    """
    # pl.col takes "^...$" for a pattern and "*" for all columns; a column may be called so
    if name == "*" or (name.startswith("^") and name.endswith("$")):
        raise CannotRebuild(f"a column called {name!r}")
    return name


def _literal(expr: ex.Literal) -> pl.Expr:
    value = expr.value
    if isinstance(value, ex.FrozenSeries):
        series = value.series
    elif expr.dtype is None:
        return pl.lit(value)
    elif isinstance(expr.dtype, pl.Datetime | pl.Duration) and isinstance(value, int):
        series = pl.Series("literal", [value], dtype=pl.Int64).cast(expr.dtype)
    else:
        series = pl.Series("literal", [value], dtype=expr.dtype)
    return pl.Expr._from_pyexpr(plr.lit(series._s, allow_object=False, is_scalar=expr.scalar))
