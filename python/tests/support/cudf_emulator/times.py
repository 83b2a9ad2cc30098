"""``cudf::datetime``, and texts of times."""

from __future__ import annotations

import calendar
import datetime
import functools
import re

import numpy as np

from cudf_polars.execute.gpu.program import CudfType, TypeId
from support.cudf_emulator.columns import TIMESTAMPS, Array, Values, array_of, poison, storage_of
from support.cudf_emulator.errors import refuse
from support.cudf_emulator.texts import BOOL, STRING, mapped

__all__ = [
    "add_months",
    "component",
    "day_of_year",
    "days_in_month",
    "floor",
    "from_timestamps",
    "is_leap_year",
    "is_timestamp",
    "last_day_of_month",
    "quarter",
    "to_timestamps",
]

T = TypeId
INT16 = CudfType(T.INT16)
DAYS = CudfType(T.TIMESTAMP_DAYS)
_NUMPY = {"DAYS": "D", "SECONDS": "s", "MILLISECONDS": "ms", "MICROSECONDS": "us", "NANOSECONDS": "ns"}
_FREQUENCIES = {"day": "D", "hour": "h", "minute": "m", "second": "s"}
_FREQUENCIES |= {"millisecond": "ms", "microsecond": "us", "nanosecond": "ns"}
_PER_SECOND = {"D": 0, "s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def _unit(op: str, a: Values) -> str:
    if a.type.id not in TIMESTAMPS:
        refuse(f"{op} is for timestamps, not {a.type.id.name}")
    return _NUMPY[a.type.id.name.split("_")[1]]


def _days(op: str, a: Values) -> Array:
    """Return days since the epoch."""
    per_day = _PER_SECOND[_unit(op, a)] * 86_400 or 1
    return np.asarray(a.data.astype(np.int64) // per_day)


def _of_day(op: str, a: Values) -> tuple[Array, int]:
    """Return ticks since midnight, and how many make a second."""
    per_second = _PER_SECOND[_unit(op, a)]
    if not per_second:
        return np.zeros(len(a), dtype=np.int64), 1
    return np.asarray(a.data % (86_400 * per_second)), per_second


def _civil(days: Array) -> tuple[Array, Array, Array]:
    """Return year, month and day; by arithmetic, since NumPy's dates end before a column's do."""
    shifted = days + 719_468
    era = shifted // 146_097
    day_of_era = shifted - era * 146_097
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted_month = (5 * of_year + 2) // 153
    day = of_year - (153 * shifted_month + 2) // 5 + 1
    month = np.where(shifted_month < 10, shifted_month + 3, shifted_month - 9)
    return np.asarray(year_of_era + era * 400 + (month <= 2)), np.asarray(month), np.asarray(day)


def _days_of(year: Array, month: Array, day: Array) -> Array:
    """Return days since the epoch: the reverse of ``_civil``."""
    shifted = year - (month <= 2)
    era = shifted // 400
    year_of_era = shifted - era * 400
    of_year = (153 * (month + np.where(month > 2, -3, 9)) + 2) // 5 + day - 1
    whole: Array = (
        era * 146_097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + of_year - 719_468
    )
    return whole


def _leap(year: Array) -> Array:
    return np.asarray((year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0)), dtype=np.bool_)


def _month_length(year: Array, month: Array) -> Array:
    lengths = np.array([31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])
    return np.asarray(lengths[month - 1] + ((month == 2) & _leap(year)))


def component(a: Values, name: str) -> Values:
    """Return a part of timestamps, always as INT16: parts of a second are three digits each."""
    op = f"dt.component {name}"
    days = _days(op, a)
    year, month, day = _civil(days)
    ticks, per_second = _of_day(op, a)
    seconds = ticks // per_second
    nanoseconds = ticks % per_second * (10**9 // per_second)
    parts = {
        "year": year,
        "month": month,
        "day": day,
        "weekday": (days + 3) % 7 + 1,  # Monday is 1
        "hour": seconds // 3600,
        "minute": seconds // 60 % 60,
        "second": seconds % 60,
        "millisecond": nanoseconds // 10**6,
        "microsecond": nanoseconds // 1000 % 1000,
        "nanosecond": nanoseconds % 1000,
    }
    if name not in parts:
        refuse(f"dt.component: there is no {name!r}")
    return Values(INT16, parts[name].astype(np.int16), a.valid)


def day_of_year(a: Values) -> Values:
    """Return the day's number in its year, from 1."""
    days = _days("dt.day_of_year", a)
    year, _, _ = _civil(days)
    first = _days_of(year, np.ones_like(year), np.ones_like(year))
    return Values(INT16, (days - first + 1).astype(np.int16), a.valid)


def last_day_of_month(a: Values) -> Values:
    """Return the last day of the month, always in days."""
    year, month, _ = _civil(_days("dt.last_day_of_month", a))
    return Values(DAYS, _days_of(year, month, _month_length(year, month)).astype(np.int32), a.valid)


def is_leap_year(a: Values) -> Values:
    """Return whether the year has 366 days."""
    return Values(BOOL, _leap(_civil(_days("dt.is_leap_year", a))[0]), a.valid)


def days_in_month(a: Values) -> Values:
    """Return how many days the month has."""
    year, month, _ = _civil(_days("dt.days_in_month", a))
    return Values(INT16, _month_length(year, month).astype(np.int16), a.valid)


def quarter(a: Values) -> Values:
    """Return the quarter of the year, from 1."""
    _, month, _ = _civil(_days("dt.quarter", a))
    return Values(INT16, ((month + 2) // 3).astype(np.int16), a.valid)


def add_months(a: Values, months: Values) -> Values:
    """Return times some months later; a day that the month does not have becomes its last."""
    if months.type.id not in (T.INT16, T.INT32):
        refuse(f"dt.add_months takes INT16 or INT32, not {months.type.id.name}")
    days = _days("dt.add_months", a)
    year, month, day = _civil(days)
    whole = year * 12 + month - 1 + np.where(months.valid, months.data, 0).astype(np.int64)
    year, month = whole // 12, whole % 12 + 1
    day = np.minimum(day, _month_length(year, month))
    ticks, per_second = _of_day("dt.add_months", a)
    per_day = 86_400 * per_second if a.type.id is not T.TIMESTAMP_DAYS else 1
    made = _days_of(year, month, day) * per_day + ticks
    return Values(a.type, made.astype(a.data.dtype), a.valid & months.valid)


def floor(a: Values, frequency: str) -> Values:
    """Return times rounded down."""
    unit = _unit("dt.floor", a)
    if frequency not in _FREQUENCIES:
        refuse(f"dt.floor: there is no {frequency!r}")
    per_second = _PER_SECOND[unit]
    if not per_second:
        return a
    wanted = {"D": 86_400, "h": 3600, "m": 60, "s": 1}.get(_FREQUENCIES[frequency])
    step = wanted * per_second if wanted else max(1, per_second // _PER_SECOND[_FREQUENCIES[frequency]])
    return Values(a.type, a.data // step * step, a.valid)


# --- texts ----------------------------------------------------------------------

_SPECIFIERS = {
    "Y": r"\d{4}",
    "m": r"\d\d",
    "d": r"\d\d",
    "H": r"\d\d",
    "M": r"\d\d",
    "S": r"\d\d",
    "f": r"\d{6}",
}


def _parse(text: str, format: str) -> datetime.datetime | None:
    """Return the time that a text says, ``None`` if it does not follow the format."""
    names: list[str] = []

    def part(found: re.Match[str]) -> str:
        name = found.group(1)
        if name not in _SPECIFIERS:
            refuse(f"the specifier %{name} is not emulated")
        names.append(name)
        return f"({_SPECIFIERS[name]})"

    pattern = re.sub("%(.)", part, re.sub(r"([.^$*+?{}\[\]\\|()])", r"\\\1", format))
    found = re.fullmatch(pattern, text, re.ASCII)
    if found is None:
        return None
    said = {name: int(digits) for name, digits in zip(names, found.groups(), strict=True)}
    try:
        return datetime.datetime(
            said.get("Y", 1970),
            said.get("m", 1),
            said.get("d", 1),
            said.get("H", 0),
            said.get("M", 0),
            said.get("S", 0),
            said.get("f", 0),
        )
    except ValueError:
        return None


def is_timestamp(a: Values, format: str) -> Values:
    """Return whether texts begin with a time of a format; its year may have fewer digits."""

    def begins_with_a_time(text: str) -> bool:
        found = re.match(r"\d{1,4}", text, re.ASCII) if format.startswith("%Y") else None
        padded = text if found is None else found.group().zfill(4) + text[found.end() :]
        return any(_parse(padded[:end], format) is not None for end in range(len(padded) + 1))

    return mapped("str.is_timestamp", a, begins_with_a_time, BOOL)


def to_timestamps(a: Values, format: str, type: CudfType) -> Values:
    """Return the times that texts say; what does not follow the format is undefined."""
    if type.id not in TIMESTAMPS:
        refuse(f"str.to_timestamps gives timestamps, not {type.id.name}")
    per_second = _PER_SECOND[_NUMPY[type.id.name.split("_")[1]]]
    bad = int(poison(type, 1)[0])

    def convert(text: str) -> int:
        said = _parse(text, format)
        if said is None:
            return bad
        if not per_second:
            return calendar.timegm(said.timetuple()) // 86_400
        ticks = calendar.timegm(said.timetuple()) * 10**6 + said.microsecond
        return ticks * per_second // 10**6

    values = mapped("str.to_timestamps", a, convert, CudfType(T.INT64))
    return Values(type, values.data.astype(storage_of(type.id)), a.valid)


def from_timestamps(a: Values, format: str) -> Values:
    """Return texts of times; years of four digits."""
    days = _days("str.from_timestamps", a)
    years, months, dates = (part.tolist() for part in _civil(days))
    ticks, per_second = _of_day("str.from_timestamps", a)
    seconds = (ticks // per_second).tolist()
    microseconds = (ticks % per_second * (10**6 / per_second)).astype(np.int64).tolist()
    texts = []
    for y, m, d, s, f in zip(years, months, dates, seconds, microseconds, strict=True):
        said = {"Y": f"{y:04}", "m": f"{m:02}", "d": f"{d:02}", "f": f"{f:06}"}
        said |= {"H": f"{s // 3600:02}", "M": f"{s // 60 % 60:02}", "S": f"{s % 60:02}"}
        texts.append(re.sub("%(.)", functools.partial(_said, said), format))
    return Values(STRING, array_of(texts, STRING), a.valid)


def _said(said: dict[str, str], found: re.Match[str]) -> str:
    if found.group(1) not in said:
        refuse(f"the specifier {found.group()} is not emulated")
    return said[found.group(1)]
