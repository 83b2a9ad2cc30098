"""The tables and the queries: rows of 24 bytes, of which all are sorted, joined or grouped."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl

__all__ = ["QUERIES", "make_tables", "unordered_keys"]

_BATCH = 1_000_000
_EACH = 100
"""Rows of a key on each side of the join that grows."""


def unordered_keys(rows: int, number: int = 0) -> pl.LazyFrame:
    """Return a column ``k`` that has each integer below ``rows`` once, in no order; ``number`` chooses which."""
    # Multiplying by an odd number modulo a power of two permutes the integers below that.
    size = 1 << (rows - 1).bit_length()
    key = (pl.int_range(pl.len(), dtype=pl.Int64) * (2_654_435_761 + 2 * number)) % size
    return pl.LazyFrame(height=size).select(key.alias("k")).filter(pl.col("k") < rows)


def make_tables(folder: Path, rows: int) -> None:
    """Write ``left`` and ``right``: each has so many rows of a key that occurs once, an integer and a float.

    Write ``few``, too: joined with itself by its column ``j``, it gives as many rows.
    """
    for number, name in enumerate(("left", "right")):
        path = folder / f"{name}.parquet"
        if path.exists():
            continue
        frame = unordered_keys(rows, number)
        frame.with_columns(w=pl.col("k") % 1000 + number, v=pl.col("k") * 0.5).sink_parquet(
            path, row_group_size=_BATCH // 8, compression="snappy", engine="streaming"
        )
    few = pl.LazyFrame(height=rows // _EACH).select(i=pl.int_range(pl.len(), dtype=pl.Int64).shuffle(seed=1))
    few.select(j=pl.col("i") // _EACH, n=pl.col("i") % _EACH).sink_parquet(
        folder / "few.parquet", engine="streaming"
    )


def _tables(folder: Path) -> tuple[pl.LazyFrame, pl.LazyFrame]:
    return pl.scan_parquet(folder / "left.parquet"), pl.scan_parquet(folder / "right.parquet")


def _group(folder: Path) -> pl.LazyFrame:
    left, _ = _tables(folder)
    return left.group_by("k").agg(pl.col("v").sum(), pl.col("w").max())


def _join(folder: Path) -> pl.LazyFrame:
    left, right = _tables(folder)
    return left.join(right, on="k")


def _sort(folder: Path) -> pl.LazyFrame:
    left, _ = _tables(folder)
    return left.sort("k")


def _growing_join(folder: Path) -> pl.LazyFrame:
    few = pl.scan_parquet(folder / "few.parquet")
    key = (pl.col("j") * _EACH + pl.col("n")) * _EACH + pl.col("n_right")
    pairs = few.join(few, on="j").select(k=key, w=pl.col("n"), v=pl.col("n_right") * 0.5)
    return pairs.sort("k")


QUERIES: dict[str, Callable[[Path], pl.LazyFrame]] = {
    "group_by": _group,
    "join": _join,
    "sort": _sort,
    "growing_join": _growing_join,
}
