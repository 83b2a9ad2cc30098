"""Functions of lists and structs."""

from __future__ import annotations

import polars as pl

from cudf_polars.execute.gpu.translate.functions.call import Form, FunctionCall
from cudf_polars.execute.gpu.translate.typed import Typed, call
from cudf_polars.execute.gpu.translate.types import INT32, instance, is_integer
from cudf_polars.execute.gpu.translate.untranslatable import Unsupported

__all__ = ["FORMS", "field_of"]


def field_of(value: Typed, place: int) -> Typed:
    """Return a field of a struct."""
    assert isinstance(value.dtype, pl.Struct)
    return call("struct.field", (value,), instance(value.dtype.fields[place].dtype), (place,), nullable=True)


def _field(c: FunctionCall) -> Typed:
    value = c.column(0)
    (name,) = c.options
    assert isinstance(value.dtype, pl.Struct)
    names = [struct_field.name for struct_field in value.dtype.fields]
    return field_of(value, names.index(name))


def _list(c: FunctionCall) -> tuple[Typed, pl.DataType]:
    value = c.column(0)
    if not isinstance(value.dtype, pl.List):
        raise Unsupported(f"{c.name} of {value.dtype}")
    return value, instance(value.dtype.inner)


def _len(c: FunctionCall) -> Typed:
    value, _ = _list(c)
    return call("cast", (call("list.length", (value,), pl.Int32(), type=INT32),), pl.UInt32())


def _get(c: FunctionCall) -> Typed:
    value, inner = _list(c)
    (null_on_oob,) = c.options
    if not null_on_oob or inner.is_nested():
        raise Unsupported("an element of a list that may not be there")
    return call("list.get", (value,), inner, (c.number(1),), nullable=True)


def _extreme(op: str) -> Form:
    def form(c: FunctionCall) -> Typed:
        value, inner = _list(c)
        if not is_integer(inner):
            raise Unsupported(f"{c.name} of {value.dtype}")
        return call(op, (value,), inner, nullable=True)

    return form


def _contains(c: FunctionCall) -> Typed:
    value, inner = _list(c)
    wanted = c.input(1)
    if wanted.is_null_literal or wanted.nullable or wanted.dtype != inner:
        raise Unsupported(f"a search for {wanted.dtype} in {value.dtype}, or for nulls")
    if not (is_integer(inner) or isinstance(inner, pl.String | pl.Date)):
        raise Unsupported(f"a search in {value.dtype}")
    return call("list.contains", (value, wanted), pl.Boolean(), nullable=value.nullable)


FORMS: dict[str, Form] = {
    "struct.field": _field,
    "list.contains": _contains,
    "list.len": _len,
    "list.get": _get,
    "list.min": _extreme("list.min"),
    "list.max": _extreme("list.max"),
}
