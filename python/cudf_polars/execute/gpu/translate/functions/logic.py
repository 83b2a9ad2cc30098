"""Comparisons, conditions, nulls, and values in place of others."""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from cudf_polars.execute.gpu.translate import decimals, operators
from cudf_polars.execute.gpu.translate.casts import cast
from cudf_polars.execute.gpu.translate.functions.call import Form, FunctionCall, keep_null, where
from cudf_polars.execute.gpu.translate.ranges import Range
from cudf_polars.execute.gpu.translate.ticks import ticks_of
from cudf_polars.execute.gpu.translate.typed import Typed, call, condition, null
from cudf_polars.execute.gpu.translate.types import is_float, is_integer
from cudf_polars.execute.gpu.translate.untranslatable import Unsupported
from cudf_polars.plan.expressions import CastMode, Operator

__all__ = ["FORMS"]

_MOST_REPLACED = 32


def _is_between(c: FunctionCall) -> Typed:
    value, low, high = c.inputs()
    (closed,) = c.options
    above = Operator.GE if closed in ("both", "left") else Operator.GT
    below = Operator.LE if closed in ("both", "right") else Operator.LT
    return operators.all_of(
        operators.compare(above, value, low, c.constants),
        operators.compare(below, value, high, c.constants),
    )


def _not(c: FunctionCall) -> Typed:
    value = c.input(0)
    if isinstance(value.literal, bool):
        return c.constants.value(not value.literal, pl.Boolean())
    if isinstance(value.dtype, pl.Boolean):
        return operators.negated(value)
    if is_integer(value.dtype):
        return call("bit_invert", (value,), value.dtype)
    raise Unsupported(f"the opposite of {value.dtype}")


def _is_in(c: FunctionCall) -> Typed:
    value, series = c.column(0), c.series(1)
    (nulls_equal,) = c.options
    if series.dtype.is_nested() or (series.dtype != value.dtype and len(series) > 0):
        raise Unsupported(f"is_in of {value.dtype} in {series.dtype}")
    if isinstance(value.dtype, pl.Decimal):
        raise Unsupported("is_in of decimals")
    values = series.drop_nulls().unique(maintain_order=True)
    if len(values) == 0:
        found = keep_null(c.constants.value(False, pl.Boolean()), value)
    elif len(values) == 1 and not value.nan:
        found = condition("equal", value, c.constants.only(values))
    else:
        if is_float(value.dtype):
            value = call("normalize_nans_and_zeros", (value,), value.dtype, range=value.range)
            values = values + 0.0  # zeros of one sign
        # a set of one value would be taken for a scalar
        values = values if len(values) > 1 else pl.concat([values, values])
        found = condition("contains", Typed(c.constants.set_of(values), value.dtype, nullable=False), value)
    if nulls_equal and found.nullable:
        with_null = c.constants.value(series.has_nulls(), pl.Boolean())
        return condition("replace_nulls", found, with_null, nullable=False)
    return found


def _nullness(op: str, *, when_never: bool) -> Form:
    def form(c: FunctionCall) -> Typed:
        value = c.input(0)
        if value.is_null_literal:
            return c.constants.value(not when_never, pl.Boolean())
        if not value.nullable:
            return c.constants.value(when_never, pl.Boolean())
        return condition(op, value, nullable=False)

    return form


def _coalesce(c: FunctionCall) -> Typed:
    values: list[Typed] = []
    for value in c.inputs():
        if not value.is_null_literal:
            values.append(value)
        if not value.nullable:
            break
    if not values:
        return c.input(0)
    if all(isinstance(v.dtype, pl.Decimal) for v in values):
        if len({str(v.dtype) for v in values}) > 1:
            raise Unsupported("decimals of several types")
        values = decimals.align(values, c.constants)
    out = values.pop()
    while values:
        first = values.pop()
        if first.dtype != out.dtype or first.dtype.is_nested():
            raise Unsupported(f"{c.name} of {first.dtype} and {out.dtype}")
        out = call(
            "replace_nulls",
            (first, out),
            first.dtype,
            type=first.type,
            range=operators.hull(first.range, out.range),
            nullable=out.nullable,
        )
    return out


def _fill_null(c: FunctionCall) -> Typed:
    c.column(0)  # Polars gives a constant without nulls back as it is: one row of it for each morsel
    return _coalesce(c)


def _clip(c: FunctionCall) -> Typed:
    has_min, has_max = c.options
    value = c.column(0)
    bounds = [c.input(place) for place in range(1, len(c.expressions))]
    bounds = [b if b.literal is None else cast(b, value.dtype, CastMode.STRICT, c.constants) for b in bounds]
    if any(b.dtype != value.dtype and not b.is_null_literal for b in bounds):
        raise Unsupported(f"bounds of another type than {value.dtype}")
    if isinstance(value.dtype, pl.Decimal) or not (value.dtype.is_numeric() or value.dtype.is_temporal()):
        raise Unsupported(f"bounds of {value.dtype}")
    out = value
    if has_max and not bounds[-1].is_null_literal:
        out = _bounded("greater", value, bounds[-1], out)
    if has_min and not bounds[0].is_null_literal:
        out = _bounded("less", value, bounds[0], out)
    return out


def _bounded(op: str, value: Typed, bound: Typed, otherwise: Typed) -> Typed:
    """Return the bound where a value is beyond it; NaN and null are beyond nothing."""
    if isinstance(bound.literal, float) and bound.literal != bound.literal:
        raise Unsupported("a bound that is NaN")
    return replace(where(condition(op, value, bound), bound, otherwise), range=Range())


def _horizontal(op: str) -> Form:
    def form(c: FunctionCall) -> Typed:
        values = c.inputs()
        out = values[0]
        if any(not isinstance(v.dtype, pl.Boolean) for v in values):
            raise Unsupported(f"{c.name} of what are no conditions")
        for value in values[1:]:
            out = operators.any_of(out, value) if op == "or" else operators.all_of(out, value)
        return out

    return form


def _extreme(op: str) -> Form:
    def form(c: FunctionCall) -> Typed:
        values = [c.column(place) for place in range(len(c.expressions))]
        dtype = values[0].dtype
        if any(v.dtype != dtype for v in values):
            raise Unsupported(f"{c.name} of several types")
        if not (
            is_integer(dtype) or is_float(dtype) or isinstance(dtype, pl.Date | pl.Datetime | pl.Duration)
        ):
            raise Unsupported(f"{c.name} of {dtype}")
        if any(v.nan for v in values):
            return _extreme_with_nans(c, op, values)
        out = values[0]
        for value in values[1:]:
            out = _pair(op, out, value)
        return out

    return form


def _pair(op: str, a: Typed, b: Typed) -> Typed:
    return call(
        op, (a, b), a.dtype, range=operators.hull(a.range, b.range), nullable=a.nullable and b.nullable
    )


def _extreme_with_nans(c: FunctionCall, op: str, values: list[Typed]) -> Typed:
    """Return the extreme of numbers; NaN only if there is no number but a NaN."""
    dtype = values[0].dtype
    numbers = [call("nans_to_nulls", (v,), dtype, range=Range(), nullable=True) for v in values]
    out, some_nan = numbers[0], condition("is_nan", values[0], nullable=False)
    for number, value in zip(numbers[1:], values[1:], strict=True):
        out = _pair(op, out, number)
        some_nan = operators.any_of(some_nan, condition("is_nan", value, nullable=False))
    only = operators.all_of(condition("is_null", out, nullable=False), some_nan)
    return replace(where(only, c.constants.value(float("nan"), dtype), out), range=Range(), nullable=True)


def _replace(c: FunctionCall) -> Typed:
    value = c.column(0)
    return _replaced(c, value, value, value.dtype)


def _replace_strict(c: FunctionCall) -> Typed:
    if len(c.expressions) < 4:
        raise Unsupported("replace_strict without a default may fail")
    if c.dtype is None:
        raise Unsupported("replace_strict to an unknown type")
    default = c.input(3)
    default = null(c.dtype) if default.is_null_literal else default
    return _replaced(c, c.column(0), default, c.dtype)


def _replaced(c: FunctionCall, value: Typed, default: Typed, dtype: pl.DataType) -> Typed:
    old, new = c.series(1), c.series(2)
    if len(new) == 1:
        new = new.new_from_index(0, len(old))
    if len(old) > _MOST_REPLACED or len(old) != len(new):
        raise Unsupported(f"{c.name} of {len(old)} values")
    if default.dtype != dtype or dtype.is_nested() or isinstance(value.dtype, pl.Decimal):
        raise Unsupported(f"{c.name} of {value.dtype} to {dtype}")
    if isinstance(dtype, pl.Decimal):
        raise Unsupported(f"{c.name} to decimals")
    out = default
    for before, after in zip(old.to_list(), new.to_list(), strict=True):
        wanted = cast(c.constants.value(before, old.dtype), value.dtype, CastMode.NON_STRICT, c.constants)
        instead = cast(c.constants.value(after, new.dtype), dtype, CastMode.NON_STRICT, c.constants)
        if (before is not None and wanted.is_null_literal) or (after is not None and instead.is_null_literal):
            raise Unsupported(f"{c.name} of values that {value.dtype} cannot hold")
        here = operators.compare(Operator.EQ_MISSING, value, wanted, c.constants)
        out = replace(where(here, instead, out), range=Range())
    return out


def _same(c: FunctionCall) -> Typed:
    return c.input(0)


def _to_physical(c: FunctionCall) -> Typed:
    value = c.column(0)
    if value.dtype.is_temporal():
        ticks = ticks_of(value)
        to_days = isinstance(value.dtype, pl.Date)
        return cast(ticks, pl.Int32(), CastMode.WRAP, c.constants) if to_days else ticks
    if is_integer(value.dtype) or is_float(value.dtype) or isinstance(value.dtype, pl.String | pl.Boolean):
        return value
    raise Unsupported(f"{c.name} of {value.dtype}")


FORMS: dict[str, Form] = {
    "is_between": _is_between,
    "is_in": _is_in,
    "is_null": _nullness("is_null", when_never=False),
    "is_not_null": _nullness("is_valid", when_never=True),
    "not_": _not,
    "fill_null": _fill_null,
    "coalesce": _coalesce,
    "clip": _clip,
    "set_sorted": _same,
    "to_physical": _to_physical,
    "any_horizontal": _horizontal("or"),
    "all_horizontal": _horizontal("and"),
    "min_horizontal": _extreme("null_min"),
    "max_horizontal": _extreme("null_max"),
    "replace": _replace,
    "replace_strict": _replace_strict,
}
