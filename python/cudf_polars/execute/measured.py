"""What running a query's streams gives and costs, counted."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from cudf_polars.lower.physical import Stream, walk

__all__ = ["Measured", "RankTotals", "Size", "merge_facts", "pack_facts"]


@dataclass(frozen=True)
class Size:
    """What a stream holds over all ranks, counted.

    Attributes
    ----------
    heights
        Counted rows of each rank; lower bounds unless ``complete``.
    nbytes
        Counted bytes of memory; a lower bound unless ``complete``.
    complete
        Whether the stream was read to its end on every rank.
    """

    heights: tuple[int, ...]
    nbytes: int
    complete: bool

    @property
    def rows(self) -> int:
        """Rows of all ranks."""
        return sum(self.heights)

    @property
    def expected_rows(self) -> int:
        """As many rows as were counted, or are estimated."""
        return self.rows

    @classmethod
    def estimated(cls, stream: Stream, limit: int | None) -> Size:
        """Return what is estimated; ``limit`` says from how many bytes on it would not have been read to its end."""
        estimate = stream.estimate
        return cls((int(estimate.rows),), int(estimate.nbytes), limit is None or estimate.nbytes <= limit)


@dataclass
class Measured:
    """What running a stream cost on this rank and what it gave, for ``explain`` after the run.

    Attributes
    ----------
    rows, nbytes
        Rows, and bytes of memory, that this rank gave: to an exchange, or to what follows. None: not counted.
    seconds
        Time that it took.
    partitions
        In how many parts of this rank's rows the fragment ran.
    spilled
        Bytes that this rank moved to a lower tier meanwhile, whosever they were.
    lookups
        How many joins of the fragment were by lookup.
    """

    rows: int | None = None
    nbytes: float | None = None
    seconds: float = 0.0
    partitions: int = 0
    spilled: int = 0
    lookups: int = 0

    def counted(self, rows: int, nbytes: float) -> None:
        """Note how many rows and bytes this rank has, in all."""
        self.rows, self.nbytes = rows, nbytes

    def added(self, frame: pl.DataFrame) -> None:
        """Note the rows and bytes of ``frame``, more of what this rank has."""
        self.rows = (self.rows or 0) + frame.height
        self.nbytes = (self.nbytes or 0) + frame.estimated_size()


@dataclass(frozen=True)
class RankTotals:
    """What running a stream gave and cost on all ranks.

    Attributes
    ----------
    rows, nbytes, seconds, partitions, spilled, lookups
        Of each rank that has some; see :class:`Measured`.
    """

    rows: tuple[int, ...]
    nbytes: tuple[float, ...]
    seconds: tuple[float, ...]
    partitions: tuple[int, ...]
    spilled: tuple[int, ...]
    lookups: tuple[int, ...]


def pack_facts(root: Stream, measured: Mapping[Stream, Measured]) -> bytes:
    """Return what this rank has measured, to be sent to the others: by the streams' places in the plan."""
    facts = {
        place: (
            found.rows,
            found.nbytes,
            round(found.seconds, 6),
            found.partitions,
            found.spilled,
            found.lookups,
        )
        for place, stream in enumerate(walk(root))
        if (found := measured.get(stream)) is not None
    }
    return json.dumps(facts).encode()


def merge_facts(root: Stream, facts: Sequence[bytes]) -> dict[Stream, RankTotals]:
    """Return what all ranks have measured, from what :func:`pack_facts` gave on each."""
    ranks = [json.loads(value) for value in facts]
    merged = {}
    for place, stream in enumerate(walk(root)):
        found = [rank[str(place)] for rank in ranks if str(place) in rank]
        if found:
            columns = (tuple(value for value in of if value is not None) for of in zip(*found, strict=True))
            merged[stream] = RankTotals(*columns)
    return merged
