"""The binary operators of Polars."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

from cudf_polars.execute.gpu.translate import decimals
from cudf_polars.execute.gpu.translate.casts import cast, widen_to_float
from cudf_polars.execute.gpu.translate.ranges import Interval, Range, combine, limits_of
from cudf_polars.execute.gpu.translate.ticks import DAY_TICKS, from_ticks, ticks_of
from cudf_polars.execute.gpu.translate.typed import Constants, Typed, call, condition, null
from cudf_polars.execute.gpu.translate.types import device_type, is_float, is_integer
from cudf_polars.execute.gpu.translate.untranslatable import Unsupported
from cudf_polars.plan.expressions import CastMode, Operator

__all__ = ["all_of", "any_of", "binary", "compare", "hull", "negated"]

_COMPARISONS = {
    Operator.EQ: "equal",
    Operator.NE: "not_equal",
    Operator.LT: "less",
    Operator.LE: "less_equal",
    Operator.GT: "greater",
    Operator.GE: "greater_equal",
    Operator.EQ_MISSING: "null_equals",
    Operator.NE_MISSING: "null_not_equals",
}
_SWAPPED = {
    Operator.LT: Operator.GT,
    Operator.LE: Operator.GE,
    Operator.GT: Operator.LT,
    Operator.GE: Operator.LE,
}
_LOGICAL = (Operator.AND, Operator.OR, Operator.XOR)
_BITWISE = {Operator.AND: "bitwise_and", Operator.OR: "bitwise_or", Operator.XOR: "bitwise_xor"}
_ARITHMETIC = {Operator.ADD: "add", Operator.SUB: "sub", Operator.MUL: "mul"}


def binary(op: Operator, a: Typed, b: Typed, constants: Constants, dtype: pl.DataType | None) -> Typed:
    """Return ``a op b``.

    Parameters
    ----------
    dtype
        The type that Polars gives the result, if it shows it.

    Raises
    ------
    Unsupported
        If the operator has no form for these types.
    """
    if op in _COMPARISONS:
        return compare(op, a, b, constants)
    if isinstance(a.dtype, pl.Boolean) and isinstance(b.dtype, pl.Boolean) and op in _LOGICAL:
        return _logical(op, a, b)
    if isinstance(a.dtype, pl.Decimal) and isinstance(b.dtype, pl.Decimal):
        return decimals.arithmetic(op, a, b, constants)
    if a.dtype.is_temporal() or b.dtype.is_temporal():
        if op is Operator.MUL and isinstance(a.dtype, pl.Duration) and is_integer(b.dtype):
            count = cast(b, pl.Int64(), CastMode.NON_STRICT, constants)
            return from_ticks(constants, call("mul", (_plain(a, constants), count), pl.Int64()), a.dtype)
        return _temporal(op, a, b, constants)
    if isinstance(a.dtype, pl.String) and isinstance(b.dtype, pl.String) and op is Operator.ADD:
        return call("str.concat", (a, b), pl.String(), ("",))
    if a.dtype != b.dtype:
        raise Unsupported(f"{op} of {a.dtype} and {b.dtype}")
    if is_integer(a.dtype):
        return _integers(op, a, b, constants)
    if is_float(a.dtype):
        return _floats(op, a, b)
    raise Unsupported(f"{op} of {a.dtype}")


def _logical(op: Operator, a: Typed, b: Typed) -> Typed:
    match op:
        case Operator.AND:
            return all_of(a, b)
        case Operator.OR:
            return any_of(a, b)
        case _:
            if a.literal is not None and b.literal is not None:
                raise Unsupported(f"{op} of constants")
            return condition("not_equal", a, b)


def any_of(a: Typed, b: Typed) -> Typed:
    """Return whether one of two conditions holds (Kleene)."""
    for one, other in ((a, b), (b, a)):
        if one.literal is not None:
            return one if one.literal else other
    return condition("null_logical_or", a, b)


def all_of(a: Typed, b: Typed) -> Typed:
    """Return whether both of two conditions hold (Kleene)."""
    for one, other in ((a, b), (b, a)):
        if one.literal is not None:
            return other if one.literal else one
    return condition("null_logical_and", a, b)


def negated(a: Typed) -> Typed:
    """Return the opposite of a condition; null stays null."""
    return condition("not", a)


# --- comparisons ----------------------------------------------------------------------


def compare(op: Operator, a: Typed, b: Typed, constants: Constants) -> Typed:
    """Return a comparison: NaN equals NaN and is larger than all other numbers."""
    missing = op in (Operator.EQ_MISSING, Operator.NE_MISSING)
    if a.is_null_literal or b.is_null_literal:
        other = b if a.is_null_literal else a
        if not missing:
            return null(pl.Boolean())
        if other.literal is not None or other.is_null_literal:
            raise Unsupported("a comparison of constants")
        return condition("is_null" if op is Operator.EQ_MISSING else "is_valid", other, nullable=False)
    if a.literal is not None and b.literal is not None:
        return _constants(op, a, b, constants)
    if isinstance(a.dtype, pl.Decimal) and isinstance(b.dtype, pl.Decimal):
        a, b = decimals.align([a, b], constants)
    elif {a.dtype, b.dtype} == {pl.Int64(), pl.UInt64()}:
        return _signed_unsigned(op, a, b, constants)
    elif a.dtype != b.dtype:
        raise Unsupported(f"a comparison of {a.dtype} and {b.dtype}")
    elif a.dtype.is_nested():
        raise Unsupported(f"a comparison of {a.dtype}")
    elif a.nan or b.nan:
        return _with_nans(op, a, b)
    return _compared(op, a, b)


def _constants(op: Operator, a: Typed, b: Typed, constants: Constants) -> Typed:
    left, right = (constants.of(t) for t in (a, b))
    plain = {Operator.EQ_MISSING: "eq", Operator.NE_MISSING: "ne"}.get(op, op.name.lower())
    answer: pl.Series = getattr(left, plain)(right)
    return constants.value(answer.item(), pl.Boolean())


def _compared(op: Operator, a: Typed, b: Typed) -> Typed:
    missing = op in (Operator.EQ_MISSING, Operator.NE_MISSING)
    return condition(_COMPARISONS[op], a, b, nullable=False if missing else None)


def _is_nan(t: Typed) -> Typed:
    if t.literal is not None:
        raise Unsupported("a comparison with a NaN")
    return condition("is_nan", t, nullable=False)


def _with_nans(op: Operator, a: Typed, b: Typed) -> Typed:
    plain = _compared(op, a, b)
    match op:
        case Operator.EQ | Operator.EQ_MISSING if a.nan and b.nan:
            return any_of(plain, all_of(_is_nan(a), _is_nan(b)))
        case Operator.NE | Operator.NE_MISSING if a.nan and b.nan:
            return all_of(plain, negated(all_of(_is_nan(a), _is_nan(b))))
        case Operator.GT | Operator.GE if a.nan:
            nan = _is_nan(a)
            if op is Operator.GT and b.nan:
                nan = all_of(nan, negated(_is_nan(b)))
            if b.nullable:  # a null beside a NaN gives null: false or null
                nan = all_of(nan, condition("is_valid", b, nullable=False))
            return any_of(plain, nan)
        case Operator.LT | Operator.LE if b.nan:
            return _with_nans(_SWAPPED[op], b, a)
        case _:
            return plain


def _signed_unsigned(op: Operator, a: Typed, b: Typed, constants: Constants) -> Typed:
    """Compare Int64 with UInt64: negative numbers are smaller than all of the latter."""
    if isinstance(a.dtype, pl.UInt64):
        return _signed_unsigned(_SWAPPED.get(op, op), b, a, constants)
    if op in (Operator.EQ_MISSING, Operator.NE_MISSING) or a.literal is not None or b.literal is not None:
        raise Unsupported(f"a comparison of {a.dtype} and {b.dtype}")
    zero = constants.value(0, pl.UInt64())
    negative = condition("less", a, constants.value(0, pl.Int64()))
    magnitude = call("cast", (a,), pl.UInt64(), type=device_type(pl.UInt64()))
    smaller = op in (Operator.LT, Operator.LE, Operator.NE)
    # of a row whose b is null, this is null too
    answer = condition("greater_equal" if smaller else "less", b, zero)
    return condition("copy_if_else", negative, answer, _compared(op, magnitude, b))


# --- arithmetic ----------------------------------------------------------------------


def _sum(a: Interval, b: Interval) -> Interval:
    return (a[0] + b[0], a[1] + b[1])


def _difference(a: Interval, b: Interval) -> Interval:
    return (a[0] - b[1], a[1] - b[0])


def _product(a: Interval, b: Interval) -> Interval:
    corners = [x * y for x in a for y in b]
    return (min(corners), max(corners))


def hull(*ranges: Range) -> Range:
    """Return the range of what comes from either of several."""
    return combine(lambda *i: (min(x[0] for x in i), max(x[1] for x in i)), *ranges)


_RANGES: dict[Operator, Callable[[Interval, Interval], Interval]] = {
    Operator.ADD: _sum,
    Operator.SUB: _difference,
    Operator.MUL: _product,
}


def _integers(op: Operator, a: Typed, b: Typed, constants: Constants) -> Typed:
    dtype = a.dtype
    if op in _BITWISE:
        return call(_BITWISE[op], (a, b), dtype)
    if op in _ARITHMETIC:
        limits = limits_of(dtype)
        assert limits is not None
        low, high = limits

        def bounded(x: Interval, y: Interval) -> Interval:
            out = _RANGES[op](x, y)
            return out if low <= out[0] and out[1] <= high else (low, high)

        return call(_ARITHMETIC[op], (a, b), dtype, range=combine(bounded, a.range, b.range))
    if op is Operator.TRUE_DIV:
        return _floats(op, widen_to_float(a, constants), widen_to_float(b, constants))
    return _divided(op, a, b, constants)


def _divided(op: Operator, a: Typed, b: Typed, constants: Constants) -> Typed:
    """Divide integers: by zero is null, and the least one by -1 wraps around, where libcudf defines neither."""
    dtype, name = a.dtype, _DIVISIONS[op]
    if b.literal is not None:
        if b.literal == 0:
            return null(dtype)
        if b.literal == -1:
            negative = call("sub", (constants.value(0, dtype), a), dtype)
            return negative if op is not Operator.MOD else call("sub", (a, a), dtype)
        return call(name, (a, b), dtype)
    zero = condition("equal", b, constants.value(0, dtype))
    divisor = call("copy_if_else", (zero, null(dtype), b), dtype)
    limits = limits_of(dtype)
    assert limits is not None
    if limits[0] == 0 or b.range.within(0, limits[1]) or a.range.within(limits[0] + 1, limits[1]):
        return call(name, (a, divisor), dtype)
    is_minus_one = condition("equal", b, constants.value(-1, dtype))
    divisor = call("copy_if_else", (is_minus_one, constants.value(1, dtype), divisor), dtype)
    quotient = call(name, (a, divisor), dtype)
    if op is Operator.MOD:
        return quotient
    negative = call("sub", (constants.value(0, dtype), quotient), dtype)
    return call("copy_if_else", (is_minus_one, negative, quotient), dtype)


_DIVISIONS = {
    Operator.FLOOR_DIV: "floor_div",
    Operator.TRUNC_DIV: "div",
    Operator.RUST_DIV: "div",
    Operator.MOD: "pymod",
}

_LARGEST = 1.7e308


def _floats(op: Operator, a: Typed, b: Typed) -> Typed:
    dtype = a.dtype
    unknown = Range()
    match op:
        case Operator.ADD | Operator.SUB | Operator.MUL:
            range_ = combine(lambda x, y: _finite(_RANGES[op](x, y)), a.range, b.range)
            if isinstance(dtype, pl.Float32):
                range_ = unknown
            return call(_ARITHMETIC[op], (a, b), dtype, range=range_)
        case Operator.TRUE_DIV | Operator.RUST_DIV:
            if isinstance(b.literal, float) and abs(b.literal) >= 1.0 and isinstance(dtype, pl.Float64):
                divisor = b.literal
                range_ = combine(lambda x: _finite(_product(x, (1 / divisor, 1 / divisor))), a.range)
                return call("div", (a, b), dtype, range=range_)
            return call("div", (a, b), dtype, range=unknown)
        case Operator.FLOOR_DIV:
            return _floor_of_quotient(a, b)
        case Operator.MOD:
            multiple = call("mul", (_floor_of_quotient(a, b), b), dtype, range=unknown)
            return call("sub", (a, multiple), dtype, range=unknown)
        case _:
            raise Unsupported(f"{op} of {dtype}")


def _finite(interval: Interval) -> Interval | None:
    return interval if -_LARGEST < interval[0] and interval[1] < _LARGEST else None


def _floor_of_quotient(a: Typed, b: Typed) -> Typed:
    return call("floor", (call("div", (a, b), a.dtype, range=Range()),), a.dtype, range=Range())


def _temporal(op: Operator, a: Typed, b: Typed, constants: Constants) -> Typed:
    """Add and subtract dates, datetimes and durations as the integers that they are."""
    if op not in (Operator.ADD, Operator.SUB):
        raise Unsupported(f"{op} of {a.dtype} and {b.dtype}")
    if any(t.literal is not None and not isinstance(t.dtype, pl.Duration) for t in (a, b)):
        raise Unsupported(f"{op} of a constant date")
    match a.dtype, b.dtype:
        case pl.Date(), pl.Date() if op is Operator.SUB:
            days = call("sub", (ticks_of(a), ticks_of(b)), pl.Int64())
            day = constants.value(DAY_TICKS["us"], pl.Int64())
            return from_ticks(constants, call("mul", (days, day), pl.Int64()), pl.Duration("us"))
        case pl.Datetime(), pl.Datetime() if op is Operator.SUB and a.dtype == b.dtype:
            return _ticks(op, a, b, pl.Duration(a.dtype.time_unit), constants)
        case pl.Datetime(), pl.Duration() if a.dtype.time_unit == b.dtype.time_unit:
            return _ticks(op, a, b, a.dtype, constants)
        case pl.Duration(), pl.Datetime() if op is Operator.ADD and a.dtype.time_unit == b.dtype.time_unit:
            return _ticks(op, a, b, b.dtype, constants)
        case pl.Duration(), pl.Duration() if a.dtype == b.dtype:
            return _ticks(op, a, b, a.dtype, constants)
        case pl.Date(), pl.Duration():
            day = constants.value(DAY_TICKS[b.dtype.time_unit], pl.Int64())
            start = call("mul", (ticks_of(a), day), pl.Int64())
            moved = call(_ARITHMETIC[op], (start, _plain(b, constants)), pl.Int64())
            return from_ticks(constants, call("floor_div", (moved, day), pl.Int64()), a.dtype)
        case _:
            raise Unsupported(f"{op} of {a.dtype} and {b.dtype}")


def _ticks(op: Operator, a: Typed, b: Typed, dtype: pl.DataType, constants: Constants) -> Typed:
    ticks = call(_ARITHMETIC[op], (_plain(a, constants), _plain(b, constants)), pl.Int64())
    return from_ticks(constants, ticks, dtype)


def _plain(t: Typed, constants: Constants) -> Typed:
    if t.literal is None:
        return ticks_of(t)
    return constants.value(constants.of(t).to_physical().item(), pl.Int64())
