"""Tables of keys that are integers and lie close together: a key's value says where its row is.

For each value from the least key to the greatest, a table has the number of the row with that key.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import polars as pl

from cudf_polars.execute.keys import Ranks
from cudf_polars.lower.findings import LookupKey

__all__ = ["KeyTable", "bounds", "distance", "have_table"]

_Told = tuple[int, int, tuple[int, int] | None]
"""What a rank says of its keys: how many they are, how many nulls, and their bounds."""
_SLOTS_PER_ROW = 8
"""A table has so many values for each key at most, of four bytes each: a hash table takes as much."""


@dataclass(frozen=True)
class KeyTable:
    """Says which row has a key.

    Attributes
    ----------
    least, greatest
        The bounds of the keys, as integers.
    rows
        For each value between them, the number of the row with that key, or null. None: the rows are in the order of
        their keys, and no value is left out.
    null_row
        The number of a row whose key is null, if that matches a null.
    """

    least: int
    greatest: int
    rows: pl.Series | None
    null_row: int | None

    @classmethod
    def of(cls, keys: pl.Series, *, nulls_equal: bool, unique: bool = True) -> KeyTable | None:
        """Return the table of some keys; ``None`` if they are too far apart, or if there are none.

        Parameters
        ----------
        nulls_equal
            Whether nulls are equal.
        unique
            Whether there is no table, either, if several rows have one key. Else any of them is found.
        """
        physical = keys.to_physical()
        nulls = physical.null_count()
        numbers = pl.int_range(physical.len(), dtype=pl.UInt32, eager=True)
        null_row = None
        if nulls:
            is_null = physical.is_null()
            if nulls_equal:
                if unique and nulls > 1:
                    return None
                null_row = is_null.arg_max()
            physical, numbers = physical.drop_nulls(), numbers.filter(~is_null)
        if physical.is_empty():
            return None
        least, greatest = bounds(physical)
        values = greatest - least + 1
        if not _is_dense(values, physical.len()):
            return None
        slots = distance(physical, least)
        if values == physical.len() and not nulls and bool((slots == numbers).all()):
            return cls(least, greatest, None, None)
        rows = pl.repeat(None, values, dtype=pl.UInt32, eager=True)
        rows.scatter(slots, numbers)
        if unique and values - rows.null_count() < physical.len():
            return None
        return cls(least, greatest, rows, null_row)

    def find(self, keys: pl.Series) -> pl.Series:
        """Return the numbers of the rows that have these keys, of type UInt32: null where none has."""
        physical = keys.to_physical()
        found = self._find(physical)
        if self.null_row is not None and physical.null_count():
            null_row = pl.Series([self.null_row], dtype=pl.UInt32)
            found = found.zip_with(physical.is_not_null(), null_row)
        return found

    def _find(self, physical: pl.Series) -> pl.Series:
        if physical.null_count() == physical.len():
            return pl.repeat(None, physical.len(), dtype=pl.UInt32, eager=True)
        least, greatest = bounds(physical)
        if least < self.least or greatest > self.greatest:
            inside = physical.is_between(self.least, self.greatest)
            physical = physical.zip_with(inside, pl.Series([None], dtype=physical.dtype))
        slots = distance(physical, self.least)
        return slots if self.rows is None else self.rows.gather(slots)


def bounds(values: pl.Series) -> tuple[int, int]:
    """Return the least and the greatest of integers, of which some are not null."""
    least, greatest = values.min(), values.max()
    assert isinstance(least, int)
    assert isinstance(greatest, int)
    return least, greatest


def _is_dense(values: int, rows: int) -> bool:
    """Whether a table of so many values is worth it for so many rows."""
    return values <= _SLOTS_PER_ROW * rows


def distance(values: pl.Series, least: int) -> pl.Series:
    """Return how far integers are from the least of them, which is less than 2**32."""
    if values.dtype not in (pl.Int64, pl.UInt64):
        values = values.cast(pl.Int64)  # the difference may exceed the type
    # Wrapping, so that nothing is checked again.
    return (values - least).cast(pl.UInt32, wrap_numerical=True)


def have_table(values: Iterable[pl.Series], key: LookupKey, ranks: Ranks) -> bool:
    """Return whether the keys of all ranks together have a table; every rank asks, and gets the same answer.

    Parameters
    ----------
    values
        The keys of this rank, in parts. No part is kept.
    """
    kept, nulls = [], 0
    for part in values:
        physical = part.to_physical()
        nulls += physical.null_count()
        # Copied: a part may be a view of all the columns that came with it.
        kept.append(pl.Series(physical.drop_nulls().to_numpy().copy()))
    keys = pl.concat(kept) if kept else pl.Series(dtype=pl.Int64)
    ends = None if keys.is_empty() else bounds(keys)
    told: list[_Told] = [
        pickle.loads(each) for each in ranks.allgather_bytes(pickle.dumps((keys.len(), nulls, ends)))
    ]
    rows, nulls = sum(count for count, _, _ in told), sum(count for _, count, _ in told)
    all_ends = [end for _, _, ends in told if ends is not None for end in ends]
    if not all_ends or (key.nulls_equal and key.unique and nulls > 1):
        return False
    least = min(all_ends)
    slots = max(all_ends) - least + 1
    if not _is_dense(slots, rows):
        return False
    if not key.unique:
        return True
    # A bit for each value from the least key on; bits are merged by words of 64.
    taken = np.zeros(math.ceil(slots / 64) * 64, dtype=np.bool_)
    if not keys.is_empty():
        taken[distance(keys, least).to_numpy()] = True
    bits = bytearray(np.packbits(taken))
    del taken, keys, kept
    return int.from_bytes(ranks.merge_bits(bits), "little").bit_count() == rows
