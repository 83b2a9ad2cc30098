"""The examples of DaskEngine's documentation that need no GPU, as they stand there, but for the path."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from distributed import Client, LocalCluster
from polars.testing import assert_frame_equal
from rapidsmpf.utils.system_info import get_device_memory

from cudf_polars.engine.dask import DaskEngine
from cudf_polars.engine.hardware_binding import HardwareBindingPolicy
from cudf_polars.engine.options import StreamingOptions


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dataset")
    for part in range(3):
        pl.DataFrame(
            {"customer_id": [i % 5 for i in range(100)], "amount": [i + 100 * part for i in range(100)]}
        ).write_parquet(folder / f"{part}.parquet")
    return f"{folder}/*.parquet"


FIRST = """\
import polars as pl
from cudf_polars.engine.dask import DaskEngine

with DaskEngine() as engine:
    result = (
        pl.scan_parquet("/data/dataset/*.parquet")
          .filter(pl.col("amount") > 100)
          .group_by("customer_id")
          .agg(pl.col("amount").sum())
          .collect(engine=engine)
    )
    print(result)
"""
DOCS = Path(__file__).parents[3] / "docs"


def first_of_the_docs():
    section = (DOCS / "engines.md").read_text().partition("\n## Dask\n")[2]
    return re.search(r"```python\n(.*?)```", section, re.DOTALL).group(1)


@pytest.mark.parametrize("text", [FIRST, first_of_the_docs()], ids=["interface", "docs"])
def test_the_first_script_runs_as_it_stands(text, dataset, tmp_path):
    """Without a guard: the workers do not run the script again."""
    script = tmp_path / "script.py"
    with_path, places = re.subn(r'"/data/[^"]*"', repr(dataset), text)
    assert places == 1
    script.write_text(with_path)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("customer_id") == 1


def test_without_arguments_the_engine_makes_a_cluster(dataset, capsys):
    with DaskEngine() as engine:
        result = (
            pl.scan_parquet(dataset)
            .filter(pl.col("amount") > 100)
            .group_by("customer_id")
            .agg(pl.col("amount").sum())
            .collect(engine=engine)
        )
        print(f"cluster has {engine.nranks} workers")
        for info in engine.gather_cluster_info():
            print(
                f"hostname={info['hostname']}, pid={info['pid']}, "
                f"CUDA_VISIBLE_DEVICES={info['cuda_visible_devices']}"
            )
        nranks = engine.nranks
    expected = (
        pl.scan_parquet(dataset)
        .filter(pl.col("amount") > 100)
        .group_by("customer_id")
        .agg(pl.col("amount").sum())
        .collect()
    )
    assert_frame_equal(result, expected, check_row_order=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"cluster has {nranks} workers"
    assert len(lines) == nranks + 1


def test_options_and_a_cluster_of_the_users(dataset):

    opts = StreamingOptions(num_streaming_threads=8, fallback_mode="silent")
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0", memory_limit=0
        ) as cluster,
        Client(cluster.scheduler_address) as dc,
    ):
        with DaskEngine.from_options(opts, dask_client=dc) as engine:
            assert pl.scan_parquet(dataset).collect(engine=engine).height == 300
        with DaskEngine(
            dask_client=dc,
            engine_options={"hardware_binding": HardwareBindingPolicy(enabled=False)},
        ) as engine:
            assert pl.scan_parquet(dataset).collect(engine=engine).height == 300
        assert dc.submit(sum, [1, 2]).result() == 3


def test_workers_of_an_own_cluster_share_the_cores():
    usable = os.sched_getaffinity(0)

    def cores(column):
        return pl.Series([",".join(map(str, sorted(os.sched_getaffinity(0))))] * len(column))

    opts = StreamingOptions(num_streaming_threads=8, fallback_mode="silent")
    with DaskEngine.from_options(opts, n_workers=2) as engine:
        query = pl.LazyFrame({"row": [0, 1]}).select(
            pl.col("row").map_batches(cores, return_dtype=pl.String, is_elementwise=True)
        )
        shares = [set(map(int, text.split(","))) for text in query.collect(engine=engine)["row"]]
        memory = [info.device_memory for info in engine.gather_cluster_info()]
    assert all(share <= usable for share in shares)
    if len(usable) > 1:
        assert shares[0].isdisjoint(shares[1])
    assert memory[0] == memory[1] == get_device_memory() // 2
