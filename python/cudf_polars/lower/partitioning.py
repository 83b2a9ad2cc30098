"""How the rows of a stream are distributed over the ranks: the property that decides where exchanges are needed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

__all__ = [
    "ARBITRARY",
    "REPLICATED",
    "SINGLE",
    "Distribution",
    "Partitioning",
    "hashed",
    "project",
    "ranged",
]


class Distribution(Enum):
    """Which rank a row is on."""

    ARBITRARY = "arbitrary"
    """On exactly one rank; nothing is known about which."""
    HASH = "hash"
    """On the rank that the hash of the key columns selects."""
    RANGE = "range"
    """On the rank whose range of the key columns holds it; lower ranks hold what sorts first."""
    SINGLE = "single"
    """On rank 0."""
    REPLICATED = "replicated"
    """On every rank: each holds all rows, in the same order or none."""


@dataclass(frozen=True)
class Partitioning:
    """A distribution and, for hash and range, its key columns.

    Each key is the set of columns that hold its value: after ``inner join on a = b`` either name will do. Rows
    that agree in all keys are on one rank.

    Attributes
    ----------
    boundaries
        For ranges whose boundaries are known: the first key of each rank's range but the first rank's.
    """

    distribution: Distribution
    keys: tuple[frozenset[str], ...] = ()
    boundaries: tuple[Any, ...] | None = None

    def collocates(self, columns: Iterable[str]) -> bool:
        """Whether rows that agree in all of ``columns`` are certainly on the same rank."""
        if self.distribution in (Distribution.SINGLE, Distribution.REPLICATED):
            return True
        if self.distribution is Distribution.ARBITRARY:
            return False
        names = frozenset(columns)
        return all(key & names for key in self.keys)

    def is_hash(self) -> bool:
        """Whether the ranks were chosen by hash, so that another stream can be sent to join it."""
        return self.distribution is Distribution.HASH

    def is_by_value(self) -> bool:
        """Whether the keys alone say the rank of a row, so that streams can be placed in the same way."""
        return self.is_hash() or self.boundaries is not None

    def is_placed_as(self, other: Partitioning) -> bool:
        """Whether rows of two streams are on one rank where each key is equal to the other's in the same place."""
        return (
            self.is_by_value()
            and (self.distribution, self.boundaries) == (other.distribution, other.boundaries)
            and len(self.keys) == len(other.keys)
        )

    def with_keys(self, keys: Sequence[frozenset[str]]) -> Partitioning:
        """Return it with other columns that hold the values of its keys; arbitrary if one is held by none."""
        return replace(self, keys=tuple(keys)) if all(keys) else ARBITRARY

    def __str__(self) -> str:
        if not self.keys:
            return self.distribution.value
        return f"{self.distribution.value}({', '.join('='.join(sorted(key)) for key in self.keys)})"


ARBITRARY = Partitioning(Distribution.ARBITRARY)
SINGLE = Partitioning(Distribution.SINGLE)
REPLICATED = Partitioning(Distribution.REPLICATED)


def hashed(keys: Sequence[str]) -> Partitioning:
    """Return the partitioning after a hash shuffle by ``keys``."""
    return Partitioning(Distribution.HASH, tuple(frozenset([key]) for key in keys))


def ranged(keys: Sequence[str], boundaries: tuple[Any, ...] | None = None) -> Partitioning:
    """Return the partitioning after a range exchange by ``keys``, or of rows in ranges with these boundaries."""
    return Partitioning(Distribution.RANGE, tuple(frozenset([key]) for key in keys), boundaries)


def project(partitioning: Partitioning, renames: Mapping[str, Iterable[str]]) -> Partitioning:
    """Return what is left of ``partitioning`` when its columns are renamed.

    Parameters
    ----------
    renames
        For each old column the new columns that hold exactly its values; columns that are absent are gone.

    Notes
    -----
    A hash distribution needs all its keys; when one is gone the distribution is arbitrary.
    """
    if not partitioning.keys:
        return partitioning
    keys = []
    for key in partitioning.keys:
        keys.append(frozenset(new for old in key for new in renames.get(old, ())))
    return partitioning.with_keys(keys)
