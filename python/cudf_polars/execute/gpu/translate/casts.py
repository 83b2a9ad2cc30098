"""Casts: what Polars does with values that the new type cannot hold."""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from cudf_polars.execute.gpu.program import TypeId
from cudf_polars.execute.gpu.translate import decimals
from cudf_polars.execute.gpu.translate.ranges import Interval, Range, combine, limits_of
from cudf_polars.execute.gpu.translate.ticks import DAY_TICKS, days_of, from_ticks, ticks_of
from cudf_polars.execute.gpu.translate.typed import Constants, Typed, call, condition, null
from cudf_polars.execute.gpu.translate.types import decimal_type, device_type, is_float, is_integer, scale_of
from cudf_polars.execute.gpu.translate.untranslatable import Unsupported
from cudf_polars.plan.expressions import CastMode

__all__ = ["cast", "widen_to_float"]


def cast(t: Typed, to: pl.DataType, mode: CastMode, constants: Constants) -> Typed:
    """Return a value in another type.

    Raises
    ------
    Unsupported
        If the cast has no form, or may fail where Polars raises.
    """
    if t.dtype == to:
        return t
    if t.is_null_literal:
        return null(to)
    if t.literal is not None:
        return _constant(t, to, mode, constants)
    source = t.dtype
    if isinstance(source, pl.Boolean) and to.is_numeric() and not isinstance(to, pl.Decimal):
        return call("cast", (t,), to, range=Range((0, 1)))
    if is_integer(source) and is_integer(to):
        return _integers(t, to, mode, constants)
    if is_integer(source) and is_float(to):
        return call("cast", (t,), to, range=combine(_as_floats, t.range))
    if is_float(source) and is_float(to):
        return call("cast", (t,), to, range=t.range if isinstance(to, pl.Float64) else Range())
    if is_float(source) and is_integer(to):
        return _float_to_integer(t, to, mode, constants)
    if isinstance(to, pl.Boolean) and (is_integer(source) or is_float(source)):
        return condition("not_equal", t, constants.value(0, source))
    if isinstance(source, pl.Decimal):
        return _from_decimal(t, to, mode, constants)
    if isinstance(to, pl.Decimal) and is_integer(source):
        return _integer_to_decimal(t, to, constants)
    if isinstance(to, pl.String):
        return _to_text(t)
    temporal = _temporal(t, to, constants)
    if temporal is not None:
        return temporal
    raise Unsupported(f"a cast from {source} to {to}")


def widen_to_float(t: Typed, constants: Constants) -> Typed:
    """Return a number as Float64."""
    return cast(t, pl.Float64(), CastMode.NON_STRICT, constants)


def _constant(t: Typed, to: pl.DataType, mode: CastMode, constants: Constants) -> Typed:
    device_type(to)
    series = constants.of(t)
    try:
        done = series.cast(to, strict=mode is CastMode.STRICT, wrap_numerical=mode is CastMode.WRAP)
    except pl.exceptions.PolarsError as error:
        raise Unsupported(f"a cast that fails: {str(error).splitlines()[0]}") from error
    return constants.only(done)


def _as_floats(interval: Interval) -> Interval:
    return (float(interval[0]), float(interval[1]))


def _may_fail(mode: CastMode, t: Typed, to: pl.DataType) -> Unsupported:
    return Unsupported(f"a strict cast from {t.dtype} to {to} that may fail")


def _integers(t: Typed, to: pl.DataType, mode: CastMode, constants: Constants) -> Typed:
    limits, source = limits_of(to), limits_of(t.dtype)
    assert limits is not None
    assert source is not None
    if t.range.within(*limits) or (limits[0] <= source[0] and source[1] <= limits[1]):
        return call("cast", (t,), to, range=t.range)
    if mode is CastMode.WRAP:
        return call("cast", (t,), to)
    if mode is CastMode.STRICT:
        raise _may_fail(mode, t, to)
    tests = []
    if source[0] < limits[0]:
        tests.append(condition("greater_equal", t, constants.value(limits[0], t.dtype)))
    if source[1] > limits[1]:
        tests.append(condition("less_equal", t, constants.value(limits[1], t.dtype)))
    fits = tests[0] if len(tests) == 1 else condition("null_logical_and", *tests)
    return call("copy_if_else", (fits, call("cast", (t,), to), null(to)), to, nullable=True)


def _float_to_integer(t: Typed, to: pl.DataType, mode: CastMode, constants: Constants) -> Typed:
    limits = limits_of(to)
    assert limits is not None
    low, high = limits
    if t.range.within(low, high) and high <= 2**53:
        return call("cast", (t,), to, range=combine(lambda i: (int(i[0]), int(i[1])), t.range))
    if mode is not CastMode.NON_STRICT:
        raise _may_fail(mode, t, to)
    # Powers of two are exact in floats; NaN fails both comparisons, and null stays null.
    above = condition("greater", t, constants.value(float(low) - 1.0, t.dtype))
    if float(low) - 1.0 == float(low):
        above = condition("greater_equal", t, constants.value(float(low), t.dtype))
    below = condition("less", t, constants.value(float(high + 1), t.dtype))
    fits = condition("null_logical_and", above, below)
    done = call("cast", (t,), to, range=Range((low, high)))
    return call("copy_if_else", (fits, done, null(to)), to, nullable=True)


def _from_decimal(t: Typed, to: pl.DataType, mode: CastMode, constants: Constants) -> Typed:
    scale = scale_of(t.dtype)
    unit = 10**scale
    if is_float(to):
        number = decimals.to_float(t, constants)
        return number if isinstance(to, pl.Float64) else call("cast", (number,), to, range=Range())
    if isinstance(to, pl.Decimal):
        return _decimals(t, to, mode)
    if is_integer(to):
        limits = limits_of(to)
        assert limits is not None
        whole = combine(lambda i: (-(-i[0] // unit), i[1] // unit), t.range)
        if whole.within(*limits):
            return call("cast", (t,), to, range=whole)
        raise _may_fail(mode, t, to)
    raise Unsupported(f"a cast from {t.dtype} to {to}")


def _decimals(t: Typed, to: pl.DataType, mode: CastMode) -> Typed:
    """Change precision and scale; the type on the device follows what the values need."""
    limits = limits_of(to)
    assert limits is not None
    scale, wanted = scale_of(t.dtype), scale_of(to)
    if wanted < scale:
        done = decimals.round_to(t, to)
        if not done.range.within(*limits):
            raise _may_fail(mode, t, to)
        return done
    factor = 10 ** (wanted - scale)
    range_ = combine(lambda i: (i[0] * factor, i[1] * factor), t.range)
    if not range_.within(*limits):
        raise _may_fail(mode, t, to)
    done = replace(t, dtype=to, range=range_)
    if factor == 1:
        return done
    narrow = t.type.id is TypeId.DECIMAL64 and range_.within(-(2**63) + 1, 2**63 - 1)
    return call("cast", (done,), to, type=decimal_type(wanted, wide=not narrow), range=range_)


def _integer_to_decimal(t: Typed, to: pl.DataType, constants: Constants) -> Typed:
    unit = 10 ** scale_of(to)
    limits = limits_of(to)
    assert limits is not None
    range_ = combine(lambda i: (i[0] * unit, i[1] * unit), t.range)
    if not range_.within(*limits):
        raise _may_fail(CastMode.STRICT, t, to)
    wide = not range_.within(-(2**63) + 1, 2**63 - 1)
    return call("cast", (t,), to, type=decimal_type(scale_of(to), wide=wide), range=range_)


def _to_text(t: Typed) -> Typed:
    if is_integer(t.dtype):
        return call("str.from_integers", (t,), pl.String())
    if isinstance(t.dtype, pl.Boolean):
        return call("str.from_booleans", (t,), pl.String())
    raise Unsupported(f"a cast from {t.dtype} to String")


def _temporal(t: Typed, to: pl.DataType, constants: Constants) -> Typed | None:
    match t.dtype, to:
        case pl.Date(), pl.Int32():
            return call("bit_cast", (t,), to)
        case pl.Date(), pl.Int64():
            return ticks_of(t)
        case ((pl.Datetime() | pl.Duration()), pl.Int64()):
            return ticks_of(t)
        case pl.Date(), pl.Datetime(time_zone=None):
            return _in_unit(t, "d", to.time_unit, to, "floor_div", constants)
        case pl.Datetime(time_zone=None), pl.Date():
            return from_ticks(constants, days_of(constants, t), to)
        case pl.Datetime(), pl.Datetime() if t.dtype.time_zone == to.time_zone:
            return _in_unit(t, t.dtype.time_unit, to.time_unit, to, "floor_div", constants)
        case pl.Duration(), pl.Duration():
            return _in_unit(t, t.dtype.time_unit, to.time_unit, to, "div", constants)
        case _:
            return None


def _in_unit(t: Typed, unit: str, wanted: str, to: pl.DataType, divide: str, constants: Constants) -> Typed:
    """Return a point in time or a duration in another unit; what does not fit wraps around."""
    have, want = DAY_TICKS[unit], DAY_TICKS[wanted]
    ticks = ticks_of(t)
    if want > have:
        ticks = call("mul", (ticks, constants.value(want // have, pl.Int64())), pl.Int64())
    elif want < have:
        ticks = call(divide, (ticks, constants.value(have // want, pl.Int64())), pl.Int64())
    return from_ticks(constants, ticks, to)
