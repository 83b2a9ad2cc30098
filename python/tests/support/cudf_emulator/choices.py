"""Primitives that choose among values: nulls, NaNs, conditions, sets."""

from __future__ import annotations

import numpy as np

from cudf_polars.execute.gpu.program import CudfType, TypeId
from support.cudf_emulator.columns import FLOATS, Array, Values
from support.cudf_emulator.errors import refuse
from support.cudf_emulator.keys import pairs_of

__all__ = [
    "clamp",
    "contains",
    "copy_if_else",
    "is_nan",
    "is_null",
    "nans_to_nulls",
    "normalize_nans_and_zeros",
    "replace_nulls",
]

BOOL = CudfType(TypeId.BOOL8)


def is_null(a: Values, *, null: bool) -> Values:
    """Return whether values are null, or valid."""
    return Values(BOOL, ~a.valid if null else a.valid.copy(), np.ones(len(a), dtype=np.bool_))


def is_nan(a: Values, *, nan: bool) -> Values:
    """Return whether values are NaN, or not; null is none."""
    found = _nans(a) & a.valid
    return Values(BOOL, found if nan else ~found, np.ones(len(a), dtype=np.bool_))


def _nans(a: Values) -> Array:
    if a.type.id not in FLOATS:
        refuse(f"only floats have NaNs, not {a.type.id.name}")
    return np.isnan(a.data)


def nans_to_nulls(a: Values) -> Values:
    """Return null for NaN."""
    return a.with_valid(a.valid & ~_nans(a))


def normalize_nans_and_zeros(a: Values) -> Values:
    """Return one NaN for all, and zero without a sign."""
    nan = _nans(a)
    return Values(a.type, np.where(nan, np.nan, a.data + 0.0).astype(a.data.dtype), a.valid)


def copy_if_else(mask: Values, then: Values, other: Values) -> Values:
    """Return ``then`` where the mask is true, else ``other``: also where it is null."""
    if mask.type != BOOL:
        refuse(f"copy_if_else needs a mask of BOOL8, not {mask.type.id.name}")
    if then.type != other.type:
        refuse(f"copy_if_else between {then.type} and {other.type}")
    chosen = mask.valid & mask.data
    data = then.data.copy()
    data[~chosen] = other.data[~chosen]
    return Values(then.type, data, np.where(chosen, then.valid, other.valid))


def replace_nulls(a: Values, other: Values) -> Values:
    """Return other values for nulls."""
    if a.type != other.type:
        refuse(f"replace_nulls of {a.type} by {other.type}")
    data = a.data.copy()
    data[~a.valid] = other.data[~a.valid]
    return Values(a.type, data, a.valid | other.valid)


def contains(haystack: Values, needles: Values) -> Values:
    """Return whether values are in a set: null for null, whatever the set has; NaNs are equal."""
    if haystack.type != needles.type:
        refuse(f"contains of {needles.type} in {haystack.type}")
    found = np.zeros(len(needles), dtype=np.bool_)
    rows, _ = pairs_of([needles], [haystack], (len(needles), len(haystack)), nulls_equal=True)
    found[rows] = True
    return Values(BOOL, found, needles.valid)


def clamp(a: Values, low: Values, high: Values) -> Values:
    """Return values no less than one scalar and no more than another; null limits do not count."""
    if not a.type == low.type == high.type:
        refuse(f"clamp of {a.type} by {low.type} and {high.type}")
    data = a.data
    if low.valid[0]:
        data = np.where(data < low.data[0], low.data[0], data)
    if high.valid[0]:
        data = np.where(data > high.data[0], high.data[0], data)
    return Values(a.type, data.astype(a.data.dtype), a.valid)
