"""Runs small queries on a GPU before the first one of the user's, which would have to wait for what they load.

CUDA loads a kernel when it is first launched, Python a module when it is first imported, and page-locked memory is made
when it is first asked for: together up to half a second.
"""

from __future__ import annotations

import datetime
import decimal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import polars as pl

from cudf_polars.execute.fragments import ComputeDevice

__all__ = ["queries", "warm_up"]

_ROWS, _KEYS = 4096, 64


def warm_up(device: ComputeDevice) -> None:
    """Run queries that use the operators most queries use.

    A failure is left to the first query that meets it, which can say what it is.
    """
    with tempfile.TemporaryDirectory(prefix="riverrun-warm-up-") as folder:
        try:
            for query in queries(Path(folder)):
                device.collect(query, pl.QueryOptFlags())
        except Exception:  # whatever it is, it is no fault of a query
            pass
        finally:
            device.take_host_steps()


def queries(folder: Path) -> Iterator[pl.LazyFrame]:
    """Write small tables to ``folder`` and yield queries over them."""
    number = pl.int_range(_ROWS, eager=True).alias("n").to_frame()
    first = datetime.date(2024, 1, 1)
    rows = number.select(
        (pl.col("n") % _KEYS).alias("k"),
        pl.col("n").cast(pl.Decimal(15, 2)).alias("price"),
        (pl.col("n") % 10 / 100).cast(pl.Decimal(15, 2)).alias("part"),
        pl.col("n").cast(pl.Float64).alias("x"),
        (pl.lit(first) + pl.duration(days=pl.col("n") % 300)).alias("day"),
        pl.col("n").mod(3).replace_strict({0: "A", 1: "N", 2: "R"}).alias("flag"),
        pl.format("row {} of many", "n").alias("text"),
    )
    keys = number.head(_KEYS).select(
        pl.col("n").alias("k"), (pl.col("n") % 5).alias("j"), name=pl.format("key {}", "n")
    )
    rows.write_parquet(folder / "rows.parquet", compression="snappy", row_group_size=_ROWS // 4)
    keys.write_parquet(folder / "keys.parquet", compression="snappy")
    many, few = pl.scan_parquet(folder / "rows.parquet"), pl.scan_parquet(folder / "keys.parquet")
    reduced = pl.col("price") * (pl.lit(decimal.Decimal(1)) - pl.col("part"))
    yield (
        many.filter(pl.col("day") <= first + datetime.timedelta(days=200))
        .group_by("flag", pl.col("k") % 2)
        .agg(pl.col("price").sum(), reduced.sum().alias("reduced"), pl.col("x").mean(), pl.len())
        .sort("flag", "k")
    )
    joined = many.join(few.filter(pl.col("name").str.contains("1", literal=True)), on="k")
    yield (
        joined.filter(pl.col("text").str.starts_with("row"), pl.col("flag").is_in(["A", "R"]))
        .group_by("name", pl.col("day").dt.year().alias("year"))
        .agg(reduced.sum(), pl.col("j").n_unique())
        .sort("name", "year", descending=[True, False])
        .head(10)
    )
    yield many.join(few.filter(pl.col("j") > 2), on="k", how="semi").select(
        pl.col("price").sum(), pl.col("x").max()
    )
    yield many.join(few.filter(pl.col("j") < 2), on="k", how="anti").select("k", "flag").unique()
    yield few.join(many.group_by("k").agg(pl.col("x").min()), on="k", how="left").sort("x", "k")
