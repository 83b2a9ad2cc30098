"""How the rows of a stream are spread over the ranks: the property that decides where exchanges are needed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

__all__ = [
    "ARBITRARY",
    "REPLICATED",
    "SINGLE",
    "Placement",
    "Spread",
    "hashed",
    "project",
    "ranged",
]


class Placement(Enum):
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
class Spread:
    """A placement and, for hash and range, its key columns.

    Each key is the set of columns that hold its value: after ``inner join on a = b`` either name will do. Rows
    that agree in all keys are on one rank.
    """

    placement: Placement
    keys: tuple[frozenset[str], ...] = ()

    def collocates(self, columns: Iterable[str]) -> bool:
        """Whether rows that agree in all of ``columns`` are certainly on the same rank."""
        if self.placement in (Placement.SINGLE, Placement.REPLICATED):
            return True
        if self.placement is Placement.ARBITRARY:
            return False
        names = frozenset(columns)
        return all(key & names for key in self.keys)

    def is_hash(self) -> bool:
        """Whether the ranks were chosen by hash, so that another stream can be sent to join it."""
        return self.placement is Placement.HASH

    def __str__(self) -> str:
        if not self.keys:
            return self.placement.value
        return f"{self.placement.value}({', '.join('='.join(sorted(key)) for key in self.keys)})"


ARBITRARY = Spread(Placement.ARBITRARY)
SINGLE = Spread(Placement.SINGLE)
REPLICATED = Spread(Placement.REPLICATED)


def hashed(keys: Sequence[str]) -> Spread:
    """Return the spread after a hash shuffle by ``keys``."""
    return Spread(Placement.HASH, tuple(frozenset([key]) for key in keys))


def ranged(keys: Sequence[str]) -> Spread:
    """Return the spread after a range exchange by ``keys``."""
    return Spread(Placement.RANGE, tuple(frozenset([key]) for key in keys))


def project(spread: Spread, renames: Mapping[str, Iterable[str]]) -> Spread:
    """Return what is left of ``spread`` when its columns are renamed.

    Parameters
    ----------
    renames
        For each old column the new columns that hold exactly its values; columns that are absent are gone.

    Notes
    -----
    A hash placement needs all its keys; when one is gone the placement is arbitrary.
    """
    if not spread.keys:
        return spread
    keys = []
    for key in spread.keys:
        names = frozenset(new for old in key for new in renames.get(old, ()))
        if not names:
            return ARBITRARY
        keys.append(names)
    return Spread(spread.placement, tuple(keys))
