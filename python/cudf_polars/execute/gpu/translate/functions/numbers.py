"""Functions of numbers."""

from __future__ import annotations

import math
from dataclasses import replace

import polars as pl

from cudf_polars.execute.gpu.translate import decimals
from cudf_polars.execute.gpu.translate.casts import cast
from cudf_polars.execute.gpu.translate.functions.call import (
    Form,
    FunctionCall,
    add,
    keep_null,
    multiply,
    subtract,
    where,
)
from cudf_polars.execute.gpu.translate.ranges import Range, limits_of
from cudf_polars.execute.gpu.translate.typed import Typed, call, condition, null
from cudf_polars.execute.gpu.translate.types import BITS, INT32, decimal_type, is_float, is_integer, scale_of
from cudf_polars.execute.gpu.translate.untranslatable import Unsupported
from cudf_polars.plan.expressions import CastMode

__all__ = ["FORMS"]

_FLOAT32, _FLOAT64 = pl.Float32(), pl.Float64()


def _as_float(c: FunctionCall, t: Typed) -> Typed:
    """Return a number as what functions of floats take: Float32 as it is, all else as Float64."""
    if isinstance(t.dtype, pl.Float32 | pl.Float64):
        return t
    if not t.dtype.is_numeric():
        raise Unsupported(f"{c.name} of {t.dtype}")
    return cast(t, _FLOAT64, CastMode.NON_STRICT, c.constants)


def _unary(op: str) -> Form:
    def form(c: FunctionCall) -> Typed:
        value = _as_float(c, c.column(0))
        return call(op, (value,), value.dtype, range=Range())

    return form


def _log(c: FunctionCall) -> Typed:
    value, base = _as_float(c, c.column(0)), c.constant(1)
    if not isinstance(base, int | float) or base <= 0 or base == 1:
        raise Unsupported(f"a logarithm of base {base!r}")
    natural = call("log", (value,), value.dtype, range=Range())
    if base == math.e:
        return natural
    return call("div", (natural, c.constants.value(math.log(base), value.dtype)), value.dtype, range=Range())


def _cot(c: FunctionCall) -> Typed:
    value = _as_float(c, c.column(0))
    tangent = call("tan", (value,), value.dtype, range=Range())
    return call("div", (c.constants.value(1.0, value.dtype), tangent), value.dtype, range=Range())


def _times(factor: float) -> Form:
    def form(c: FunctionCall) -> Typed:
        value = _as_float(c, c.column(0))
        return call("mul", (value, c.constants.value(factor, value.dtype)), value.dtype, range=Range())

    return form


def _sign(c: FunctionCall) -> Typed:
    value = c.column(0)
    if not (is_integer(value.dtype) or is_float(value.dtype)):
        raise Unsupported(f"the sign of {value.dtype}")
    zero, one = (c.constants.value(number, value.dtype) for number in (0, 1))
    above = condition("greater", value, zero)
    limits = limits_of(value.dtype)
    if limits is not None and limits[0] == 0:
        return where(above, one, value)
    below = condition("less", value, zero)
    # zeros of both signs, NaN and null are their own signs
    return where(above, one, where(below, c.constants.value(-1, value.dtype), value))


def _rounding(op: str) -> Form:
    def form(c: FunctionCall) -> Typed:
        value = c.column(0)
        if is_integer(value.dtype):
            return value
        if is_float(value.dtype):
            return call(op, (value,), value.dtype, range=Range())
        raise Unsupported(f"{c.name} of {value.dtype}")

    return form


def _round(c: FunctionCall) -> Typed:
    value = c.column(0)
    digits, mode = c.options
    if is_integer(value.dtype):
        return value
    if mode != "half_to_even":
        raise Unsupported(f"rounding by {mode}")
    if isinstance(value.dtype, pl.Decimal):
        scale = scale_of(value.dtype)
        if digits >= scale:
            return replace(value, dtype=c.dtype if isinstance(c.dtype, pl.Decimal) else value.dtype)
        rounded = decimals.round_to(value, pl.Decimal(38, digits))
        unit = 10 ** (scale - digits)
        wide = not rounded.range.within(-(2**62) // unit, 2**62 // unit)
        if wide and not rounded.range.within(-(10**37) // unit, 10**37 // unit):
            raise Unsupported("a decimal that may exceed 38 digits when it is rounded")
        again = decimals.rescale(rounded, scale, wide=wide, constants=c.constants)
        return replace(again, dtype=c.dtype if isinstance(c.dtype, pl.Decimal) else value.dtype)
    if digits != 0 or not is_float(value.dtype):
        raise Unsupported(f"rounding of {value.dtype} to {digits} digits")
    return call("rint", (value,), value.dtype, range=Range())


def _truncate(c: FunctionCall) -> Typed:
    value = c.column(0)
    (digits,) = c.options
    if is_integer(value.dtype):
        return value
    if digits != 0 or not is_float(value.dtype):
        raise Unsupported(f"truncation of {value.dtype} to {digits} digits")
    below = condition("less", value, c.constants.value(0.0, value.dtype))
    up, down = (call(op, (value,), value.dtype, range=Range()) for op in ("ceil", "floor"))
    return replace(where(below, up, down), range=Range())


def _abs(c: FunctionCall) -> Typed:
    value = c.column(0)
    limits = limits_of(value.dtype)
    if is_float(value.dtype):
        return call("abs", (value,), value.dtype, range=Range())
    if is_integer(value.dtype) and limits is not None:
        return value if limits[0] == 0 else call("abs", (value,), value.dtype)
    if isinstance(value.dtype, pl.Decimal):
        zero = decimals.rescale(
            c.constants.value(0, pl.Decimal(38, scale_of(value.dtype))),
            scale_of(value.dtype),
            wide=value.type == decimal_type(scale_of(value.dtype), wide=True),
            constants=c.constants,
        )
        below = condition("less", value, zero)
        negated = call("sub", (zero, value), value.dtype, type=value.type)
        return where(below, negated, value)
    raise Unsupported(f"the absolute of {value.dtype}")


def _negate(c: FunctionCall) -> Typed:
    value = c.column(0)
    if is_float(value.dtype):
        return call("negate", (value,), value.dtype, range=Range())
    limits = limits_of(value.dtype)
    if is_integer(value.dtype) and limits is not None and limits[0] < 0:
        return subtract(c.constants.value(0, value.dtype), value)
    raise Unsupported(f"the negative of {value.dtype}")


def _pow(c: FunctionCall) -> Typed:
    base, exponent = c.column(0), c.input(1)
    if is_integer(base.dtype) and is_integer(exponent.dtype):
        number = exponent.literal
        if number == 1:
            return base
        if number == 2:
            return multiply(base, base)
        if number == 3:
            return multiply(multiply(base, base), base)
        raise Unsupported("a power of integers that is not their square or cube")
    base = _as_float(c, base)
    if exponent.literal == 0.5:
        return call("sqrt", (base,), base.dtype, range=Range())
    exponent = cast(exponent, base.dtype, CastMode.NON_STRICT, c.constants)
    return call("pow", (base, exponent), base.dtype, range=Range())


def _atan2(c: FunctionCall) -> Typed:
    y, x = c.column(0), c.column(1)
    if y.dtype != x.dtype or not is_float(y.dtype):
        raise Unsupported(f"atan2 of {y.dtype} and {x.dtype}")
    return call("atan2", (y, x), y.dtype, range=Range())


def _is_nan(c: FunctionCall) -> Typed:
    return _nan_test(c, "not_equal", when_never=False)


def _is_not_nan(c: FunctionCall) -> Typed:
    return _nan_test(c, "equal", when_never=True)


def _nan_test(c: FunctionCall, op: str, *, when_never: bool) -> Typed:
    value = c.column(0)
    if value.nan:
        return condition(op, value, value)  # only NaN differs from itself; null stays null
    if not value.dtype.is_numeric():
        raise Unsupported(f"{c.name} of {value.dtype}")
    return _always(c, value, when_never)


def _always(c: FunctionCall, value: Typed, answer: bool) -> Typed:
    """Return the same answer for all rows that are not null."""
    return keep_null(c.constants.value(answer, pl.Boolean()), value)


def _is_finite(c: FunctionCall) -> Typed:
    value = c.column(0)
    if not value.nan:
        return _is_not_nan(c)
    difference = call("sub", (value, value), value.dtype, range=Range())
    return condition("equal", difference, c.constants.value(0.0, value.dtype))


def _is_infinite(c: FunctionCall) -> Typed:
    value = c.column(0)
    if not value.nan:
        return _is_nan(c)
    size = call("abs", (value,), value.dtype, range=Range())
    return condition("equal", size, c.constants.value(math.inf, value.dtype))


def _count_ones(c: FunctionCall) -> Typed:
    return _as_uint32(_ones(c))


def _count_zeros(c: FunctionCall) -> Typed:
    ones = _ones(c)
    bits = BITS[c.column(0).type.id]
    return _as_uint32(subtract(c.constants.value(bits, pl.Int32()), ones))


def _ones(c: FunctionCall) -> Typed:
    value = c.column(0)
    if not is_integer(value.dtype):
        raise Unsupported(f"the bits of {value.dtype}")
    return call("bit_count", (value,), pl.Int32(), type=INT32)


def _as_uint32(count: Typed) -> Typed:
    return call("cast", (count,), pl.UInt32())


def _reinterpret(c: FunctionCall) -> Typed:
    value = c.column(0)
    (dtype,) = c.options
    to = dtype() if isinstance(dtype, type) else dtype
    both = (value.dtype, to)
    if not isinstance(to, pl.DataType) or not all(is_integer(t) or is_float(t) for t in both):
        raise Unsupported(f"the bits of {value.dtype} as {to}")
    made = call("bit_cast", (value,), to, range=Range(limits_of(to)))
    if BITS[made.type.id] != BITS[value.type.id]:
        raise Unsupported(f"the bits of {value.dtype} as {to}")
    return made


def _sum_horizontal(c: FunctionCall) -> Typed:
    (ignore_nulls,) = c.options
    values = [c.column(place) for place in range(len(c.expressions))]
    dtype = values[0].dtype
    if any(v.dtype != dtype for v in values) or not (is_integer(dtype) or is_float(dtype)):
        raise Unsupported(f"a sum of {', '.join(str(v.dtype) for v in values)}")
    if ignore_nulls:
        zero = c.constants.value(0, dtype)
        values = [
            call("replace_nulls", (v, zero), dtype, range=Range(), nullable=False) if v.nullable else v
            for v in values
        ]
    total = values[0]
    for value in values[1:]:
        total = replace(add(total, value), range=Range(limits_of(dtype)))
    return total


def _mean_horizontal(c: FunctionCall) -> Typed:
    (ignore_nulls,) = c.options
    values = [c.column(place) for place in range(len(c.expressions))]
    if any(not isinstance(v.dtype, pl.Float64) for v in values):
        raise Unsupported("a mean of what is not Float64: Polars adds integers up in their own type")
    zero, one = (c.constants.value(number, _FLOAT64) for number in (0.0, 1.0))
    if not ignore_nulls and any(v.nullable for v in values):
        raise Unsupported("a mean that does not ignore nulls")
    total = count = None
    for value in values:
        valid = condition("is_valid", value, nullable=False)
        term = call("replace_nulls", (value, zero), _FLOAT64, range=Range(), nullable=False)
        here = replace(where(valid, one, zero), range=Range())
        total = term if total is None else replace(add(total, term), range=Range())
        count = here if count is None else replace(add(count, here), range=Range())
    assert total is not None
    assert count is not None
    some = condition("greater", count, zero)
    mean = call("div", (total, count), _FLOAT64, range=Range())
    return replace(where(some, mean, null(_FLOAT64)), range=Range(), nullable=True)


_UNARY = "sqrt cbrt exp sin cos tan arcsin arccos arctan sinh cosh tanh arcsinh arccosh arctanh"
"""Functions of libcudf's of the same names."""

FORMS: dict[str, Form] = {
    **{name: _unary(name) for name in _UNARY.split()},
    "log": _log,
    "cot": _cot,
    "degrees": _times(180.0 / math.pi),
    "radians": _times(math.pi / 180.0),
    "sign": _sign,
    "floor": _rounding("floor"),
    "ceil": _rounding("ceil"),
    "round": _round,
    "truncate": _truncate,
    "abs": _abs,
    "negate": _negate,
    "pow": _pow,
    "atan2": _atan2,
    "is_nan": _is_nan,
    "is_not_nan": _is_not_nan,
    "is_finite": _is_finite,
    "is_infinite": _is_infinite,
    "bitwise_count_ones": _count_ones,
    "bitwise_count_zeros": _count_zeros,
    "reinterpret": _reinterpret,
    "sum_horizontal": _sum_horizontal,
    "mean_horizontal": _mean_horizontal,
}
