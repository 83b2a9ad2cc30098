"""DaskEngine on a scheduler and workers that were started from the command line, as its documentation shows."""

from __future__ import annotations

import os

import polars as pl
import pytest

from cudf_polars.engine.dask import DaskEngine, dask_setup
from support.dask_cluster import command_line_cluster, local_client


def test_workers_with_the_nanny_preload(tmp_path):
    table = tmp_path / "t.parquet"
    frame = pl.DataFrame({"customer_id": [1, 2, 1, 3] * 50, "amount": [50, 150, 200, 300] * 50})
    frame.write_parquet(table, row_group_size=20)
    folder = tmp_path / "cluster"
    folder.mkdir()
    with command_line_cluster(folder, "--preload-nanny", "cudf_polars.engine.dask") as client:
        threads = client.run(lambda: os.environ["POLARS_MAX_THREADS"])
        expected = os.environ.get("POLARS_MAX_THREADS", str(max(1, len(os.sched_getaffinity(0)) // 2)))
        assert list(threads.values()) == [expected] * 2
        query = (
            pl.scan_parquet(table)
            .filter(pl.col("amount") > 100)
            .group_by("customer_id")
            .agg(pl.col("amount").sum())
            .sort("customer_id")
        )
        with local_client(client) as dc, DaskEngine(dask_client=dc) as engine:
            assert engine.nranks == 2
            assert query.collect(engine=engine).equals(query.collect())


def test_the_preload_is_for_nannies():
    class Worker:
        pass

    with pytest.raises(TypeError, match="--preload-nanny"):
        dask_setup(Worker())
