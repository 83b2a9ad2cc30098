"""What the planner asks about rows while it plans: how many they are, which keys they have, and how often."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import polars as pl

from cudf_polars.lower.physical import Materialize

__all__ = ["Counted", "Findings", "KeyFilter", "KeyLimit", "KeyShare", "Keys", "LookupKey", "Measurement"]


class Measurement(Protocol):
    """What a materialized stream is taken to hold over all ranks; lower bounds unless ``complete``.

    It may be an estimate: what is fast may depend on it, what is right may not.
    """

    @property
    def expected_rows(self) -> int:
        """Number of rows."""
        ...

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        ...

    @property
    def complete(self) -> bool:
        """Whether the stream ended before the limit."""
        ...


class Counted(Measurement, Protocol):
    """What a materialized stream holds over all ranks, counted."""

    @property
    def rows(self) -> int:
        """Number of rows."""
        ...

    @property
    def heights(self) -> tuple[int, ...]:
        """Number of rows of each rank."""
        ...


class KeyFilter(Protocol):
    """Knows of every value whether it may be one of a set of keys; of keys it is sure."""

    def may_contain(self, column: pl.Expr) -> pl.Expr:
        """Return whether the values of a column may be among the keys; what it is for null says nothing."""
        ...


class Keys(Protocol):
    """The values of a key column over all ranks."""

    @property
    def count(self) -> int:
        """How many different ones there are; if ``values`` is None, about, or at most."""
        ...

    @property
    def values(self) -> pl.Series | None:
        """All of them but null; None: they are too many, or not known yet."""
        ...

    @property
    def bloom_filter(self) -> KeyFilter | None:
        """A filter of all of them but null, if they are too many for ``values`` and not for this."""
        ...

    @property
    def bounds(self) -> tuple[Any, Any] | None:
        """The least and the greatest, where values have an order that literals keep; None: there are none."""
        ...

    @property
    def has_null(self) -> bool:
        """Whether null is a value."""
        ...


@dataclass(frozen=True)
class KeyLimit:
    """The most values of a column that ranks send each other, and the most that they make a Bloom filter of instead."""

    values: int
    in_filter: int = 0


@dataclass(frozen=True)
class KeyShare:
    """Which keys are counted: those of at least this part of the rows; if any are given, those of these hashes."""

    least: float
    among: frozenset[int] | None = None


@dataclass(frozen=True)
class LookupKey:
    """A column by whose values a join finds rows.

    Attributes
    ----------
    name
        Of the column, which has integers or what is stored as such.
    nulls_equal
        Whether a null finds the row of a null.
    unique
        Whether a value must be that of one row; else it is enough to know whether there is one.
    """

    name: str
    nulls_equal: bool
    unique: bool


class Findings(Protocol):
    """What a rank finds out about the rows of materialized streams while a query is planned.

    All ranks ask the same in the same order, and get the same answers.
    """

    def run_and_measure(self, materialized: Materialize, limit: int | None) -> Counted:
        """Read rows up to ``limit`` bytes a rank, to their end if ``None``, and sum over the ranks."""
        ...

    def measure(self, materialized: Materialize, limit: int | None) -> Measurement:
        """As :meth:`run_and_measure`, or by estimates, as the options ask: to choose a way."""
        ...

    def find_keys(self, materialized: Materialize, limits: Mapping[str, KeyLimit]) -> Sequence[Keys]:
        """Return the values that columns have in what was read; only their bounds beyond a column's limits."""
        ...

    def can_look_up(self, materialized: Materialize, key: LookupKey) -> bool:
        """Return whether all rows, which have been read, can be found by the value of a key: it says where a row is."""
        ...

    def count_hashes(self, materialized: Materialize, hashed: pl.Expr, asked: KeyShare) -> dict[int, int]:
        """Return how many of the rows that were read have a hash, or nearly so many, by the hash."""
        ...
