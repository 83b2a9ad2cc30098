"""Aggregates of groups."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from cudf_polars.execute.gpu.program import Aggregate, CudfType, TypeId
from support.cudf_emulator.casts import cast
from support.cudf_emulator.checks import check_aggregation
from support.cudf_emulator.columns import (
    DURATIONS,
    FLOATS,
    INTEGERS,
    Array,
    Values,
    is_decimal,
    narrowed,
    nulls,
    poison,
    storage_of,
)
from support.cudf_emulator.errors import refuse
from support.cudf_emulator.keys import codes_of, ordered_codes

__all__ = ["Groups", "aggregate"]

T = TypeId
INT64, FLOAT64 = CudfType(T.INT64), CudfType(T.FLOAT64)


@dataclass(frozen=True)
class Groups:
    """Rows brought into the order of their groups.

    Attributes
    ----------
    order
        The rows, those of a group beside each other in the order of the source.
    starts
        Where each group begins in ``order``; all have rows, but for the one group of no rows at all.
    """

    order: Array
    starts: Array

    @property
    def count(self) -> int:
        """How many groups there are."""
        return len(self.starts)

    @property
    def sizes(self) -> Array:
        """The rows of each group."""
        return np.diff(np.append(self.starts, len(self.order))) if len(self.starts) else np.zeros(0, np.int64)

    @property
    def numbers(self) -> Array:
        """The group of each row of ``order``."""
        return np.repeat(np.arange(self.count), self.sizes)


def aggregate(column: Values, wanted: Aggregate, groups: Groups, random: np.random.Generator) -> Values:
    """Return an aggregate of each group, in its type."""
    rows = column.take(groups.order) if len(column) else column
    made = _made(rows, wanted, groups, random)
    return made if made.type == wanted.type else cast(made, wanted.type)


def _made(rows: Values, wanted: Aggregate, groups: Groups, random: np.random.Generator) -> Values:
    kind = wanted.kind
    if kind == "count_all":
        return _counted(groups.sizes)
    valid_counts = _sums(rows.valid.astype(np.int64), groups)
    if kind == "count_valid":
        return _counted(valid_counts)
    if kind in ("nunique", "nunique_valid"):
        return _counted(_distinct(rows, groups, nulls=kind == "nunique"))
    if kind in ("first", "last", "any"):
        return _picked(rows, kind, groups, random)
    check_aggregation(kind, rows.type)
    some = valid_counts > 0
    if kind in ("sum", "product"):
        return _total(rows, kind, wanted.type, groups, some)
    if kind in ("min", "max"):
        return _extreme(rows, kind, groups, some)
    if kind == "mean":
        total = _total(_real(rows), "sum", FLOAT64, groups, some)
        with np.errstate(all="ignore"):
            return Values(FLOAT64, total.data / np.maximum(valid_counts, 1), some)
    if kind in ("var", "std"):
        return _spread(_real(rows), kind, int(wanted.options[0]), groups, valid_counts)
    if kind in ("median", "quantile"):
        place, way = (0.5, "linear") if kind == "median" else wanted.options
        return _quantile(_real(rows), float(place), str(way), groups)
    refuse(f"there is no aggregate {kind!r}")


def _counted(counts: Array) -> Values:
    return Values(INT64, counts.astype(np.int64), np.ones(len(counts), dtype=np.bool_))


def _reduce(function: Any, data: Array, groups: Groups, nothing: Any) -> Array:
    """Reduce each group; ``nothing`` is what a group of no rows gives."""
    if len(data) == 0:
        return np.full(groups.count, nothing, dtype=data.dtype)
    return np.asarray(function.reduceat(data, groups.starts))


def _sums(data: Array, groups: Groups) -> Array:
    return _reduce(np.add, data, groups, 0)


def _real(rows: Values) -> Values:
    if rows.type.id in (*INTEGERS, *FLOATS, T.BOOL8) or is_decimal(rows.type):
        return cast(rows, FLOAT64)
    refuse(f"this aggregate is not emulated for {rows.type.id.name}")


def _total(rows: Values, kind: str, type: CudfType, groups: Groups, some: Array) -> Values:
    """Return sums or products: integers of 64 bits that wrap, decimals as wide as the result, floats as they are."""
    function = np.add if kind == "sum" else np.multiply
    nothing = 0 if kind == "sum" else 1
    data = rows.data
    with np.errstate(all="ignore"):
        if is_decimal(rows.type):
            if kind != "sum":
                refuse("a product of decimals is not emulated")
            if not is_decimal(type) or type.scale != rows.type.scale:
                refuse(f"a sum of {rows.type} as {type}")
            exact = np.where(rows.valid, data.astype(object), nothing)
            total = _reduce(np.add, exact, groups, nothing)
            dtype = storage_of(type.id)
            total = narrowed(total, dtype)
            return Values(type, total, some)
        if rows.type.id in FLOATS:
            wide = data.astype(storage_of(type.id)) if type.id is T.FLOAT64 else data
            total = _reduce(function, np.where(rows.valid, wide, wide.dtype.type(nothing)), groups, nothing)
            return Values(FLOAT64 if wide.dtype == np.float64 else rows.type, total, some)
        if rows.type.id in (*INTEGERS, T.BOOL8, *DURATIONS):
            whole = np.where(rows.valid, data, nothing).astype(np.int64)
            total = _reduce(function, whole, groups, nothing)
            return Values(INT64, total, some)
    refuse(f"a {kind} of {rows.type.id.name}")


def _extreme(rows: Values, kind: str, groups: Groups, some: Array) -> Values:
    """Return the least or the greatest of each group; beside a NaN libcudf does not say which."""
    if len(rows) == 0:
        return nulls(rows.type, groups.count)
    ranks = ordered_codes(rows)
    worst = len(rows) if kind == "min" else -1
    ranks = np.where(rows.valid, ranks, worst)
    least = np.minimum if kind == "min" else np.maximum
    best = least.reduceat(ranks, groups.starts)
    found = np.flatnonzero((ranks == best[groups.numbers]) & rows.valid)
    place = np.zeros(groups.count, dtype=np.int64)
    place[groups.numbers[found]] = found
    data = rows.data[place]
    if rows.type.id in FLOATS:
        nan = _sums((np.isnan(rows.data) & rows.valid).astype(np.int64), groups) > 0
        data = np.where(nan, poison(rows.type, groups.count), data)
    return Values(rows.type, data, some)


def _distinct(rows: Values, groups: Groups, *, nulls: bool) -> Array:
    """Count the different values of each group; all NaNs are one, and null is one if nulls count."""
    codes = codes_of(rows)
    numbers = groups.numbers
    if not nulls:
        numbers, codes = numbers[codes >= 0], codes[codes >= 0]
    width = int(codes.max(initial=0)) + 2
    pairs = np.unique(numbers * width + codes + 1)
    return np.bincount(pairs // width, minlength=groups.count)


def _picked(rows: Values, kind: str, groups: Groups, random: np.random.Generator) -> Values:
    """Return the first or the last row's value, null or not, or any that is valid."""
    if len(rows) == 0:
        return nulls(rows.type, groups.count)
    if kind == "first":
        return rows.take(groups.starts)
    if kind == "last":
        return rows.take(groups.starts + groups.sizes - 1)
    shuffled = random.permutation(len(rows))
    shuffled = shuffled[rows.valid[shuffled]]
    place = np.full(groups.count, -1, dtype=np.int64)
    place[groups.numbers[shuffled]] = shuffled
    return rows.take(place)


def _spread(rows: Values, kind: str, ddof: int, groups: Groups, counts: Array) -> Values:
    with np.errstate(all="ignore"):
        data = np.where(rows.valid, rows.data, 0.0)
        means = _sums(data, groups) / counts
        apart = np.where(rows.valid, rows.data - means[groups.numbers], 0.0)
        spread = _sums(apart * apart, groups) / (counts - ddof)
        return Values(FLOAT64, np.sqrt(spread) if kind == "std" else spread, counts - ddof > 0)


_WAYS: dict[str, Callable[[float, float, float], float]] = {
    "linear": lambda low, high, part: low if part == 0.0 else low + (high - low) * part,
    "lower": lambda low, high, part: low,
    "higher": lambda low, high, part: low if part == 0.0 else high,
    "midpoint": lambda low, high, part: low if part == 0.0 else low + (high - low) / 2,
}


def _quantile(rows: Values, place: float, way: str, groups: Groups) -> Values:
    """Return a quantile of each group's valid values; NaNs are the greatest."""
    out = np.zeros(groups.count, dtype=np.float64)
    valid = np.zeros(groups.count, dtype=np.bool_)
    ends = groups.starts + groups.sizes
    for group, (begin, end) in enumerate(zip(groups.starts.tolist(), ends.tolist(), strict=True)):
        kept = rows.slice(begin, end)
        values = np.sort(kept.data[kept.valid]).tolist()
        if not values:
            continue
        at = place * (len(values) - 1)
        low = math.floor(at)
        high = min(low + 1, len(values) - 1)
        valid[group] = True
        if way == "nearest":  # of two the one at an even place
            out[group] = values[round(at)]
        elif way in _WAYS:
            out[group] = _WAYS[way](values[low], values[high], at - low)
        else:
            refuse(f"there is no interpolation {way!r}")
    return Values(FLOAT64, out, valid)
