"""Columns as libcudf holds them: values of fixed width, texts, lists and structs, with a mask of what is valid."""

from __future__ import annotations

import contextvars
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from cudf_polars.execute.gpu.program import CudfType, TypeId
from cudf_polars.execute.gpu.translate.types import instance

__all__ = [
    "DECIMALS",
    "DURATIONS",
    "FLOATS",
    "INTEGERS",
    "TIMESTAMPS",
    "Array",
    "Values",
    "array_of",
    "column_of",
    "concatenate",
    "empty",
    "is_decimal",
    "narrowed",
    "nulls",
    "poison",
    "poisons",
    "series_of",
    "storage_of",
    "wrapped",
]

Array: TypeAlias = npt.NDArray[Any]

T = TypeId
_STORAGE: dict[TypeId, npt.DTypeLike] = {
    T.INT8: np.int8,
    T.INT16: np.int16,
    T.INT32: np.int32,
    T.INT64: np.int64,
    T.UINT8: np.uint8,
    T.UINT16: np.uint16,
    T.UINT32: np.uint32,
    T.UINT64: np.uint64,
    T.FLOAT32: np.float32,
    T.FLOAT64: np.float64,
    T.BOOL8: np.bool_,
    T.TIMESTAMP_DAYS: np.int32,
    T.DURATION_DAYS: np.int32,
    T.DECIMAL32: np.int32,
    T.DECIMAL64: np.int64,
}
INTEGERS = (T.INT8, T.INT16, T.INT32, T.INT64, T.UINT8, T.UINT16, T.UINT32, T.UINT64)
FLOATS = (T.FLOAT32, T.FLOAT64)
DECIMALS = (T.DECIMAL32, T.DECIMAL64, T.DECIMAL128)
TIMESTAMPS = tuple(t for t in T if t.name.startswith("TIMESTAMP"))
DURATIONS = tuple(t for t in T if t.name.startswith("DURATION"))
for _time in (*TIMESTAMPS, *DURATIONS):
    _STORAGE.setdefault(_time, np.int64)


def storage_of(id: TypeId) -> np.dtype[Any]:
    """Return the type of the array that holds values: 128 bits are Python's integers."""
    return np.dtype(_STORAGE.get(id, object))


def is_decimal(type: CudfType) -> bool:
    """Whether a type is of decimals."""
    return type.id in DECIMALS


@dataclass(frozen=True)
class Values:
    """A column: what is not valid has a value too, which must not matter.

    Decimals are their units, times are ticks, lists are Python's lists of such values (``None`` for null), and structs
    are tuples.
    """

    type: CudfType
    data: Array
    valid: npt.NDArray[np.bool_]

    def __post_init__(self) -> None:
        assert len(self.data) == len(self.valid)
        assert self.data.dtype == storage_of(self.type.id), (self.data.dtype, self.type)

    def __len__(self) -> int:
        return len(self.data)

    def take(self, rows: Array) -> Values:
        """Return rows by number; -1 gives null."""
        if len(self) == 0:
            return nulls(self.type, len(rows))
        return Values(self.type, self.data[rows], self.valid[rows] & (rows >= 0))

    def keep(self, mask: Array) -> Values:
        """Return the rows where ``mask`` is true."""
        return Values(self.type, self.data[mask], self.valid[mask])

    def slice(self, begin: int, end: int) -> Values:
        """Return a range of rows."""
        return Values(self.type, self.data[begin:end], self.valid[begin:end])

    def with_valid(self, valid: npt.NDArray[np.bool_]) -> Values:
        """Return the same values with another mask."""
        return Values(self.type, self.data, valid)

    def to_list(self) -> list[Any]:
        """Return the stored values, ``None`` for null."""
        return [x if ok else None for x, ok in zip(self.data.tolist(), self.valid.tolist(), strict=True)]


_POISON: dict[TypeId, tuple[Any, Any]] = {
    T.INT8: (-83, 57),
    T.UINT8: (173, 91),
    T.INT16: (-21043, 31337),
    T.UINT16: (44493, 31337),
    T.FLOAT32: (-5.2731e17, 3.1415e-9),
    T.FLOAT64: (-5.273142e17, 3.14159e-9),
    T.BOOL8: (True, False),
    T.STRING: ("\u2620 undefined", "undefined \u2620"),
}
poisons: contextvars.ContextVar[int] = contextvars.ContextVar("poisons", default=0)
"""Which of the two values stands for what is undefined."""


def poison(type: CudfType, rows: int) -> Array:
    """Return values that nobody would expect, for what libcudf leaves undefined."""
    if type.id in (T.LIST, T.STRUCT):
        return array_of([None] * rows, type)
    bits = storage_of(type.id).itemsize if type.id is not T.DECIMAL128 else 16
    wide = tuple(number % 2 ** (8 * bits - 1) for number in (0x5AFE5AFE, 0x2BADF00D))
    return np.full(rows, _POISON.get(type.id, wide)[poisons.get()], dtype=storage_of(type.id))


def narrowed(units: Array, dtype: np.dtype[Any]) -> Array:
    """Return the units of decimals as they are stored: they wrap."""
    if dtype.hasobject:
        return wrapped(units.astype(object))
    return units if units.dtype == dtype else wrapped(units, 8 * dtype.itemsize).astype(dtype)


def wrapped(data: Array, bits: int = 128) -> Array:
    """Return Python's integers modulo a power of two, as a machine of so many bits has them."""
    half = 1 << (bits - 1)
    if len(data) and (data.max() >= half or data.min() < -half):
        data = (data + half) % (2 * half) - half
    return data


def array_of(values: Sequence[Any], type: CudfType) -> Array:
    """Return stored values as an array; objects stay objects, whatever they are."""
    out = np.empty(len(values), dtype=storage_of(type.id))
    if out.dtype == object:
        for place, value in enumerate(values):
            out[place] = value
    else:
        out[:] = values
    return out


def nulls(type: CudfType, rows: int) -> Values:
    """Return a column of nulls."""
    return Values(type, poison(type, rows), np.zeros(rows, dtype=np.bool_))


def empty(type: CudfType) -> Values:
    """Return a column without rows."""
    return nulls(type, 0)


def concatenate(parts: Sequence[Values]) -> Values:
    """Return columns of one type after each other."""
    if len(parts) == 1:
        return parts[0]
    return Values(
        parts[0].type, np.concatenate([p.data for p in parts]), np.concatenate([p.valid for p in parts])
    )


# --- from and to Polars ----------------------------------------------------------------------

_PLAIN: dict[type[pl.DataType], TypeId] = {
    pl.Int8: T.INT8,
    pl.Int16: T.INT16,
    pl.Int32: T.INT32,
    pl.Int64: T.INT64,
    pl.UInt8: T.UINT8,
    pl.UInt16: T.UINT16,
    pl.UInt32: T.UINT32,
    pl.UInt64: T.UINT64,
    pl.Float32: T.FLOAT32,
    pl.Float64: T.FLOAT64,
    pl.Boolean: T.BOOL8,
    pl.String: T.STRING,
    pl.Date: T.TIMESTAMP_DAYS,
}
_UNITS = {"ms": "MILLISECONDS", "us": "MICROSECONDS", "ns": "NANOSECONDS"}


def _arrives_as(dtype: pl.DataType) -> CudfType:
    """Return the type that libcudf gives what comes from Arrow."""
    match dtype:
        case pl.Datetime():
            return CudfType(_named(f"TIMESTAMP_{_UNITS[dtype.time_unit]}"))
        case pl.Duration():
            return CudfType(_named(f"DURATION_{_UNITS[dtype.time_unit]}"))
        case pl.Decimal():
            return CudfType(T.DECIMAL128, -(dtype.scale or 0))
        case pl.List():
            return CudfType(T.LIST, 0, (_arrives_as(_instance(dtype.inner)),))
        case pl.Struct():
            return CudfType(T.STRUCT, 0, tuple(_arrives_as(_instance(f.dtype)) for f in dtype.fields))
        case _:
            return CudfType(_PLAIN[dtype.base_type()])


def _named(name: str) -> TypeId:
    return TypeId[name]


def _instance(dtype: Any) -> pl.DataType:
    made = dtype() if isinstance(dtype, type) else dtype
    assert isinstance(made, pl.DataType)
    return made


def _decimal_units(series: pl.Series) -> Array:
    """Return the units of a decimal column, as 64 bits if they fit."""
    array = series.to_arrow()
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    buffer = array.buffers()[1]
    if len(array) == 0 or buffer is None:
        return np.zeros(len(array), dtype=np.int64)
    words = np.frombuffer(buffer, dtype=np.int64)[2 * array.offset : 2 * (array.offset + len(array))]
    low, high = words[0::2], words[1::2]
    valid = series.is_not_null().to_numpy()
    if np.array_equal((low >> 63)[valid], high[valid]):
        return np.asarray(low)
    return np.asarray(high.astype(object) * (1 << 64) + low.view(np.uint64).astype(object))


def column_of(series: pl.Series, type: CudfType) -> Values:
    """Return a series as a column of ``type``; only the width of decimals may differ from what it is.

    Raises
    ------
    TypeError
        If the series is of another type.
    """
    has = _arrives_as(series.dtype)
    same = has == type or (is_decimal(has) and is_decimal(type) and has.scale == type.scale)
    if not same and not (has.id is type.id and type.id in (T.LIST, T.STRUCT)):
        raise TypeError(f"a series of {series.dtype} is not a column of {type}")
    valid = series.is_not_null().to_numpy().copy()
    if is_decimal(type):
        units = _decimal_units(series)
        if type.id is T.DECIMAL128:
            return Values(type, units.astype(object), valid)
        narrow = units.astype(storage_of(type.id))
        if not np.array_equal(narrow[valid], units[valid]):
            raise TypeError(f"a decimal does not fit {type}")
        return Values(type, narrow, valid)
    if type.id in (T.LIST, T.STRUCT):
        return _hide(Values(type, array_of(_nested(series, type), type), valid))
    if type.id is T.STRING:
        return _hide(Values(type, array_of(series.to_list(), type), valid))
    physical = series.to_physical().fill_null(False if type.id is T.BOOL8 else 0)
    return _hide(Values(type, physical.to_numpy().astype(storage_of(type.id)), valid))


def _nested(series: pl.Series, type: CudfType) -> list[Any]:
    if type.id is T.LIST:
        (inner,) = type.children
        return [None if item is None else column_of(item, inner).to_list() for item in series]
    fields = [
        column_of(series.struct.field(name), child).to_list()
        for name, child in zip(series.struct.fields, type.children, strict=True)
    ]
    return list(zip(*fields, strict=True)) if fields else [()] * len(series)


def _hide(column: Values) -> Values:
    """Put values under the nulls that must not matter."""
    if column.valid.all():
        return column
    hidden = column.data.copy()
    hidden[~column.valid] = poison(column.type, 1)[0]
    return Values(column.type, hidden, column.valid)


def series_of(column: Values) -> pl.Series:
    """Return a column as the series that comes back from the device."""
    type, valid = column.type, column.valid
    if is_decimal(type):
        return _series_of_decimals(column)
    if type.id is T.STRING or type.id in (T.LIST, T.STRUCT):
        dtype = _returns_as(type)
        # By way of ticks: Polars makes Python's times, which have no nanoseconds, of those in lists and structs.
        return pl.Series(_python(column.to_list(), type), dtype=_with_ticks(dtype), strict=True).cast(dtype)
    series = pl.Series(column.data)
    if not valid.all():
        series = pl.select(pl.when(pl.Series(valid)).then(series)).to_series()
    if type.id in INTEGERS or type.id in FLOATS or type.id is T.BOOL8:
        return series
    if type.id is T.TIMESTAMP_DAYS:
        return series.cast(pl.Date)
    return series.cast(pl.Int64).cast(_returns_as(type))


def _python(values: list[Any], type: CudfType) -> list[Any]:
    """Return stored values as those that Polars makes a series from."""
    match type.id:
        case T.LIST:
            (inner,) = type.children
            return [None if v is None else _python(v, inner) for v in values]
        case T.STRUCT:
            children = [
                _python([None if v is None else v[i] for v in values], child)
                for i, child in enumerate(type.children)
            ]
            rows = zip(*children, strict=True) if children else [()] * len(values)
            return [
                None if v is None else {str(i): x for i, x in enumerate(row)}
                for v, row in zip(values, rows, strict=True)
            ]
        case _ if is_decimal(type):
            return _series_of_decimals(_stored(values, type)).to_list()
        case _:
            return values


def _with_ticks(dtype: pl.DataType) -> pl.DataType:
    match dtype:
        case pl.List():
            return pl.List(_with_ticks(instance(dtype.inner)))
        case pl.Struct():
            return pl.Struct([pl.Field(f.name, _with_ticks(instance(f.dtype))) for f in dtype.fields])
        case pl.Date():
            return pl.Int32()
        case pl.Datetime() | pl.Duration():
            return pl.Int64()
        case _:
            return dtype


def _stored(values: list[Any], type: CudfType) -> Values:
    valid = np.array([v is not None for v in values], dtype=np.bool_)
    hidden = poison(type, 1)[0]
    return Values(type, array_of([hidden if v is None else v for v in values], type), valid)


def _returns_as(type: CudfType) -> pl.DataType:
    if type.id in TIMESTAMPS or type.id in DURATIONS:
        kind, unit = type.id.name.split("_")
        if unit == "DAYS" and kind == "TIMESTAMP":
            return pl.Date()
        units: dict[str, Any] = {name: short for short, name in _UNITS.items()}
        return pl.Datetime(units[unit]) if kind == "TIMESTAMP" else pl.Duration(units[unit])
    match type.id:
        case T.LIST:
            return pl.List(_returns_as(type.children[0]))
        case T.STRUCT:
            return pl.Struct([pl.Field(str(i), _returns_as(c)) for i, c in enumerate(type.children)])
        case T.DECIMAL32 | T.DECIMAL64 | T.DECIMAL128:
            return pl.Decimal(_DIGITS[type.id], -type.scale)
        case _:
            return next(dtype() for dtype, id in _PLAIN.items() if id is type.id)


_DIGITS = {T.DECIMAL32: 9, T.DECIMAL64: 18, T.DECIMAL128: 38}


def _series_of_decimals(column: Values) -> pl.Series:
    if column.type.scale > 0:
        raise TypeError(f"Arrow has no decimals like {column.type}")
    if column.data.dtype == object:
        data = np.where(column.valid, column.data, 0)
        raw = b"".join(int(x).to_bytes(16, "little", signed=True) for x in data.tolist())
    else:
        low = column.data.astype(np.int64)
        raw = np.stack([low, low >> 63], axis=1).tobytes()
    mask = pa.array(column.valid).buffers()[1]
    array = pa.Array.from_buffers(
        pa.decimal128(38, -column.type.scale), len(column), [mask, pa.py_buffer(raw)]
    )
    made = pl.from_arrow(array)
    assert isinstance(made, pl.Series)
    return made
