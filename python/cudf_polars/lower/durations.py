"""How far windows reach whose lengths are durations, as Polars writes them (``"1mo2d"``, ``"-3h"``, ``"5i"``)."""

from __future__ import annotations

import re
from dataclasses import dataclass

import polars as pl

__all__ = ["Reach", "at_most", "index_number"]

_MICROSECONDS = {
    "us": 1,
    "ms": 10**3,
    "s": 10**6,
    "m": 60 * 10**6,
    "h": 3600 * 10**6,
    # The longest that there are: clocks are set back, and by more than an hour where a country changes its time zone.
    "d": 26 * 3600 * 10**6,
    "w": 7 * 26 * 3600 * 10**6,
    "mo": 31 * 26 * 3600 * 10**6,
    "q": 92 * 26 * 3600 * 10**6,
    "y": 366 * 26 * 3600 * 10**6,
}
_DURATION = re.compile(r"(\d+)(ns|us|ms|mo|s|m|h|d|w|q|y|i)")


@dataclass(frozen=True)
class Reach:
    """How far from an own row, in units of the index, the rows are that its windows may hold.

    Attributes
    ----------
    before, behind
        Upper bounds.
    """

    before: int
    behind: int

    @classmethod
    def of_window(cls, offset: str, period: str, dtype: pl.DataType) -> Reach | None:
        """Return the reach of windows that begin at a row's index and an offset; ``None`` if it is not known."""
        begin, length = at_most(offset, dtype), at_most(period, dtype)
        if begin is None or length is None:
            return None
        return cls(begin, length) if offset.startswith("-") else cls(0, begin + length)


def at_most(duration: str, dtype: pl.DataType) -> int | None:
    """Return an upper bound of a duration without its sign, in units of an index of a type; ``None``: not known."""
    parts = _DURATION.findall(duration)
    if not parts or "".join(n + unit for n, unit in parts) != duration.removeprefix("-"):
        return None
    if dtype.is_integer():
        return sum(int(n) for n, _ in parts) if all(unit == "i" for _, unit in parts) else None
    if any(unit == "i" for _, unit in parts):
        return None
    nanoseconds = sum(int(n) * (1 if unit == "ns" else 1000 * _MICROSECONDS[unit]) for n, unit in parts)
    match dtype:
        case pl.Date():
            return nanoseconds // (24 * 3600 * 10**9) + 1
        case pl.Datetime(time_unit=unit):
            return nanoseconds // {"ns": 1, "us": 10**3, "ms": 10**6}[unit] + 1
    return None


def index_number(index: pl.Expr) -> pl.Expr:
    """Return an index as a number to which others may be added."""
    return index.to_physical().cast(pl.Int128)
