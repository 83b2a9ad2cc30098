"""A function of a plan on its way to calls of primitives, and small steps that many functions share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import polars as pl

from cudf_polars.execute.gpu.translate.typed import Scope, Typed, call, condition, null
from cudf_polars.execute.gpu.translate.untranslatable import Unsupported
from cudf_polars.plan import expressions as ex

__all__ = ["Form", "FunctionCall", "Translate", "add", "divide", "keep_null", "multiply", "subtract", "where"]

Translate: TypeAlias = Callable[[ex.Expr, Scope], Typed]
"""Translates an input of a function."""
Form: TypeAlias = Callable[["FunctionCall"], Typed]
"""Translates a function."""


class FunctionCall:
    """A function with its inputs, which are translated when they are asked for.

    Attributes
    ----------
    name
        As plans have it.
    expressions
        The inputs as the plan has them.
    options
        What is not an input.
    constants
        Those of the program.
    """

    def __init__(self, expr: ex.Function, scope: Scope, translate: Translate) -> None:
        self.name = expr.name
        self.expressions = expr.inputs
        self.options = expr.args
        self.dtype = expr.dtype
        self.constants = scope.constants
        self._scope = scope
        self._translate = translate

    def input(self, place: int) -> Typed:
        """Return an input."""
        return self._translate(self.expressions[place], self._scope)

    def inputs(self) -> list[Typed]:
        """Return all inputs."""
        return [self.input(place) for place in range(len(self.expressions))]

    def column(self, place: int) -> Typed:
        """Return an input that must not be a constant."""
        made = self.input(place)
        if made.literal is not None or made.is_null_literal:
            raise Unsupported(f"a constant as input of {self.name}")
        return made

    def constant(self, place: int) -> object:
        """Return the value of an input that must be a constant."""
        made = self.input(place)
        if made.literal is None:
            raise Unsupported(f"{self.name} needs a constant")
        return made.literal

    def text(self, place: int) -> str:
        """Return the value of an input that must be a constant text."""
        value = self.constant(place)
        if not isinstance(value, str):
            raise Unsupported(f"{self.name} needs a constant text")
        return value

    def number(self, place: int) -> int:
        """Return the value of an input that must be a constant integer."""
        value = self.constant(place)
        if not isinstance(value, int):
            raise Unsupported(f"{self.name} needs a constant integer")
        return value

    def series(self, place: int) -> pl.Series:
        """Return the values of an input that must be a constant list."""
        expr = self.expressions[place]
        if not isinstance(expr, ex.Literal) or not isinstance(expr.value, ex.FrozenSeries):
            raise Unsupported(f"{self.name} needs a constant list")
        series = expr.value.series
        if isinstance(series.dtype, pl.List | pl.Array):
            if len(series) != 1 or series.has_nulls():
                raise Unsupported(f"{self.name} needs one list")
            series = series.explode(empty_as_null=False, keep_nulls=False)
        return series

    def whole(self, value: int, dtype: pl.DataType | None = None) -> Typed:
        """Return a constant integer, by default an Int64."""
        return self.constants.value(value, pl.Int64() if dtype is None else dtype)


def _same(op: str) -> Callable[[Typed, Typed], Typed]:
    return lambda a, b: call(op, (a, b), a.dtype)


add, subtract, multiply, divide = (_same(op) for op in ("add", "sub", "mul", "floor_div"))


def where(mask: Typed, truthy: Typed, falsy: Typed) -> Typed:
    """Return ``truthy`` where a condition is true, else ``falsy``, of the same type."""
    return call(
        "copy_if_else",
        (mask, truthy, falsy),
        truthy.dtype,
        type=truthy.type,
        nullable=truthy.nullable or falsy.nullable,
    )


def keep_null(value: Typed, of: Typed) -> Typed:
    """Return a value, null where ``of`` is null."""
    if not of.nullable:
        return value
    return where(condition("is_valid", of, nullable=False), value, null(value.dtype, value.type))
