"""Small tables of random values, nulls among them, and scans of such a table in several files."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl

__all__ = ["random_table", "scan_files", "scan_five_files"]


def random_table(rows: int, columns: Mapping[str, tuple[pl.DataType, Sequence[object]]]) -> pl.DataFrame:
    """Return a table whose column ``i`` (Int32) numbers the rows, the same for the same arguments.

    Parameters
    ----------
    columns
        By name, the type and the values that are drawn from, with a null among them.
    """
    rng = random.Random(rows)
    drawn = {
        name: pl.Series([rng.choice([None, *values]) for _ in range(rows)], dtype=dtype, strict=False)
        for name, (dtype, values) in columns.items()
    }
    return pl.DataFrame({"i": pl.Series(range(rows), dtype=pl.Int32), **drawn})


def scan_files(frame: pl.DataFrame, folder: Path, cuts: Sequence[int]) -> pl.LazyFrame:
    """Write the rows between the cuts to a file each, and return the scan of all."""
    for number, (start, stop) in enumerate(itertools.pairwise(cuts)):
        frame[start:stop].write_parquet(folder / f"{number}.parquet")
    return pl.scan_parquet(sorted(folder.glob("*.parquet")))


def scan_five_files(frame: pl.DataFrame, folder: Path) -> pl.LazyFrame:
    """Return the scan of a table in five files, two of them without rows."""
    rows = frame.height
    return scan_files(frame, folder, [0, 0, rows // 3, rows // 2, rows // 2, rows])
