"""The keys of a join's side over all ranks, by which rows of the other side are left out."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from cudf_polars.execute.streams import read_stream
from cudf_polars.execute.transport import ArrowStream
from cudf_polars.lower.physical import Schema

__all__ = ["KeySet", "distinct_keys", "meet"]

_LOW, _HIGH, _COUNT = "low", "high", "count"


@dataclass(frozen=True)
class KeySet:
    """See :class:`~cudf_polars.lower.builder.Keys`."""

    count: int
    values: pl.Series | None = None
    bounds: tuple[Any, Any] | None = None


def distinct_keys(batches: Iterator[pl.DataFrame], names: Sequence[str], schema: Schema) -> list[pl.Series]:
    """Return the different values of columns of a rank's rows."""
    found = {name: [pl.Series(name, [], dtype=schema[name])] for name in names}
    for batch in batches:
        for name, parts in found.items():
            parts.append(batch[name].unique())
            # Merged when they are as many as those found before, so that a value is merged a few times only.
            if sum(map(len, parts[1:])) >= len(parts[0]):
                parts[:] = [pl.concat(parts).unique()]
    return [parts[0] if len(parts) == 1 else pl.concat(parts).unique() for parts in found.values()]


def meet(
    mine: Sequence[pl.Series],
    limits: Sequence[int],
    allgather_bytes: Callable[[bytes], list[bytes]],
    allgather: Callable[[pl.DataFrame], ArrowStream],
) -> list[KeySet]:
    """Return the different values of each column over all ranks, or their bounds where there are more than its limit.

    Parameters
    ----------
    mine
        Those of this rank.
    limits
        Of each column.
    allgather_bytes, allgather
        Give every rank what each rank has.
    """
    tables = [
        [pl.read_ipc(io.BytesIO(part)) for part in _parts(value)] for value in allgather_bytes(_packed(mine))
    ]
    sets = []
    for number, (column, limit) in enumerate(zip(mine, limits, strict=True)):
        ranks = pl.concat([each[number] for each in tables])
        bounds = _bounds(ranks, column.dtype)
        count = int(ranks[_COUNT].sum())
        if count > limit:
            sets.append(KeySet(count, None, bounds))
            continue
        frame = column.to_frame()
        values = read_stream(allgather(frame), dict(frame.schema)).to_series().unique()
        sets.append(KeySet(values.len(), values, bounds))
    return sets


def _bounds(ranks: pl.DataFrame, dtype: pl.DataType) -> tuple[Any, Any] | None:
    low, high = ranks[_LOW].min(), ranks[_HIGH].max()
    if low is None or high is None or not (dtype.is_integer() or dtype == pl.Date):
        return None
    return low, high


def _packed(columns: Sequence[pl.Series]) -> bytes:
    parts = []
    for column in columns:
        buffer = io.BytesIO()
        frame = pl.DataFrame(
            {_LOW: [column.min()], _HIGH: [column.max()]},
            schema_overrides={_LOW: column.dtype, _HIGH: column.dtype},
        )
        frame.with_columns(pl.lit(column.len()).cast(pl.UInt64).alias(_COUNT)).write_ipc(buffer)
        parts.append(buffer.getvalue())
    return b"".join(len(part).to_bytes(8, "little") + part for part in parts)


def _parts(value: bytes) -> list[bytes]:
    parts, start = [], 0
    while start < len(value):
        length = int.from_bytes(value[start : start + 8], "little")
        parts.append(value[start + 8 : start + 8 + length])
        start += 8 + length
    return parts
