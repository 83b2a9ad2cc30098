"""The keys of a join's side over all ranks, by which rows of the other side are left out."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import polars as pl

from cudf_polars.execute.bloom_filter import BloomFilter
from cudf_polars.execute.streams import read_stream
from cudf_polars.execute.transport import ArrowStream
from cudf_polars.lower.findings import KeyLimit
from cudf_polars.lower.physical import Schema

__all__ = ["KeySet", "RankKeys", "Ranks", "keys_of_rank", "meet"]


@dataclass(frozen=True)
class KeySet:
    """See :class:`~cudf_polars.lower.builder.Keys`."""

    count: int
    values: pl.Series | None = None
    bounds: tuple[Any, Any] | None = None
    has_null: bool = False
    bloom_filter: BloomFilter | None = None


class Ranks(Protocol):
    """How ranks tell each other their keys. Every method is collective."""

    def allgather_bytes(self, value: bytes) -> list[bytes]:
        """Give every rank each rank's ``value``."""
        ...

    def allgather_rows(self, frame: pl.DataFrame) -> ArrowStream:
        """Give every rank the rows of all ranks."""
        ...

    def merge_bits(self, bits: bytearray) -> bytearray:
        """Give every rank the bits that are set on any."""
        ...


@dataclass(frozen=True)
class _Facts:
    """What a rank says of its values of a column."""

    count: int
    is_whole: bool
    bounds: tuple[Any, Any] | None
    has_null: bool


class RankKeys:
    """The different values of a column of a rank's rows: all of them up to a limit, else a filter and their bounds.

    Parameters
    ----------
    name, dtype
        Of the column.
    limit
        How many are kept, and how many a filter is made of.
    rows
        Of all ranks together: there are no more values.
    """

    def __init__(self, name: str, dtype: pl.DataType, limit: KeyLimit, rows: int) -> None:
        self._parts: list[pl.Series] | None = [pl.Series(name, [], dtype=dtype)]  # None: they are too many
        self.limit = limit
        self._in_filter = min(rows, limit.in_filter)
        self._bloom_filter: BloomFilter | None = None
        self._seen = 0
        self._has_bounds = dtype.is_integer() or dtype == pl.Date
        self._bounds: tuple[Any, Any] | None = None
        self._has_null = False

    @property
    def may_be_filtered(self) -> bool:
        """Whether a filter is made if they are too many: on every rank or on none."""
        return self._in_filter > 0

    @property
    def values(self) -> pl.Series | None:
        """All of them but null, unless they are more than the limit."""
        if self._parts is not None and len(self._parts) > 1:
            self._merge()
        return None if self._parts is None else self._parts[0]

    def add(self, column: pl.Series) -> None:
        """Add the values that the column has in more rows."""
        if column.null_count():
            self._has_null = True
            column = column.drop_nulls()
        if not column.len():
            return
        self._seen += column.len()
        if self._has_bounds:
            ends = [column.min(), column.max(), *(self._bounds or ())]
            self._bounds = min(ends), max(ends)
        if self._bloom_filter is not None:
            self._bloom_filter.insert(column)
        if self._parts is None:
            return
        self._parts.append(column.unique())
        # Merged when they are as many as those found before, so that a value is merged a few times only.
        if sum(map(len, self._parts[1:])) >= len(self._parts[0]):
            self._merge()

    def _merge(self) -> None:
        assert self._parts is not None
        values = pl.concat(self._parts).unique()
        if values.len() <= self.limit.values:
            self._parts = [values]
            return
        self._parts = None
        if self._in_filter:
            self._bloom_filter = BloomFilter.sized(self._in_filter)
            self._bloom_filter.insert(values)

    def facts(self) -> _Facts:
        """Return what other ranks must know; of values that are in no filter, their rows are the number."""
        values = self.values
        if values is not None:
            count = values.len()
        else:
            count = self._seen if self._bloom_filter is None else self._bloom_filter.count()
        return _Facts(count, values is not None, self._bounds, self._has_null)

    def bloom_filter(self, keys: int) -> BloomFilter:
        """Return a filter of all values, as large as so many keys need. The number must be the same on every rank."""
        keys = min(keys, self._in_filter)
        values = self.values
        if values is None:
            assert self._bloom_filter is not None
            self._bloom_filter.shrink_to(keys)
            return self._bloom_filter
        made = BloomFilter.sized(keys)
        made.insert(values)
        return made


def keys_of_rank(
    batches: Iterator[pl.DataFrame], limits: Mapping[str, KeyLimit], schema: Schema, rows: int
) -> list[RankKeys]:
    """Return the different values of columns of a rank's rows.

    Parameters
    ----------
    rows
        How many rows all ranks have together.
    """
    found = {name: RankKeys(name, schema[name], limit, rows) for name, limit in limits.items()}
    for batch in batches:
        for name, keys in found.items():
            keys.add(batch[name])
    return list(found.values())


def meet(mine: Sequence[RankKeys], ranks: Ranks) -> list[KeySet]:
    """Return the different values of each column over all ranks, or what is kept of them where there are too many.

    Parameters
    ----------
    mine
        Those of this rank.
    """
    message = pickle.dumps([keys.facts() for keys in mine])
    told: list[list[_Facts]] = [pickle.loads(value) for value in ranks.allgather_bytes(message)]
    return [_meet_column(keys, [facts[n] for facts in told], ranks) for n, keys in enumerate(mine)]


def _meet_column(mine: RankKeys, told: Sequence[_Facts], ranks: Ranks) -> KeySet:
    count = sum(facts.count for facts in told)
    ends = [end for facts in told if facts.bounds is not None for end in facts.bounds]
    bounds = (min(ends), max(ends)) if ends else None
    has_null = any(facts.has_null for facts in told)
    if all(facts.is_whole for facts in told) and count <= mine.limit.values:
        assert mine.values is not None
        frame = mine.values.to_frame()
        values = read_stream(ranks.allgather_rows(frame), dict(frame.schema)).to_series().unique()
        return KeySet(values.len(), values, bounds, has_null)
    if mine.may_be_filtered and count <= mine.limit.in_filter:
        merged = BloomFilter(ranks.merge_bits(mine.bloom_filter(count).bits))
        return KeySet(min(count, merged.count()), None, bounds, has_null, merged)
    return KeySet(count, None, bounds, has_null)
