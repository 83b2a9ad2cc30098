"""The functions of Polars that are computed row by row, as calls of primitives."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import polars as pl

from cudf_polars.execute.gpu.translate import operators
from cudf_polars.execute.gpu.translate.ranges import Range
from cudf_polars.execute.gpu.translate.refusal import Unsupported
from cudf_polars.execute.gpu.translate.regex import common_pattern
from cudf_polars.execute.gpu.translate.typed import Scope, Typed, call, condition, null
from cudf_polars.execute.gpu.translate.types import instance, is_float, is_integer
from cudf_polars.plan import expressions as ex

__all__ = ["field_of", "translate_function"]

Translate: TypeAlias = Callable[[ex.Expr, Scope], Typed]
"""Translates an input of a function."""
Form: TypeAlias = Callable[["Call"], Typed]


class Call:
    """A function of a plan with its inputs, which are translated when they are asked for."""

    def __init__(self, expr: ex.Function, scope: Scope, translate: Translate) -> None:
        self.expr = expr
        self.scope = scope
        self.options = expr.args
        self._translate = translate

    def input(self, place: int) -> Typed:
        """Return an input."""
        return self._translate(self.expr.inputs[place], self.scope)

    def inputs(self) -> list[Typed]:
        """Return all inputs."""
        return [self.input(place) for place in range(len(self.expr.inputs))]

    def column(self, place: int) -> Typed:
        """Return an input that must not be a constant."""
        made = self.input(place)
        if made.literal is not None or made.is_null_literal:
            raise Unsupported(f"a constant as input of {self.expr.name}")
        return made

    def constant(self, place: int) -> object:
        """Return the value of an input that must be a constant."""
        made = self.input(place)
        if made.literal is None:
            raise Unsupported(f"{self.expr.name} needs a constant")
        return made.literal

    def text(self, place: int) -> str:
        """Return the value of an input that must be a constant text."""
        value = self.constant(place)
        if not isinstance(value, str):
            raise Unsupported(f"{self.expr.name} needs a constant text")
        return value

    def number(self, place: int) -> int:
        """Return the value of an input that must be a constant integer."""
        value = self.constant(place)
        if not isinstance(value, int):
            raise Unsupported(f"{self.expr.name} needs a constant integer")
        return value


def translate_function(expr: ex.Function, scope: Scope, translate: Translate) -> Typed:
    """Return a function as calls of primitives.

    Raises
    ------
    Unsupported
        If it has no form on a GPU.
    """
    form = FORMS.get(expr.name)
    if form is None:
        raise Unsupported(f"the function {expr.name} has no form on a GPU")
    return form(Call(expr, scope, translate))


def _is_between(c: Call) -> Typed:
    value, low, high = c.inputs()
    (closed,) = c.options
    above = ex.Operator.GE if closed in ("both", "left") else ex.Operator.GT
    below = ex.Operator.LE if closed in ("both", "right") else ex.Operator.LT
    return operators.all_of(
        operators.compare(above, value, low, c.scope.constants),
        operators.compare(below, value, high, c.scope.constants),
    )


def _not(c: Call) -> Typed:
    value = c.column(0)
    if isinstance(value.dtype, pl.Boolean):
        return operators.negated(value)
    if is_integer(value.dtype):
        return call("bit_invert", (value,), value.dtype)
    raise Unsupported(f"the opposite of {value.dtype}")


def _is_in(c: Call) -> Typed:
    value = c.column(0)
    haystack = c.expr.inputs[1]
    (nulls_equal,) = c.options
    if not isinstance(haystack, ex.Literal) or not isinstance(haystack.value, ex.FrozenSeries):
        raise Unsupported("is_in needs a constant list")
    series = haystack.value.series
    if isinstance(series.dtype, pl.List | pl.Array):
        if len(series) != 1 or series.has_nulls():
            raise Unsupported("is_in needs one list")
        series = series.explode(empty_as_null=False, keep_nulls=False)
    if series.dtype != value.dtype or series.dtype.is_nested():
        raise Unsupported(f"is_in of {value.dtype} in {series.dtype}")
    if isinstance(series.dtype, pl.Decimal):
        raise Unsupported("is_in of decimals")
    values = series.drop_nulls().unique(maintain_order=True)
    if is_float(series.dtype) and values.is_nan().any():
        raise Unsupported("is_in of NaN")
    constants = c.scope.constants
    if len(values) == 0:
        found = operators.all_of(
            condition("is_null", value, nullable=False), condition("is_valid", value, nullable=False)
        )
    elif len(values) == 1:
        found = condition("equal", value, constants.value(values.item(), value.dtype))
    else:
        found = condition("contains", Typed(constants.set_of(values), value.dtype, nullable=False), value)
    if nulls_equal:
        with_null = constants.value(series.has_nulls(), pl.Boolean())
        return condition("replace_nulls", found, with_null, nullable=False)
    if len(values) == 0 and value.nullable:
        raise Unsupported("is_in of an empty list")
    return found


def _is_null(c: Call) -> Typed:
    return _nullness(c, "is_null", when_never=False)


def _is_not_null(c: Call) -> Typed:
    return _nullness(c, "is_valid", when_never=True)


def _nullness(c: Call, op: str, *, when_never: bool) -> Typed:
    value = c.column(0)
    if not value.nullable:
        return c.scope.constants.value(when_never, pl.Boolean())
    return condition(op, value, nullable=False)


# --- texts ----------------------------------------------------------------------


def _contains(c: Call) -> Typed:
    value = c.column(0)
    literal, _strict = c.options
    if c.input(1).is_null_literal:
        return null(pl.Boolean())
    if literal:
        return condition("str.has", value, c.input(1))
    pattern = c.text(1)
    if pattern and pattern.isascii() and pattern.replace(" ", "").isalnum():
        return condition("str.has", value, c.input(1))
    return condition("str.contains", value, options=(common_pattern(pattern),))


def _starts_with(c: Call) -> Typed:
    return condition("str.starts_with", c.column(0), c.input(1))


def _ends_with(c: Call) -> Typed:
    return condition("str.ends_with", c.column(0), c.input(1))


def _slice(c: Call) -> Typed:
    value, offset, length = c.column(0), c.number(1), c.input(2)
    if offset < 0:
        raise Unsupported("a slice of texts from their end")
    if length.is_null_literal:
        return call("str.slice", (value,), pl.String(), (offset, -1))
    count = c.number(2)
    if count < 0 or offset + count >= 2**31:
        raise Unsupported("a slice of texts of this length")
    return call("str.slice", (value,), pl.String(), (offset, offset + count))


# --- dates ----------------------------------------------------------------------


def _component(name: str, dtype: pl.DataType, low: int, high: int) -> Form:
    def form(c: Call) -> Typed:
        value = c.column(0)
        if isinstance(value.dtype, pl.Datetime) and value.dtype.time_zone not in (None, "UTC"):
            raise Unsupported(f"dates of the time zone {value.dtype.time_zone}")
        if not isinstance(value.dtype, pl.Date | pl.Datetime):
            raise Unsupported(f"{c.expr.name} of {value.dtype}")
        part = call("dt.component", (value,), pl.Int16(), (name,), range=Range((low, high)))
        return part if isinstance(dtype, pl.Int16) else call("cast", (part,), dtype, range=Range((low, high)))

    return form


# --- structs ----------------------------------------------------------------------


def field_of(value: Typed, place: int) -> Typed:
    """Return a field of a struct."""
    assert isinstance(value.dtype, pl.Struct)
    return call("struct.field", (value,), instance(value.dtype.fields[place].dtype), (place,), nullable=True)


def _field(c: Call) -> Typed:
    value = c.column(0)
    (name,) = c.options
    assert isinstance(value.dtype, pl.Struct)
    names = [struct_field.name for struct_field in value.dtype.fields]
    return field_of(value, names.index(name))


FORMS: dict[str, Form] = {
    "is_between": _is_between,
    "is_in": _is_in,
    "is_null": _is_null,
    "is_not_null": _is_not_null,
    "not_": _not,
    "str.contains": _contains,
    "str.starts_with": _starts_with,
    "str.ends_with": _ends_with,
    "str.slice": _slice,
    "struct.field": _field,
    "dt.year": _component("year", pl.Int32(), -32768, 32767),
    "dt.month": _component("month", pl.Int8(), 1, 12),
    "dt.day": _component("day", pl.Int8(), 1, 31),
}
"""By the name of the function; what is missing has no form on a GPU."""
