"""What is known of a lazy frame: which order Polars promises its rows, which columns tell them apart."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl

from differential.expressions import KINDS, Scope

__all__ = ["ANY_ORDER", "TOTAL", "Line", "Order", "Relation", "Rule", "State", "Step", "holds_floats"]


@dataclass(frozen=True)
class Order:
    """The order of rows that Polars promises.

    Attributes
    ----------
    total
        All rows have their places.
    columns
        Else, rows have their places but for those that agree in these columns; empty if no order is promised.
    """

    total: bool = False
    columns: tuple[str, ...] = ()


TOTAL = Order(True)
ANY_ORDER = Order()


@dataclass(frozen=True)
class State:
    """What is known of a lazy frame.

    Attributes
    ----------
    keys
        Sets of columns in which no two rows agree.
    inexact
        Columns whose last digits may differ from run to run.
    height
        The number of rows, if it is known.
    most
        How many rows there are at most, roughly.
    """

    order: Order
    keys: frozenset[frozenset[str]] = frozenset()
    inexact: frozenset[str] = frozenset()
    height: int | None = None
    most: float = 0.0

    def is_key(self, columns: Iterable[str]) -> bool:
        """Whether no two rows agree in ``columns``."""
        given = frozenset(columns)
        return any(key <= given for key in self.keys)

    def only(self, kept: Iterable[str], changed: Iterable[str] = ()) -> State:
        """Return what is left of it when other columns are dropped, or changed."""
        left = set(kept) - set(changed)
        order = self.order if self.order.total or set(self.order.columns) <= left else ANY_ORDER
        return replace(
            self,
            order=order,
            keys=frozenset(key for key in self.keys if key <= left),
            inexact=frozenset(self.inexact & left),
        )

    def renamed(self, names: Mapping[str, str]) -> State:
        """Return it with columns renamed."""

        def new(columns: Iterable[str]) -> list[str]:
            return [names.get(c, c) for c in columns]

        return replace(
            self,
            order=Order(self.order.total, tuple(new(self.order.columns))),
            keys=frozenset(frozenset(new(key)) for key in self.keys),
            inexact=frozenset(new(self.inexact)),
        )


Schema = Mapping[str, pl.DataType]
Rule = Callable[[Sequence[State], Schema], "State | None"]
"""From the inputs' states and the result's schema to the result's state; ``None`` if the step makes no sense there."""


@dataclass(frozen=True)
class Step:
    """A line to be written: its inputs, its text and what it promises."""

    inputs: tuple[str, ...]
    text: str
    rule: Rule


@dataclass
class Relation:
    """A lazy frame of a case while it is made.

    Attributes
    ----------
    runs
        Whether Polars can compute an expression over it.
    """

    name: str
    schema: Schema
    state: State
    runs: Callable[[str], bool] = lambda _: True

    def scope(self, rng: random.Random) -> Scope:
        """Return the columns that expressions may use."""
        return Scope(
            rng,
            self.schema,
            self.state.inexact,
            self.state.order.total,
            self.state.is_key({"srt"}) and "srt" in self.schema,
            self.state.height,
        )

    def exact(self, kind: str) -> list[str]:
        """Return the columns of a kind that are no approximation."""
        return [n for n, t in self.schema.items() if n not in self.state.inexact and KINDS[kind](n, t)]


@dataclass(frozen=True)
class Line:
    """A step of a case: ``target = text``, over the variables ``inputs``."""

    target: str
    inputs: tuple[str, ...]
    text: str
    rule: Rule


def holds_floats(dtype: pl.DataType) -> bool:
    """Whether there are floats in values of this type."""
    return dtype.is_float() or (dtype.is_nested() and "Float" in str(dtype))
