"""Lists and structs."""

from __future__ import annotations

from typing import Any

import numpy as np

from cudf_polars.execute.gpu.program import CudfType, TypeId
from support.cudf_emulator.columns import FLOATS, INTEGERS, Values, array_of, poison, storage_of
from support.cudf_emulator.errors import refuse

__all__ = ["contains", "field", "get", "length", "reduce"]

T = TypeId


def _inner(op: str, a: Values) -> CudfType:
    if a.type.id is not T.LIST:
        refuse(f"{op} is for lists, not {a.type.id.name}")
    return a.type.children[0]


def _lists(a: Values) -> list[list[Any]]:
    """Return the lists; a null one is empty."""
    return [x if ok else [] for x, ok in zip(a.data.tolist(), a.valid.tolist(), strict=True)]


def _column(values: list[Any], type: CudfType) -> Values:
    valid = np.array([v is not None for v in values], dtype=np.bool_)
    hidden = poison(type, 1)[0]
    return Values(type, array_of([hidden if v is None else v for v in values], type), valid)


def length(a: Values) -> Values:
    """Return how many elements lists have, as INT32."""
    _inner("list.length", a)
    return Values(CudfType(T.INT32), np.array([len(x) for x in _lists(a)], dtype=np.int32), a.valid)


def contains(a: Values, keys: Values) -> Values:
    """Return whether lists hold values; null for a null list and for a null key."""
    inner = _inner("list.contains", a)
    if inner != keys.type:
        refuse(f"list.contains of {keys.type} in lists of {inner}")
    found = [
        any(x is not None and (x == key or (x != x and key != key)) for x in items)
        for items, key in zip(_lists(a), keys.data.tolist(), strict=True)
    ]
    return Values(CudfType(T.BOOL8), np.array(found, dtype=np.bool_), a.valid & keys.valid)


def get(a: Values, index: int) -> Values:
    """Return an element of lists, from the end if the index is negative; null where there is none."""
    inner = _inner("list.get", a)
    return _column([x[index] if -len(x) <= index < len(x) else None for x in _lists(a)], inner)


def reduce(op: str, a: Values, type: CudfType) -> Values:
    """Return the sum, least or greatest of lists: nulls do not count, and of no value it is null."""
    inner = _inner(op, a)
    if inner.id not in (*INTEGERS, *FLOATS):
        refuse(f"{op} of lists of {inner.id.name} is not emulated")
    if op != "list.sum" and type != inner:
        refuse(f"{op} gives {inner}, not {type}")
    kept = [[v for v in x if v is not None] for x in _lists(a)]
    if op != "list.sum":
        pick = min if op == "list.min" else max
        undefined = poison(type, 1)[0]
        return _column(
            [(undefined if any(v != v for v in x) else pick(x)) if x else None for x in kept], type
        )
    if type.id in FLOATS:
        return _column([float(sum(x)) if x else None for x in kept], type)
    bits = 8 * storage_of(type.id).itemsize
    signed = not type.id.name.startswith("U")
    return _column([_wrap(int(sum(x)), bits, signed=signed) if x else None for x in kept], type)


def _wrap(value: int, bits: int, *, signed: bool) -> int:
    value %= 1 << bits
    return value - (1 << bits) if signed and value >= 1 << (bits - 1) else value


def field(a: Values, index: int) -> Values:
    """Return a field of structs; null where the struct is."""
    if a.type.id is not T.STRUCT or not 0 <= index < len(a.type.children):
        refuse(f"{a.type.id.name} has no field {index}")
    values = [x[index] if ok else None for x, ok in zip(a.data.tolist(), a.valid.tolist(), strict=True)]
    return _column(values, a.type.children[index])
