"""How many rows have one key: by hashes of the keys, for as many rows as a sample needs."""

from __future__ import annotations

import math
import pickle
from collections import Counter
from collections.abc import Callable, Iterator

import polars as pl

from cudf_polars.lower.findings import KeyShare

__all__ = ["frequent_anywhere", "most_frequent"]

_HASH, _ROWS = "hash", "rows"
_MOST_ROWS = 1 << 18
"""Of so many rows of a rank hashes are counted: more say no more."""


def most_frequent(
    batches: Iterator[pl.DataFrame], hashed: pl.Expr, asked: KeyShare
) -> tuple[dict[int, int], int]:
    """Return how many of a rank's first rows have a hash, and how many rows there are.

    Hashes that have less than half of the part that is asked for are left out: on some rank they have more.
    """
    counts = pl.DataFrame(schema={_HASH: pl.UInt64, _ROWS: pl.UInt64})
    rows = 0
    for batch in batches:
        part = batch.head(_MOST_ROWS - rows)
        rows += part.height
        new = part.group_by(hashed.alias(_HASH)).agg(pl.len().cast(pl.UInt64).alias(_ROWS))
        counts = pl.concat([counts, new]).group_by(_HASH).agg(pl.col(_ROWS).sum())
        if rows >= _MOST_ROWS:
            break
    many = counts.filter(pl.col(_ROWS) >= math.ceil(asked.least / 2 * rows))
    if asked.among is not None:
        many = many.filter(pl.col(_HASH).is_in(pl.Series(sorted(asked.among), dtype=pl.UInt64).implode()))
    return dict(many.iter_rows()), rows


def frequent_anywhere(
    mine: tuple[dict[int, int], int], least: float, allgather_bytes: Callable[[bytes], list[bytes]]
) -> dict[int, int]:
    """Return how many rows of all ranks have a hash, where these are at least a part ``least`` of them.

    Parameters
    ----------
    mine
        Of this rank, by :func:`most_frequent`.
    """
    total = 0
    counts: Counter[int] = Counter()
    for value in allgather_bytes(pickle.dumps(mine)):
        of_rank, rows = pickle.loads(value)
        counts.update(of_rank)
        total += rows
    return {hashed: count for hashed, count in counts.items() if count >= least * total}
