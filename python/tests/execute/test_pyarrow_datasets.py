"""pyarrow datasets are read by all ranks: by files, or by row groups where there are few files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from execute.compare import ORDINARY, TINY, assert_like_polars, run

ROWS = pl.DataFrame(
    {
        "id": range(240),
        "region": [("north", "south", None)[i % 3] for i in range(240)],
        "v": [None if i % 7 == 0 else i / 4 for i in range(240)],
    }
)
STRICT = replace(ORDINARY, fallback_mode="raise")


@pytest.fixture(scope="module")
def datasets(tmp_path_factory) -> dict[str, ds.Dataset]:
    """Return datasets by what they are made of."""
    folder = tmp_path_factory.mktemp("datasets")
    ROWS.write_parquet(folder / "one.parquet", row_group_size=40)
    for kind in ("parquet", "ipc", "csv"):
        (folder / kind).mkdir()
    for number in range(12):
        part = ROWS.slice(20 * number, 20 if number != 5 else 0)
        part.write_parquet(folder / "parquet" / f"{number:02}.parquet", row_group_size=7)
        part.lazy().sink_ipc(folder / "ipc" / f"{number:02}.arrow", compat_level=pl.CompatLevel.oldest())
        part.write_csv(folder / "csv" / f"{number:02}.csv")
    hive = ds.partitioning(pa.schema([("region", pa.string())]), flavor="hive")
    ds.write_dataset(ROWS.to_arrow(), folder / "hive", format="parquet", partitioning=hive)
    return {
        "one file": ds.dataset(folder / "one.parquet"),
        "files": ds.dataset(folder / "parquet"),
        "ipc": ds.dataset(folder / "ipc", format="ipc"),
        "csv": ds.dataset(folder / "csv", format="csv"),
        "hive": ds.dataset(folder / "hive", partitioning=hive),
        "filtered": ds.dataset(folder / "parquet").filter(pc.field("id") > 30),
    }


@pytest.mark.timeout(120)
@pytest.mark.parametrize("nranks", [1, 2, 3])
@pytest.mark.parametrize("allow_pyarrow_filter", [True, False])
@pytest.mark.parametrize("name", ["one file", "files", "ipc", "csv", "hive"])
def test_like_polars(
    name: str, allow_pyarrow_filter: bool, nranks: int, datasets: dict[str, ds.Dataset]
) -> None:
    lf = pl.scan_pyarrow_dataset(datasets[name], allow_pyarrow_filter=allow_pyarrow_filter)
    ordered = name != "hive"
    queries = [
        lf,
        lf.filter(pl.col("id") % 3 == 1).select("v", "id"),
        lf.filter(pl.col("region") == "north", pl.col("id") > 100),
        lf.filter(pl.col("region").is_null()).select(pl.len()),
        lf.select(pl.len()),
        lf.group_by("region").agg(pl.col("v").sum()).sort("region"),
        lf.sort("id").slice(20, 50),
        *(
            [lf.slice(30, 100), lf.tail(15), lf.with_row_index().filter(pl.col("index") % 5 == 0)]
            if ordered
            else []
        ),
    ]
    for query in queries:
        for options in (STRICT, TINY):
            assert_like_polars(query, nranks, options, ordered=ordered)
    _, outcomes = run(lf, nranks, STRICT)
    assert min(outcome.frame.height for outcome in outcomes) > 20


def test_what_one_rank_reads(datasets: dict[str, ds.Dataset], tmp_path: Path) -> None:
    in_memory = ds.dataset(ROWS.to_arrow())
    ROWS.write_parquet(tmp_path / "small.parquet")
    for dataset, reason in (
        (datasets["filtered"], "a filter of its own"),
        (in_memory, "InMemoryDataset is not divided"),
        (ds.dataset([datasets["files"], datasets["ipc"]]), "UnionDataset is not divided"),
        (ds.dataset(tmp_path / "small.parquet"), "it is one piece"),
    ):
        outcomes = assert_like_polars(pl.scan_pyarrow_dataset(dataset), 2, ORDINARY)
        assert [reason in text for text in outcomes[0].fallbacks] == [True]
    # A few rows are read by one rank without a warning.
    outcomes = assert_like_polars(pl.scan_pyarrow_dataset(in_memory).head(5), 2, ORDINARY)
    assert outcomes[0].fallbacks == []
