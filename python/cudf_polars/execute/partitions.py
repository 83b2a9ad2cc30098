"""Into what the rows of a rank are split, and when what was split is divided again."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["PartitionPlan"]

_LEVELS = 6
"""How often a partition is divided at most: each time into 2 to 16 parts."""
_MOST_PARTS = 16
_SENT = 16 << 20
"""The most bytes of rows that are cut into partitions together."""


@dataclass(frozen=True)
class PartitionPlan:
    """How a query splits the rows of each rank; the same on all ranks.

    Attributes
    ----------
    count
        Number of partitions into which exchanges by key split the rows of each rank. What follows an exchange runs over
        one partition after the other, while the others may be spilled.
    limit
        Bytes of rows that a step may have of one partition; what has more is divided. None: nothing is.
    target
        Bytes that the parts of a divided partition should have.
    chunk_bytes
        How many bytes of rows a step that may be done over any rows takes at a time, if there are several partitions.
    ranges
        In how many ranges of a key a rank reads files that are sorted by it, where it has several partitions.
    cached_ranges
        How many they are of a table whose rows are grouped by the key: groups are faster in the processor's cache.
    two_from
        If a step runs over so many partitions, two fit into memory: the next may begin before the one before it has
        ended.
    """

    count: int = 1
    limit: int | None = None
    target: int = 16 << 20
    chunk_bytes: int = 128 << 20
    ranges: int = 1
    cached_ranges: int = 1
    two_from: float = math.inf

    def exceeds(self, nbytes: int) -> bool:
        """Whether a partition of so many bytes is too large."""
        return self.limit is not None and nbytes > self.limit

    def parts_of(self, nbytes: int, level: int) -> int:
        """Return into how many parts to divide a partition that is too large; 1: it was divided often enough.

        Parameters
        ----------
        level
            How often what the rows were in has been divided.
        """
        if level >= _LEVELS:
            return 1
        return max(2, min(_MOST_PARTS, -(-nbytes // self.target)))

    @property
    def sent_bytes(self) -> int:
        """How many bytes of rows are cut into partitions together, at least, if there are several."""
        return max(1, min(_SENT, self.chunk_bytes))

    @property
    def block_bytes(self) -> int:
        """Bytes of each side that a join block by block takes at a time."""
        return max(1, (self.limit or self.chunk_bytes) // 4)
