"""What running a query's streams gives and costs, counted."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

__all__ = ["Measured", "Size"]


@dataclass(frozen=True)
class Size:
    """What a stream holds over all ranks, counted.

    Attributes
    ----------
    rows, nbytes
        Counted rows and bytes of memory; lower bounds unless ``complete``.
    complete
        Whether the stream was read to its end on every rank.
    """

    rows: int
    nbytes: int
    complete: bool


@dataclass
class Measured:
    """What running a stream cost on this rank and what it gave, for ``explain`` after the run."""

    rows: int | None = None
    nbytes: float | None = None
    seconds: float = 0.0

    def counted(self, rows: int, nbytes: float) -> None:
        """Note how many rows and bytes this rank has, in all."""
        self.rows, self.nbytes = rows, nbytes

    def added(self, frame: pl.DataFrame) -> None:
        """Note the rows and bytes of ``frame``, more of what this rank has."""
        self.rows = (self.rows or 0) + frame.height
        self.nbytes = (self.nbytes or 0) + frame.estimated_size()
