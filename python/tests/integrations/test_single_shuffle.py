"""Shuffles as tasks of a graph that this process runs."""

from __future__ import annotations

import dask
import dask.dataframe as dd
import pandas as pd
import pyarrow as pa
import pytest
from rapidsmpf import given_options
from rapidsmpf.config import Options
from rapidsmpf.integrations import single
from rapidsmpf.integrations.dask_dataframe import shuffle
from rapidsmpf.integrations.frames import ArrowIntegration, FrameOptions

TABLE = pa.table({"k": [i % 7 for i in range(100)], "v": list(range(100))})
PARTS = {("in", i): TABLE.slice(25 * i, 25) for i in range(4)}


def rows(parts):
    return sorted(zip(*(column.to_pylist() for column in pa.concat_tables(parts)), strict=True))


@pytest.mark.parametrize("get", ["threaded", "local"])
def test_shuffle(get):
    run = __import__(f"dask.{get}", fromlist=["x"])
    run = run.get if get == "threaded" else run.get_sync
    options = FrameOptions(["k"], TABLE.slice(0, 0))
    graph = single.rapidsmpf_shuffle_graph("in", "out", 4, 3, ArrowIntegration, options) | PARTS
    for _ in range(2):
        parts = run(graph, [("out", i) for i in range(3)])
        assert rows(parts) == rows([TABLE])
        keys = [set(part["k"].to_pylist()) for part in parts]
        assert sum(map(len, keys)) == 7
    del parts
    assert single.get_worker_context().shufflers == {}


def test_dask_dataframe_without_a_cluster():

    frame = TABLE.to_pandas()
    with dask.config.set(scheduler="synchronous"):
        out = shuffle(dd.from_pandas(frame, npartitions=4), "k", npartitions=3).compute()
    pd.testing.assert_frame_equal(out.sort_index(), frame)


def test_options_are_checked_where_they_are_given(monkeypatch):
    monkeypatch.setattr(given_options, "_told", set())
    with pytest.raises(ValueError, match=r"option spill_io_threads: .*given in options"):
        single.setup_worker(Options({"spill_io_threads": "-1"}))
    with pytest.warns(given_options.OptionWithoutEffectWarning, match="dask_staging_spill_buffer") as caught:
        single.setup_worker(Options({"dask_staging_spill_buffer": "1 MiB"}))
    assert caught[0].filename == __file__
