"""Where rows with a heavy key go: one that so many rows have that the partition of its hash would have far too many.

The rows of one side of a join are spread over all partitions, and those of the other side go to each of them, so that
every pair still meets, in one partition. All other rows go where their hash says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

__all__ = ["HeavyKeys", "key_hash"]

_MIXED = 0x9E3779B97F4A7C15
"""An odd number whose bits are spread: the hash of several columns depends on their order."""


def key_hash(keys: Sequence[pl.Expr]) -> pl.Expr:
    """Return a hash of keys, of type UInt64: equal for keys that joins take for equal, if their types are.

    Null has one, too.
    """
    first, *others = keys
    hashed = first.hash(0)
    for number, key in enumerate(others, 1):
        hashed = hashed * pl.lit(_MIXED, dtype=pl.UInt64) + key.hash(number)
    return hashed


@dataclass(frozen=True)
class HeavyKeys:
    """The heavy keys of a join, and what becomes of the rows of one of its sides.

    Attributes
    ----------
    hashes
        Of the keys, by :func:`key_hash`. A key with the same hash as one of them counts as heavy on both sides.
    copied
        Whether rows go to all partitions; else they are spread over them.
    """

    hashes: pl.Series
    copied: bool

    @property
    def label(self) -> str:
        """What ``explain`` says of them."""
        one = self.hashes.len() == 1
        what = "1 heavy key" if one else f"{self.hashes.len()} heavy keys"
        return f"rows of {what} {'copied to all' if self.copied else 'spread over all'}"

    def addressed(
        self, batch: pl.DataFrame, keys: Sequence[str], partitions: int, name: str, turn: int
    ) -> pl.DataFrame:
        """Return rows with the number of their partition, a UInt32, as the column ``name``.

        Parameters
        ----------
        keys
            The columns of the key.
        partitions
            Of all ranks.
        turn
            The partition of the first row that is spread.
        """
        hashed = key_hash([pl.col(key) for key in keys])
        is_heavy = batch.select(hashed.is_in(self.hashes.implode())).to_series()
        by_hash = (hashed % partitions).cast(pl.UInt32)
        if not is_heavy.any():
            return batch.with_columns(by_hash.alias(name))
        if not self.copied:
            # One after the other, and not every n-th row of the batch, which could have a period.
            turns = (pl.lit(is_heavy).cast(pl.UInt32).cum_sum() + (turn - 1) % partitions) % partitions
            return batch.with_columns(pl.when(is_heavy).then(turns).otherwise(by_hash).alias(name))
        every = pl.int_range(partitions, dtype=pl.UInt32, eager=True).alias(name).to_frame()
        others = batch.filter(~is_heavy).with_columns(by_hash.alias(name))
        return pl.concat([others, batch.filter(is_heavy).join(every, how="cross")])
