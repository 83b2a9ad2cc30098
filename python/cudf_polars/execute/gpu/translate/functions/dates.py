"""Functions of dates, times and durations: mostly arithmetic on the integers that they are."""

from __future__ import annotations

import re
from dataclasses import replace

import polars as pl

from cudf_polars.execute.gpu.translate.casts import cast
from cudf_polars.execute.gpu.translate.functions.call import (
    Form,
    FunctionCall,
    add,
    divide,
    multiply,
    subtract,
)
from cudf_polars.execute.gpu.translate.ranges import Range
from cudf_polars.execute.gpu.translate.ticks import DAY_TICKS, UNIT_TICKS, days_of, from_ticks, ticks_of
from cudf_polars.execute.gpu.translate.typed import Typed, call
from cudf_polars.execute.gpu.translate.types import INT32
from cudf_polars.execute.gpu.translate.untranslatable import Unsupported
from cudf_polars.plan.expressions import CastMode

__all__ = ["FORMS"]

_INT16, _INT32, _INT64 = pl.Int16(), pl.Int32(), pl.Int64()


def _point(c: FunctionCall, *, with_time: bool = False) -> Typed:
    """Return an input that is a date or a datetime whose clock is that of UTC."""
    value = c.column(0)
    if isinstance(value.dtype, pl.Datetime):
        if value.dtype.time_zone not in (None, "UTC"):
            raise Unsupported(f"clocks of the time zone {value.dtype.time_zone}")
        return value
    if with_time or not isinstance(value.dtype, pl.Date):
        raise Unsupported(f"{c.name} of {value.dtype}")
    return value


def _as_date(c: FunctionCall, value: Typed) -> Typed:
    """Return the day of a date or datetime as a date."""
    return (
        value
        if isinstance(value.dtype, pl.Date)
        else from_ticks(c.constants, days_of(c.constants, value), pl.Date())
    )


# --- parts ----------------------------------------------------------------------


def _component(value: Typed, name: str, low: int, high: int) -> Typed:
    return call("dt.component", (value,), _INT16, (name,), range=Range((low, high)))


def _part(name: str, dtype: pl.DataType, low: int, high: int, *, with_time: bool = False) -> Form:
    def form(c: FunctionCall) -> Typed:
        part = _component(_point(c, with_time=with_time), name, low, high)
        return cast(part, dtype, CastMode.STRICT, c.constants)

    return form


def _single(op: str, dtype: pl.DataType, high: int) -> Form:
    def form(c: FunctionCall) -> Typed:
        part = call(op, (_point(c),), _INT16, range=Range((1, high)))
        return cast(part, dtype, CastMode.STRICT, c.constants)

    return form


def _is_leap_year(c: FunctionCall) -> Typed:
    return call("dt.is_leap_year", (_point(c),), pl.Boolean())


def _fraction(digits: int) -> Form:
    """Return the fraction of the second in units of so many digits."""

    def form(c: FunctionCall) -> Typed:
        value = _point(c, with_time=True)
        assert isinstance(value.dtype, pl.Datetime)
        second = UNIT_TICKS[value.dtype.time_unit]
        ticks = ticks_of(value)
        whole = multiply(divide(ticks, c.whole(second)), c.whole(second))
        rest = subtract(ticks, whole)
        unit = 10**digits
        out = (
            divide(rest, c.whole(second // unit))
            if unit <= second
            else multiply(rest, c.whole(unit // second))
        )
        return call("cast", (out,), _INT32, range=Range((0, unit - 1)))

    return form


def _thursday(c: FunctionCall) -> Typed:
    """Return the Thursday of the ISO week: its year is the week's."""
    date = _as_date(c, _point(c))
    days = call("bit_cast", (date,), _INT32, type=INT32)
    weekday = call("cast", (_component(date, "weekday", 1, 7),), _INT32)
    thursday = add(subtract(days, weekday), c.whole(4, _INT32))
    return call("bit_cast", (thursday,), pl.Date())


def _week(c: FunctionCall) -> Typed:
    day = call("cast", (call("dt.day_of_year", (_thursday(c),), _INT16),), _INT32)
    week = add(divide(subtract(day, c.whole(1, _INT32)), c.whole(7, _INT32)), c.whole(1, _INT32))
    return call("cast", (week,), pl.Int8(), range=Range((1, 53)))


def _iso_year(c: FunctionCall) -> Typed:
    return call("cast", (_component(_thursday(c), "year", -32768, 32767),), _INT32)


# --- other points in time ----------------------------------------------------------------------


def _years(count: int) -> Form:
    """Return the number of the span of so many years, which begins with the year 1."""

    def form(c: FunctionCall) -> Typed:
        year = call("cast", (_component(_point(c), "year", -32768, 32767),), _INT32)
        one = c.whole(1, _INT32)
        return add(divide(subtract(year, one), c.whole(count, _INT32)), one)

    return form


def _date(c: FunctionCall) -> Typed:
    return _as_date(c, _point(c))


def _days_moved(c: FunctionCall, value: Typed, days: Typed) -> Typed:
    """Return a date or datetime so many days (Int64) later."""
    step = multiply(days, c.whole(DAY_TICKS[_unit_of(value)]))
    return from_ticks(c.constants, add(ticks_of(value), step), value.dtype)


def _unit_of(value: Typed) -> str:
    return value.dtype.time_unit if isinstance(value.dtype, pl.Datetime | pl.Duration) else "d"


def _day_of_month(value: Typed) -> Typed:
    return call("cast", (_component(value, "day", 1, 31),), _INT64)


def _month_start(c: FunctionCall) -> Typed:
    value = _point(c)
    return _days_moved(c, value, subtract(c.whole(1), _day_of_month(value)))


def _month_end(c: FunctionCall) -> Typed:
    value = _point(c)
    last = call("cast", (call("dt.days_in_month", (value,), _INT16),), _INT64)
    return _days_moved(c, value, subtract(last, _day_of_month(value)))


def _interval(c: FunctionCall) -> tuple[int, str]:
    """Return a constant interval of one unit."""
    text = c.text(1)
    found = re.fullmatch(r"(-?\d+)(ns|us|ms|s|m|h|d|w|mo|q|y)", text)
    if found is None:
        raise Unsupported(f"the interval {text!r}")
    return int(found[1]), found[2]


def _truncate(c: FunctionCall) -> Typed:
    value = _point(c)
    count, unit = _interval(c)
    if count <= 0:
        raise Unsupported(f"windows of {count}{unit}")
    if unit == "w" and count == 1:
        day = subtract(call("cast", (_component(value, "weekday", 1, 7),), _INT64), c.whole(1))
        return _at_midnight(c, value, subtract(days_of(c.constants, value), day))
    if unit in ("mo", "y") and count == 1:
        of_year = call("dt.day_of_year", (value,), _INT16)
        day = _day_of_month(value) if unit == "mo" else call("cast", (of_year,), _INT64)
        return _at_midnight(c, value, add(subtract(days_of(c.constants, value), day), c.whole(1)))
    ticks = _fixed(value, count, unit)
    if ticks is None or ticks == 0:
        raise Unsupported(f"windows of {count}{unit}")
    window = c.whole(ticks)
    return from_ticks(c.constants, multiply(divide(ticks_of(value), window), window), value.dtype)


def _at_midnight(c: FunctionCall, value: Typed, days: Typed) -> Typed:
    ticks = multiply(days, c.whole(DAY_TICKS[_unit_of(value)]))
    return from_ticks(c.constants, ticks, value.dtype)


def _fixed(value: Typed, count: int, unit: str) -> int | None:
    """Return an interval in ticks of a value, ``None`` if it is no whole number of them or not always as long."""
    nanoseconds = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
    nanoseconds["d"] = 86400 * 10**9
    if unit not in nanoseconds:
        return None
    tick = 86400 * 10**9 // DAY_TICKS[_unit_of(value)]
    whole, rest = divmod(count * nanoseconds[unit], tick)
    return None if rest else whole


def _offset_by(c: FunctionCall) -> Typed:
    value = _point(c)
    count, unit = _interval(c)
    months = {"mo": 1, "q": 3, "y": 12}.get(unit)
    if months is not None:
        if abs(count * months) > 30000:
            raise Unsupported(f"an offset of {count}{unit}")
        number = c.constants.value(count * months, _INT16)
        return call("dt.add_months", (value, number), value.dtype)
    ticks = _fixed(value, 7 * count, "d") if unit == "w" else _fixed(value, count, unit)
    if ticks is None:
        raise Unsupported(f"an offset of {count}{unit} to {value.dtype}")
    return from_ticks(c.constants, add(ticks_of(value), c.whole(ticks)), value.dtype)


# --- units ----------------------------------------------------------------------


def _total(unit: str) -> Form:
    nanoseconds = {
        "days": 86400 * 10**9,
        "hours": 3600 * 10**9,
        "minutes": 60 * 10**9,
        "seconds": 10**9,
        "milliseconds": 10**6,
        "microseconds": 10**3,
        "nanoseconds": 1,
    }[unit]

    def form(c: FunctionCall) -> Typed:
        value = c.column(0)
        (fractional,) = c.options
        if fractional or not isinstance(value.dtype, pl.Duration):
            raise Unsupported(f"{c.name} of {value.dtype}")
        tick = 10**9 // UNIT_TICKS[value.dtype.time_unit]
        if nanoseconds >= tick:
            if nanoseconds == tick:
                return ticks_of(value)
            return call("div", (ticks_of(value), c.whole(nanoseconds // tick)), _INT64)
        return multiply(ticks_of(value), c.whole(tick // nanoseconds))

    return form


def _timestamp(c: FunctionCall) -> Typed:
    value = c.column(0)
    (unit,) = c.options
    if not isinstance(value.dtype, pl.Date | pl.Datetime):
        raise Unsupported(f"{c.name} of {value.dtype}")
    have, want = DAY_TICKS[_unit_of(value)], DAY_TICKS[unit]
    ticks = ticks_of(value)
    if want >= have:
        return ticks if want == have else multiply(ticks, c.whole(want // have))
    return divide(ticks, c.whole(have // want))


def _cast_time_unit(c: FunctionCall) -> Typed:
    value = c.column(0)
    (unit,) = c.options
    match value.dtype:
        case pl.Datetime(time_zone=zone):
            return cast(value, pl.Datetime(unit, zone), CastMode.STRICT, c.constants)
        case pl.Duration():
            return cast(value, pl.Duration(unit), CastMode.STRICT, c.constants)
        case _:
            raise Unsupported(f"{c.name} of {value.dtype}")


def _convert_time_zone(c: FunctionCall) -> Typed:
    value = c.column(0)
    (zone,) = c.options
    if not isinstance(value.dtype, pl.Datetime):
        raise Unsupported(f"{c.name} of {value.dtype}")
    return replace(value, dtype=pl.Datetime(value.dtype.time_unit, zone))  # the same point in time


def _replace_time_zone(c: FunctionCall) -> Typed:
    value = _point(c, with_time=True)
    zone = c.options[0]
    if zone not in (None, "UTC"):
        raise Unsupported(f"clocks of the time zone {zone}")
    assert isinstance(value.dtype, pl.Datetime)
    return replace(value, dtype=pl.Datetime(value.dtype.time_unit, zone))


FORMS: dict[str, Form] = {
    "dt.year": _part("year", _INT32, -32768, 32767),
    "dt.month": _part("month", pl.Int8(), 1, 12),
    "dt.day": _part("day", pl.Int8(), 1, 31),
    "dt.weekday": _part("weekday", pl.Int8(), 1, 7),
    "dt.hour": _part("hour", pl.Int8(), 0, 23, with_time=True),
    "dt.minute": _part("minute", pl.Int8(), 0, 59, with_time=True),
    "dt.second": _part("second", pl.Int8(), 0, 59, with_time=True),
    "dt.millisecond": _fraction(3),
    "dt.microsecond": _fraction(6),
    "dt.nanosecond": _fraction(9),
    "dt.ordinal_day": _single("dt.day_of_year", _INT16, 366),
    "dt.quarter": _single("dt.quarter", pl.Int8(), 4),
    "dt.days_in_month": _single("dt.days_in_month", pl.Int8(), 31),
    "dt.is_leap_year": _is_leap_year,
    "dt.century": _years(100),
    "dt.millennium": _years(1000),
    "dt.week": _week,
    "dt.iso_year": _iso_year,
    "dt.date": _date,
    "dt.month_start": _month_start,
    "dt.month_end": _month_end,
    "dt.truncate": _truncate,
    "dt.offset_by": _offset_by,
    "dt.timestamp": _timestamp,
    "dt.convert_time_zone": _convert_time_zone,
    "dt.replace_time_zone": _replace_time_zone,
    "dt.cast_time_unit": _cast_time_unit,
    **{
        f"dt.total_{unit}": _total(unit)
        for unit in ["days", "hours", "minutes", "seconds", "milliseconds", "microseconds", "nanoseconds"]
    },
}
