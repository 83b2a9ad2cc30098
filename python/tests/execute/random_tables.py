"""Small tables of random values, nulls among them, and scans of such a table in several files."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest

__all__ = ["five_file_tables", "random_table", "scan_files", "scan_five_files"]


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


def five_file_tables(columns: Mapping[str, tuple[pl.DataType, Sequence[object]]]) -> Any:
    """Return a fixture: tables of 0, 1 and 40 random rows, each in five files, two of them without rows."""

    @pytest.fixture(scope="module", params=[0, 1, 40])
    def table(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> pl.LazyFrame:
        return scan_five_files(random_table(request.param, columns), tmp_path_factory.mktemp("table"))

    return table
