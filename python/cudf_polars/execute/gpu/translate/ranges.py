"""Between which numbers the values of a column lie: what proves that a cast, a product or a sum fits its type.

Decimals count in units of their last digit. Floats with a range are neither NaN nor infinite.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import polars as pl

__all__ = ["UNKNOWN", "Interval", "Range", "combine", "limits_of"]

Interval: TypeAlias = tuple[float, float]
"""The least and the greatest value; integers are exact, since they stay Python integers."""


class Range:
    """What is known of values at once, and what can be learnt when it matters.

    Parameters
    ----------
    known
        An interval that holds all values, or ``None``.
    learn
        Returns a narrower one, or ``None``; called at most once, and only if ``known`` does not answer a question,
        because it may have to read the statistics of files.
    """

    __slots__ = ("_learn", "_learnt", "known")

    def __init__(
        self, known: Interval | None = None, learn: Callable[[], Interval | None] | None = None
    ) -> None:
        self.known = known
        self._learn = learn
        self._learnt: Interval | None = None

    @property
    def best(self) -> Interval | None:
        """The narrowest interval that can be had."""
        if self._learn is not None:
            self._learnt, self._learn = self._learn(), None
        return self.known if self._learnt is None else self._learnt

    @property
    def learnable(self) -> bool:
        """Whether :attr:`best` may know more than :attr:`known`."""
        return self._learn is not None or self._learnt is not None

    def within(self, low: float, high: float) -> bool:
        """Whether all values are known to lie between two numbers."""
        if _inside(self.known, low, high):
            return True
        return self.learnable and _inside(self.best, low, high)

    @property
    def finite(self) -> bool:
        """Whether floats are known to be neither NaN nor infinite."""
        return self.known is not None or self.best is not None


UNKNOWN = Range()


def _inside(interval: Interval | None, low: float, high: float) -> bool:
    return interval is not None and low <= interval[0] and interval[1] <= high


def combine(function: Callable[..., Interval | None], *ranges: Range) -> Range:
    """Return the range of a result from the ranges of what it is computed from."""

    def apply(intervals: list[Interval | None]) -> Interval | None:
        if any(interval is None for interval in intervals):
            return None
        try:
            return function(*intervals)
        except OverflowError:
            return None

    known = apply([r.known for r in ranges])
    if not any(r.learnable for r in ranges):
        return Range(known)
    return Range(known, lambda: apply([r.best for r in ranges]))


def limits_of(dtype: pl.DataType) -> Interval | None:
    """Return the interval of all values that a type can hold; ``None`` for floats and what are no numbers."""
    match dtype:
        case pl.Boolean():
            return (0, 1)
        case pl.Int8() | pl.Int16() | pl.Int32() | pl.Int64():
            bits = 8 * _BYTES[type(dtype)]
            return (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        case pl.UInt8() | pl.UInt16() | pl.UInt32() | pl.UInt64():
            return (0, 2 ** (8 * _BYTES[type(dtype)]) - 1)
        case pl.Decimal():
            most = 10 ** (dtype.precision or 38) - 1
            return (-most, most)
        case _:
            return None


_BYTES: dict[type[pl.DataType], int] = {
    pl.Int8: 1,
    pl.UInt8: 1,
    pl.Int16: 2,
    pl.UInt16: 2,
    pl.Int32: 4,
    pl.UInt32: 4,
    pl.Int64: 8,
    pl.UInt64: 8,
}
