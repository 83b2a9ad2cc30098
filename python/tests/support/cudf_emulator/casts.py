"""Casts between types of fixed width, and rounding."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from cudf_polars.execute.gpu.program import CudfType, TypeId
from support.cudf_emulator.checks import check_cast
from support.cudf_emulator.columns import (
    DECIMALS,
    DURATIONS,
    FLOATS,
    INTEGERS,
    TIMESTAMPS,
    Array,
    Values,
    is_decimal,
    narrowed,
    poison,
    storage_of,
    wrapped,
)
from support.cudf_emulator.errors import refuse
from support.cudf_emulator.numbers import truncated

__all__ = ["bit_cast", "cast", "round_", "round_decimal"]

T = TypeId
_PER_DAY = {"DAYS": 1, "SECONDS": 86_400, "MILLISECONDS": 86_400_000}
_PER_DAY |= {"MICROSECONDS": 86_400 * 10**6, "NANOSECONDS": 86_400 * 10**9}


def cast(a: Values, type: CudfType) -> Values:
    """Return a column in another type; what does not fit is undefined or wraps."""
    check_cast(a.type, type)
    if a.type == type:
        return a
    times = (*TIMESTAMPS, *DURATIONS)
    if is_decimal(a.type) or is_decimal(type):
        data = _decimals(a, type)
    elif a.type.id in times and type.id in times:
        data = _times(a, type)
    elif a.type.id in FLOATS and type.id in (*INTEGERS, *DURATIONS):
        data = _to_integers(a, type)
    else:
        with np.errstate(all="ignore"):
            data = a.data.astype(storage_of(type.id))
    return Values(type, data, a.valid)


def _to_integers(a: Values, type: CudfType) -> Array:
    """Cut off the fraction; NaN and what does not fit are undefined."""
    dtype = storage_of(type.id)
    limits = np.iinfo(dtype)
    wide = a.data.astype(np.float64)
    with np.errstate(invalid="ignore"):
        fits = (np.trunc(wide) >= limits.min) & (np.trunc(wide) <= limits.max)
    if limits.max >= 2**53:  # the greatest integer is no float: the next one is too large
        fits &= wide < float(limits.max)
    whole = np.where(fits, wide, 0.0).astype(dtype)
    return np.where(fits, whole, poison(type, len(a))).astype(dtype)


def _decimals(a: Values, type: CudfType) -> Array:
    dtype = storage_of(type.id)
    if is_decimal(a.type):
        if is_decimal(type):
            # In the wider of both, so that nothing is lost before the scale has changed.
            wide = a.data.astype(object)
            return narrowed(truncated(wide, a.type.scale, type.scale), storage_of(type.id))
        if type.id in FLOATS:
            exact = [float(Fraction(int(x)) * Fraction(10) ** a.type.scale) for x in a.data.tolist()]
            return np.array(exact, dtype=np.float64).astype(dtype)
        if type.id is T.BOOL8:
            return np.asarray(a.data != 0, dtype=np.bool_)
        whole = truncated(a.data.astype(object), a.type.scale, 0)
        return wrapped(whole, 64).astype(np.int64).astype(dtype)
    if a.type.id in FLOATS:
        return _float_to_decimal(a, type)
    if a.type.id is T.BOOL8:
        refuse("casts from BOOL8 to decimals are not emulated")
    return narrowed(truncated(a.data.astype(object), 0, type.scale), storage_of(type.id))


def _float_to_decimal(a: Values, type: CudfType) -> Array:
    """Cut off digits; where that would cut a 9 that is half a bit away from the next digit is not said: undefined."""
    limit = 2 ** (127 if type.id is T.DECIMAL128 else 8 * storage_of(type.id).itemsize - 1)
    bad = poison(type, 1)[0]
    out = []
    for x in a.data.tolist():
        if x != x or x in (float("inf"), float("-inf")):
            out.append(bad)
            continue
        units = Fraction(x) / Fraction(10) ** type.scale
        nearest = round(units)
        near = abs(units - nearest) < abs(units) * Fraction(1, 10**6)
        whole = nearest if near else int(units)
        out.append(whole if -limit <= whole < limit else bad)
    return np.array(out, dtype=object).astype(storage_of(type.id))


def _times(a: Values, type: CudfType) -> Array:
    """Change the unit of ticks: downwards they are floored; upwards what does not fit is undefined."""
    has, wants = (_PER_DAY[t.id.name.split("_")[1]] for t in (a.type, type))
    dtype = storage_of(type.id)
    ticks = a.data.astype(np.int64)
    if wants <= has:
        made = ticks // (has // wants)
    else:
        factor = wants // has
        limit = np.iinfo(np.int64).max // factor
        made = np.where(np.abs(ticks) <= limit, ticks * factor, poison(type, len(a)).astype(np.int64))
    narrow = made.astype(dtype)
    return np.where(narrow == made, narrow, poison(type, len(a))).astype(dtype)


def bit_cast(a: Values, type: CudfType) -> Values:
    """Return the same bits as another type of that width."""
    sizes = [_bits(t) for t in (a.type, type)]
    if sizes[0] != sizes[1]:
        refuse(f"bit_cast between {a.type.id.name} and {type.id.name}, which have different widths")
    return Values(type, a.data.view(storage_of(type.id)), a.valid)


def _bits(type: CudfType) -> int:
    if type.id in (T.STRING, T.LIST, T.STRUCT, T.DECIMAL128, T.DICTIONARY32, T.EMPTY):
        refuse(f"bit_cast of {type.id.name} is not emulated")
    return storage_of(type.id).itemsize


def round_decimal(a: Values, places: int, mode: str, type: CudfType) -> Values:
    """Round integers or decimals; decimals get the scale that the digits say."""
    if is_decimal(a.type):
        wanted = CudfType(a.type.id, -places)
        if wanted != type:
            refuse(f"round_decimal of {a.type} to {places} places gives {wanted}, not {type}")
        if -places <= a.type.scale:
            return Values(type, truncated(a.data, a.type.scale, -places), a.valid)
        unit = 10 ** (-places - a.type.scale)
        return Values(
            type, narrowed(_rounded(a.data.astype(object), unit, mode), storage_of(type.id)), a.valid
        )
    if a.type.id not in INTEGERS:
        refuse(f"round_decimal is for integers and decimals, not {a.type.id.name}")
    if a.type != type:
        refuse(f"round_decimal of {a.type} gives that, not {type}")
    if places >= 0:
        return a
    unit = 10**-places
    made = _rounded(a.data.astype(object), unit, mode) * unit
    return Values(type, wrapped(made, 8 * a.data.itemsize).astype(a.data.dtype), a.valid)


def _rounded(exact: Array, unit: int, mode: str) -> Array:
    """Return how many units are nearest; of two the even one, or the one away from zero."""
    magnitude = np.abs(exact)
    whole, rest = magnitude // unit, magnitude % unit
    match mode:
        case "half_even":
            up = (2 * rest > unit) | ((2 * rest == unit) & (whole % 2 == 1))
        case "half_up":
            up = 2 * rest >= unit
        case _:
            refuse(f"there is no rounding {mode!r}")
    whole = whole + np.where(up, 1, 0)
    return np.asarray(np.where(exact < 0, -whole, whole), dtype=object)


def round_(a: Values, places: int, mode: str, type: CudfType) -> Values:
    """Round floats, or what ``round_decimal`` rounds: the value is scaled, rounded, and scaled back."""
    if a.type.id not in FLOATS:
        if a.type.id in DECIMALS and a.type.id is T.DECIMAL128:
            refuse("round is for decimals of 32 and 64 bits")
        return round_decimal(a, places, mode, type)
    if a.type != type:
        refuse(f"round of {a.type} gives that, not {type}")
    factor = a.data.dtype.type(10.0 ** abs(places))
    with np.errstate(all="ignore"):
        scaled = a.data * factor if places >= 0 else a.data / factor
        if mode == "half_even":
            nearest = np.rint(scaled)
        elif mode == "half_up":
            nearest = np.trunc(scaled + np.copysign(a.data.dtype.type(0.5), scaled))
        else:
            refuse(f"there is no rounding {mode!r}")
        made = nearest / factor if places >= 0 else nearest * factor
    made = np.where(np.isfinite(scaled) & np.isfinite(made), made, a.data)
    return Values(type, made.astype(a.data.dtype), a.valid)
