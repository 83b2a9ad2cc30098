"""Values of a program with what Polars knows of them, and the constants that they name."""

from __future__ import annotations

import decimal
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from cudf_polars.execute.gpu.program import Call, Column, Constant, CudfType, Value
from cudf_polars.execute.gpu.translate.ranges import UNKNOWN, Interval, Range, limits_of
from cudf_polars.execute.gpu.translate.types import BOOL, device_type, instance, is_float, scale_of

__all__ = ["Constants", "Scope", "Typed", "call", "column", "condition", "null"]

_EXACT = decimal.Context(prec=100)


@dataclass(frozen=True, slots=True)
class Typed:
    """An expression of a program with the Polars type that it stands for.

    Attributes
    ----------
    value
        The expression; its type may differ from the one that ``dtype`` usually has: decimals of any precision may have
        64 bits.
    range
        Where the values lie.
    nullable
        Whether there may be nulls.
    literal
        The Python value of a constant that is one value; ``None`` for all else.
    """

    value: Value
    dtype: pl.DataType
    range: Range = field(default=UNKNOWN, compare=False, repr=False)
    nullable: bool = True
    literal: Any = None

    @property
    def type(self) -> CudfType:
        """The type on the device."""
        return self.value.type

    @property
    def nan(self) -> bool:
        """Whether there may be NaNs."""
        return is_float(self.dtype) and not self.range.finite

    @property
    def is_null_literal(self) -> bool:
        """Whether this is a null for every row."""
        return isinstance(self.value, Call) and self.value.op == "null"


def call(
    op: str,
    args: tuple[Typed, ...],
    dtype: pl.DataType,
    options: tuple[int | float | str, ...] = (),
    *,
    type: CudfType | None = None,
    range: Range | None = None,
    nullable: bool | None = None,
) -> Typed:
    """Return a call of a primitive.

    Parameters
    ----------
    type
        The type on the device, if it is not that of ``dtype``.
    range
        Where the result lies; by default all of its type.
    nullable
        Whether there may be nulls; by default if an argument may have some.
    """
    return Typed(
        Call(op, tuple(arg.value for arg in args), device_type(dtype) if type is None else type, options),
        dtype,
        Range(limits_of(dtype)) if range is None else range,
        any(arg.nullable for arg in args) if nullable is None else nullable,
    )


def condition(
    op: str, *args: Typed, options: tuple[int | float | str, ...] = (), nullable: bool | None = None
) -> Typed:
    """Return a call of a primitive that gives booleans."""
    return call(op, args, pl.Boolean(), options, type=BOOL, nullable=nullable)


def null(dtype: pl.DataType, type: CudfType | None = None) -> Typed:
    """Return a null for every row."""
    return Typed(Call("null", (), device_type(dtype) if type is None else type), dtype, Range((0, 0)))


def column(index: int, typed: Typed) -> Typed:
    """Return what a projection of ``typed`` to the place ``index`` gives."""
    return Typed(Column(index, typed.value.type), typed.dtype, typed.range, typed.nullable)


class Constants:
    """The constants of a program: equal ones are one."""

    def __init__(self) -> None:
        self._places: dict[tuple[Any, ...], int] = {}
        self._values: dict[tuple[Any, ...], Typed] = {}
        self.series: list[pl.Series] = []

    def add(self, series: pl.Series) -> int:
        """Return the place of a series."""
        # Python's times would not have their nanoseconds.
        values = series.cast(pl.Int64) if series.dtype.is_temporal() else series
        key = (str(series.dtype), *map(repr, values.to_list()))
        place = self._places.setdefault(key, len(self.series))
        if place == len(self.series):
            self.series.append(series.alias(""))
        return place

    def value(self, value: Any, dtype: pl.DataType, type: CudfType | None = None) -> Typed:
        """Return one value as a constant; ``None`` becomes a null."""
        if value is None:
            return null(dtype, type)
        key = (value.__class__, repr(value), dtype, type)
        known = self._values.get(key)
        if known is None:
            known = self._values[key] = self.only(pl.Series("", [value], dtype=dtype), type)
        return known

    def only(self, series: pl.Series, type: CudfType | None = None) -> Typed:
        """Return the one value of a series as a constant: Python's times would not have its nanoseconds."""
        dtype = series.dtype
        if series.has_nulls():
            return null(dtype, type)
        return Typed(
            Constant(self.add(series), device_type(dtype) if type is None else type),
            dtype,
            _range_of(series),
            nullable=False,
            literal=series.item(),
        )

    def of(self, constant: Typed) -> pl.Series:
        """Return the series of a constant."""
        assert isinstance(constant.value, Constant)
        return self.series[constant.value.index]

    def set_of(self, series: pl.Series) -> Constant:
        """Return a set of values that ``contains`` looks into."""
        return Constant(self.add(series), device_type(instance(series.dtype)))


def _range_of(series: pl.Series) -> Range:
    value = series.item()
    interval: Interval | None = None
    if isinstance(series.dtype, pl.Decimal):
        units = int(value.scaleb(scale_of(series.dtype), _EXACT))
        interval = (units, units)
    elif isinstance(value, bool | int):
        interval = (int(value), int(value))
    elif isinstance(value, float) and value - value == 0.0:
        interval = (value, value)
    return Range(interval)


@dataclass(frozen=True, slots=True)
class Scope:
    """What expressions may name: columns by name, and the constants of the program."""

    columns: Mapping[str, Typed]
    constants: Constants
