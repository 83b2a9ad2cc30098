"""The data of the examples: a small table of sales as a few Parquet files, made on first use."""

from __future__ import annotations

import sys
import tempfile
from datetime import date, timedelta
from pathlib import Path

import polars as pl

FILES = 4
ROWS_PER_FILE = 50_000
_DEFAULT = Path("data") / "examples"


def sales(directory: Path | None = None) -> str:
    """Give the pattern of the Parquet files of the table, made now if they are not there.

    Every rank of a job may call this at the same time: the files are the same, whoever made them.

    Parameters
    ----------
    directory
        Where the files are or shall be. Default: the script's first argument, else ``data/examples``.

    Returns
    -------
    str
        For ``pl.scan_parquet``. Columns: ``customer_id`` (Int64), ``day`` (Date), ``region``
        (String), ``amount`` (Float64).
    """
    if directory is None:
        directory = Path(sys.argv[1]) if len(sys.argv) > 1 else _DEFAULT
    if not directory.exists():
        directory.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".examples-", dir=directory.parent) as scratch:
            made = Path(scratch) / "sales"
            made.mkdir()
            for number in range(FILES):
                _part(number).write_parquet(made / f"part-{number}.parquet", row_group_size=10_000)
            try:
                made.rename(directory)
            except OSError:  # another rank was faster
                if not directory.is_dir():
                    raise
    return str(directory / "*.parquet")


def _part(number: int) -> pl.DataFrame:
    row = pl.int_range(number * ROWS_PER_FILE, (number + 1) * ROWS_PER_FILE, dtype=pl.Int64)
    # A fixed hash by multiplication, so that the data is the same everywhere.
    mixed = (row * 2_654_435_761) % 4_294_967_296
    return pl.select(
        customer_id=mixed % 1_000,
        day=pl.lit(date(2026, 1, 1)) + (mixed % 365) * timedelta(days=1),
        region=pl.lit(pl.Series(["north", "east", "south", "west"])).gather(mixed % 4),
        amount=(mixed % 50_000) / 100,
    )
