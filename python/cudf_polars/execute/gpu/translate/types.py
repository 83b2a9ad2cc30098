"""Types of Polars and of libcudf."""

from __future__ import annotations

import polars as pl

from cudf_polars.execute.gpu.program import CudfType, TypeId
from cudf_polars.execute.gpu.translate.untranslatable import Unsupported

__all__ = [
    "BITS",
    "BOOL",
    "DECIMAL64_DIGITS",
    "FLOAT64",
    "INT8",
    "INT32",
    "INT64",
    "UINT64",
    "decimal_type",
    "device_type",
    "has_form",
    "instance",
    "is_float",
    "is_integer",
    "scale_of",
]

BOOL = CudfType(TypeId.BOOL8)
INT8 = CudfType(TypeId.INT8)
INT32 = CudfType(TypeId.INT32)
INT64 = CudfType(TypeId.INT64)
UINT64 = CudfType(TypeId.UINT64)
FLOAT64 = CudfType(TypeId.FLOAT64)

BITS = {
    TypeId.INT8: 8,
    TypeId.UINT8: 8,
    TypeId.INT16: 16,
    TypeId.UINT16: 16,
    TypeId.INT32: 32,
    TypeId.UINT32: 32,
    TypeId.INT64: 64,
    TypeId.UINT64: 64,
    TypeId.FLOAT32: 32,
    TypeId.FLOAT64: 64,
}
"""The widths of numbers."""

DECIMAL64_DIGITS = 18

_PLAIN: dict[type[pl.DataType], TypeId] = {
    pl.Int8: TypeId.INT8,
    pl.Int16: TypeId.INT16,
    pl.Int32: TypeId.INT32,
    pl.Int64: TypeId.INT64,
    pl.UInt8: TypeId.UINT8,
    pl.UInt16: TypeId.UINT16,
    pl.UInt32: TypeId.UINT32,
    pl.UInt64: TypeId.UINT64,
    pl.Float32: TypeId.FLOAT32,
    pl.Float64: TypeId.FLOAT64,
    pl.Boolean: TypeId.BOOL8,
    pl.String: TypeId.STRING,
    pl.Date: TypeId.TIMESTAMP_DAYS,
}
_TIMESTAMPS = {
    "ms": TypeId.TIMESTAMP_MILLISECONDS,
    "us": TypeId.TIMESTAMP_MICROSECONDS,
    "ns": TypeId.TIMESTAMP_NANOSECONDS,
}
_DURATIONS = {
    "ms": TypeId.DURATION_MILLISECONDS,
    "us": TypeId.DURATION_MICROSECONDS,
    "ns": TypeId.DURATION_NANOSECONDS,
}


def device_type(dtype: pl.DataType) -> CudfType:
    """Return the type of libcudf that holds values of a Polars type.

    Raises
    ------
    Unsupported
        If there is none.
    """
    plain = _PLAIN.get(dtype.base_type())
    if plain is not None:
        return CudfType(plain)
    match dtype:
        case pl.Datetime():
            return CudfType(_TIMESTAMPS[dtype.time_unit])
        case pl.Duration():
            return CudfType(_DURATIONS[dtype.time_unit])
        case pl.Decimal():
            return decimal_type(scale_of(dtype), wide=(dtype.precision or 38) > DECIMAL64_DIGITS)
        case pl.List():
            return CudfType(TypeId.LIST, 0, (device_type(instance(dtype.inner)),))
        case pl.Struct():
            return CudfType(TypeId.STRUCT, 0, tuple(device_type(instance(f.dtype)) for f in dtype.fields))
        case _:
            raise Unsupported(f"the type {dtype} has no form on a GPU")


def has_form(dtype: pl.DataType) -> bool:
    """Whether libcudf has a type for values of a Polars type."""
    try:
        device_type(dtype)
    except Unsupported:
        return False
    return True


def decimal_type(scale: int, *, wide: bool) -> CudfType:
    """Return the decimal type of 64 or 128 bits with ``scale`` digits after the point."""
    return CudfType(TypeId.DECIMAL128 if wide else TypeId.DECIMAL64, -scale)


def scale_of(dtype: pl.DataType) -> int:
    """Return the digits after the point of a decimal type."""
    assert isinstance(dtype, pl.Decimal)
    return dtype.scale or 0


def instance(dtype: object) -> pl.DataType:
    """Return the type that ``dtype``, a type or its class, stands for."""
    made = dtype() if isinstance(dtype, type) else dtype
    assert isinstance(made, pl.DataType)
    return made


def is_float(dtype: pl.DataType) -> bool:
    """Whether a type is of floats that a GPU has."""
    return isinstance(dtype, pl.Float32 | pl.Float64)


def is_integer(dtype: pl.DataType) -> bool:
    """Whether a type is of integers of at most 64 bits."""
    return dtype.is_integer() and dtype.base_type() in _PLAIN
