"""Dates, datetimes and durations as the integers that they are."""

from __future__ import annotations

import polars as pl

from cudf_polars.execute.gpu.translate.ranges import Range, limits_of
from cudf_polars.execute.gpu.translate.typed import Constants, Typed, call
from cudf_polars.execute.gpu.translate.types import INT32

__all__ = ["DAY_TICKS", "UNIT_TICKS", "days_of", "from_ticks", "ticks_of"]

UNIT_TICKS = {"ms": 10**3, "us": 10**6, "ns": 10**9}
"""Ticks of a second, by time unit."""

DAY_TICKS = {"d": 1, **{unit: 86400 * ticks for unit, ticks in UNIT_TICKS.items()}}
"""Ticks of a day, by time unit; those of dates are days."""

_INT32, _INT64 = pl.Int32(), pl.Int64()


def ticks_of(value: Typed) -> Typed:
    """Return the integer of a date, a datetime or a duration as Int64."""
    if isinstance(value.dtype, pl.Date):
        days = call("bit_cast", (value,), _INT32, type=INT32)
        return call("cast", (days,), _INT64, range=Range(limits_of(_INT32)))
    return call("bit_cast", (value,), _INT64)


def from_ticks(constants: Constants, ticks: Typed, dtype: pl.DataType) -> Typed:
    """Return what an Int64 stands for; what does not fit wraps around."""
    if isinstance(dtype, pl.Date):
        return call("bit_cast", (call("cast", (ticks,), _INT32, type=INT32),), dtype)
    return call("bit_cast", (ticks,), dtype)


def days_of(constants: Constants, value: Typed) -> Typed:
    """Return the day of a date or datetime since 1970-01-01 as Int64."""
    if isinstance(value.dtype, pl.Date):
        return ticks_of(value)
    assert isinstance(value.dtype, pl.Datetime)
    day = constants.value(DAY_TICKS[value.dtype.time_unit], _INT64)
    return call("floor_div", (ticks_of(value), day), _INT64)
