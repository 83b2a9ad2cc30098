"""Rough sizes of streams before they run. They only choose what to measure first; sizes that decide are counted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import polars as pl

__all__ = ["AGGREGATED", "FILTERED", "row_width"]

FILTERED = 0.25
"""The estimated part of rows that a predicate keeps."""
AGGREGATED = 0.1
"""Groups per row."""

_TEXT_BYTES = 24.0


def row_width(schema: Mapping[str, pl.DataType]) -> float:
    """Return the estimated number of bytes of a row."""
    return max(1.0, _total(schema.values()))


def _total(dtypes: Iterable[pl.DataType]) -> float:
    return sum(_width(dtype) for dtype in dtypes)


def _width(dtype: pl.DataType) -> float:
    match dtype:
        case pl.Boolean() | pl.Int8() | pl.UInt8():
            return 1.0
        case pl.Int16() | pl.UInt16():
            return 2.0
        case pl.Int32() | pl.UInt32() | pl.Float32() | pl.Date() | pl.Categorical() | pl.Enum():
            return 4.0
        case pl.Decimal() | pl.Int128():
            return 16.0
        case pl.String() | pl.Binary():
            return _TEXT_BYTES
        case pl.List():
            return 8.0 + 4.0 * _width(_instance(dtype.inner))
        case pl.Array():
            return float(dtype.size) * _width(_instance(dtype.inner))
        case pl.Struct():
            return _total(_instance(f.dtype) for f in dtype.fields)
        case pl.Null():
            return 0.0
        case _:
            return 8.0


def _instance(dtype: object) -> pl.DataType:
    """Return the type that ``dtype``, a type or its class, stands for."""
    made = dtype() if isinstance(dtype, type) else dtype
    assert isinstance(made, pl.DataType)
    return made
