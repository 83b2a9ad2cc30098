"""What the installed libcudf says that it supports: that needs no GPU."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

from cudf_polars.execute.gpu.program import CudfType
from support.cudf_emulator.errors import refuse

__all__ = ["check_aggregation", "check_binary", "check_cast", "library"]


@functools.cache
def library() -> ModuleType | None:
    """Return pylibcudf, ``None`` where it is not installed: then types are checked by the emulator alone."""
    try:
        import pylibcudf
    except ImportError:
        return None
    module: ModuleType = pylibcudf
    return module


def check_binary(op: str, left: CudfType, right: CudfType, out: CudfType) -> None:
    """Refuse a binary operation of types that libcudf does not take."""
    if not _is_binary(op, left, right, out):
        refuse(f"libcudf has no {op} of {_name(left)} and {_name(right)} that gives {_name(out)}")


def check_cast(from_: CudfType, to: CudfType) -> None:
    """Refuse a cast that libcudf does not have."""
    if not _is_cast(from_, to):
        refuse(f"libcudf has no cast from {_name(from_)} to {_name(to)}")


def check_aggregation(kind: str, column: CudfType) -> None:
    """Refuse an aggregation of a type that libcudf does not aggregate so."""
    if not _is_aggregation(kind, column):
        refuse(f"libcudf has no {kind} of {_name(column)}")


def _name(type: CudfType) -> str:
    return type.id.name


def _type(plc: ModuleType, type: CudfType) -> Any:
    return plc.DataType(plc.TypeId(int(type.id)), type.scale)


@functools.cache
def _is_binary(op: str, left: CudfType, right: CudfType, out: CudfType) -> bool:
    plc = library()
    if plc is None:
        return True
    operator = getattr(plc.binaryop.BinaryOperator, op)
    types = (_type(plc, t) for t in (out, left, right))
    return bool(plc.binaryop.is_supported_operation(*types, operator))


@functools.cache
def _is_cast(from_: CudfType, to: CudfType) -> bool:
    plc = library()
    return plc is None or bool(plc.unary.is_supported_cast(_type(plc, from_), _type(plc, to)))


@functools.cache
def _is_aggregation(kind: str, column: CudfType) -> bool:
    plc = library()
    if plc is None:
        return True
    makers = {
        "sum": plc.aggregation.sum,
        "product": plc.aggregation.product,
        "min": plc.aggregation.min,
        "max": plc.aggregation.max,
        "nunique": plc.aggregation.nunique,
        "var": plc.aggregation.variance,
        "std": plc.aggregation.std,
        "median": plc.aggregation.median,
        "quantile": lambda: plc.aggregation.quantile([0.5]),
        "mean": plc.aggregation.mean,
    }
    maker = makers.get(kind)
    return maker is None or bool(plc.aggregation.is_valid_aggregation(_type(plc, column), maker()))
