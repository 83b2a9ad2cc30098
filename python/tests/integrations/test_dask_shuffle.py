"""Shuffles as tasks of a Dask cluster: the phases, Dask DataFrames, and clusters that change."""

from __future__ import annotations

import threading

import dask.dataframe as dd
import distributed
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from rapidsmpf.config import Options
from rapidsmpf.integrations import ShufflerIntegration, WorkerContext
from rapidsmpf.integrations.context import current_context
from rapidsmpf.integrations.dask import (
    bootstrap_dask_cluster,
    get_worker_context,
    rapidsmpf_shuffle_graph,
)
from rapidsmpf.integrations.dask_dataframe import merge, shuffle
from rapidsmpf.integrations.frames import ArrowIntegration, FrameOptions

from support.dask_cluster import local_client, start_dask_cluster

ROWS = 500
FRAME = pd.DataFrame(
    {
        "k": np.arange(ROWS) % 37,
        "v": np.arange(ROWS, dtype=float),
        "s": [f"text {i % 11}" if i % 7 else None for i in range(ROWS)],
        "c": pd.Categorical([["x", "y", "z"][i % 3] for i in range(ROWS)]),
        "t": pd.date_range("2020-01-01", periods=ROWS, freq="h", tz="UTC"),
    },
    index=pd.Index(np.arange(ROWS) * 10, name="row"),
)


@pytest.fixture(scope="module")
def client():
    with start_dask_cluster() as client:
        yield client


@pytest.fixture
def frame(client):
    return dd.from_pandas(FRAME, npartitions=5, sort=False)


def shufflers_on_workers(client):
    def count(dask_worker):
        return len(get_worker_context(dask_worker).shufflers)

    return sum(client.run(count).values())


# -- Dask DataFrames ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("npartitions", [None, 1, 3, 8])
def test_a_dask_dataframe_is_shuffled(frame, npartitions):
    shuffled = shuffle(frame, "k", npartitions=npartitions)
    assert shuffled.npartitions == (npartitions or 5)
    pd.testing.assert_frame_equal(shuffled.compute().sort_index(), frame.compute())


def test_equal_keys_come_together(frame):
    keys = shuffle(frame, ["s", "k"], npartitions=6).map_partitions(
        lambda part: part[["s", "k"]].drop_duplicates()
    )
    found = keys.compute()
    assert len(found) == len(FRAME[["s", "k"]].drop_duplicates())


def test_partitions_are_spread_over_the_workers(client, frame):
    shuffled = shuffle(frame, "k", npartitions=4).persist()
    distributed.wait(shuffled)
    held = client.who_has(shuffled)
    owners = {key[1]: set(addresses) for key, addresses in held.items()}
    assert owners[0] == owners[2] != owners[1] == owners[3]


def test_what_follows_a_shuffle(frame):
    means = shuffle(frame, "k").groupby("k").v.mean().compute().sort_index()
    pd.testing.assert_series_equal(means, FRAME.groupby("k").v.mean())


def test_a_graph_runs_again_and_leaves_nothing(client, frame):
    shuffled = shuffle(frame, "k", npartitions=3)
    for _ in range(3):
        pd.testing.assert_frame_equal(shuffled.compute().sort_index(), frame.compute())
    # Only some partitions are asked for: the others' rows are dropped.
    assert len(shuffled.partitions[1].compute()) + len(shuffled.partitions[[0, 2]].compute()) == ROWS
    wait_until_shuffles_end(client)


def wait_until_shuffles_end(client):
    """What tells the workers goes the way of tasks: a task on each that comes later finds it done."""
    addresses = list(client.nthreads())
    for address in addresses:
        client.submit(len, address, workers=[address], pure=False).result()
    assert shufflers_on_workers(client) == 0


@pytest.mark.parametrize("how", ["inner", "left", "outer"])
def test_joins(frame, how):
    names = dd.from_pandas(pd.DataFrame({"k": [1, 2, 40], "name": ["one", "two", "forty"]}), npartitions=2)
    joined = merge(frame, names, on="k", how=how).compute()
    expected = frame.compute().merge(names.compute(), on="k", how=how)
    order = ["k", "v"]
    pd.testing.assert_frame_equal(
        joined.sort_values(order).reset_index(drop=True), expected.sort_values(order).reset_index(drop=True)
    )


def test_keys_of_different_types_are_refused(frame):
    other = dd.from_pandas(pd.DataFrame({"k": ["1", "2"]}), npartitions=1)
    with pytest.raises(TypeError, match="astype"):
        merge(frame, other, on="k")
    with pytest.raises(KeyError, match="nothing"):
        shuffle(frame, "nothing")


def test_two_shuffles_at_once(frame):
    by_key, by_text = shuffle(frame, "k"), shuffle(frame, "s")
    both = dd.concat([by_key, by_text]).compute()
    assert both.v.sum() == 2 * FRAME.v.sum()


# -- the graph ------------------------------------------------------------------------------------------------------


class Pickles:
    """Partitions are lists of numbers; options say by how much they grow, other keys with what they are multiplied."""

    @classmethod
    def insert_partition(cls, df, partition_id, partition_count, shuffler, options, *other):
        table = pa.table({"n": pa.array([n * factor for n in df for factor in other], pa.int64())})
        ArrowIntegration.insert_partition(
            table, partition_id, partition_count, shuffler, FrameOptions(["n"], table)
        )
        assert isinstance(current_context(), WorkerContext)

    @classmethod
    def extract_partition(cls, partition_id, shuffler, options):
        empty = pa.table({"n": pa.array([], pa.int64())})
        table = ArrowIntegration.extract_partition(partition_id, shuffler, FrameOptions(["n"], empty))
        return [n + options["grow"] for n in table["n"].to_pylist()]


def test_an_integration_of_ones_own(client):
    assert isinstance(Pickles, ShufflerIntegration)
    graph = rapidsmpf_shuffle_graph("numbers", "moved", 3, 4, Pickles, {"grow": 1000}, "factor")
    graph |= {("numbers", i): [10 * i, 10 * i + 1] for i in range(3)} | {"factor": 2}
    parts = client.get(graph, [("moved", i) for i in range(4)])
    assert sorted(n for part in parts for n in part) == [1000 + 2 * n for n in (0, 1, 10, 11, 20, 21)]


class Failing(Pickles):
    @classmethod
    def insert_partition(cls, df, partition_id, partition_count, shuffler, options, *other):
        super().insert_partition(df, partition_id, partition_count, shuffler, options, *other)
        raise ValueError("of the integration")


def test_errors_of_an_integration(client):
    graph = rapidsmpf_shuffle_graph("bad", "failed", 2, 2, Failing, {"grow": 0}, "factor")
    graph |= {("bad", i): [i] for i in range(2)} | {"factor": 1}
    with pytest.raises(ValueError, match="of the integration"):
        client.get(graph, [("failed", i) for i in range(2)])
    wait_until_shuffles_end(client)


def test_what_is_no_integration(client):
    with pytest.raises(TypeError, match="insert_partition"):
        rapidsmpf_shuffle_graph("a", "b", 1, 1, int, None)
    with pytest.raises(ValueError, match="at least one partition"):
        rapidsmpf_shuffle_graph("a", "b", 0, 1, Pickles, None)


# -- the cluster ----------------------------------------------------------------------------------------------------


def ranks_of_workers(client):
    def rank(dask_worker):
        context = get_worker_context(dask_worker)
        return None if context.comm is None else (context.comm.rank, context.comm.nranks, id(context))

    return client.run(rank)


def test_bootstrap_is_idempotent_also_at_the_same_time():
    with start_dask_cluster() as client, local_client(client) as other:
        assert set(ranks_of_workers(client).values()) == {None}
        threads = [
            threading.Thread(target=bootstrap_dask_cluster, args=(c,)) for c in (client, other, client)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        first = ranks_of_workers(client)
        assert sorted(rank for rank, _, _ in first.values()) == [0, 1]
        bootstrap_dask_cluster(client)
        assert ranks_of_workers(client) == first

        # A worker that joins takes part from the next bootstrap on.
        client.cluster.scale(3)
        client.wait_for_workers(3, timeout=60)
        frame = dd.from_pandas(FRAME, npartitions=5, sort=False)
        pd.testing.assert_frame_equal(shuffle(frame, "k").compute().sort_index(), frame.compute())
        assert sorted(r[:2] for r in ranks_of_workers(client).values()) == [(0, 3), (1, 3), (2, 3)]


def test_statistics_of_a_worker(client, frame):
    shuffle(frame, "k").compute()

    def read(dask_worker):
        return get_worker_context(dask_worker).get_statistics()

    for stats in client.run(read).values():
        assert all(set(entry) == {"count", "value"} for entry in stats.values())


def test_options_of_workers(capfd):
    def read(dask_worker):
        context = get_worker_context(dask_worker)
        texts = context.options.get_strings()
        return texts["spill_device_limit"], texts["periodic_spill_check"], context.statistics.enabled

    options = {"dask_spill_device": "30%", "spill_device_limit": "70%"}
    options |= {"dask_periodic_spill_check": "off", "dask_statistics": "true"}
    with start_dask_cluster(1) as client:
        bootstrap_dask_cluster(client, options=Options(options))
        assert list(client.run(read).values()) == [("30%", "off", True)]
    assert "Statistics of the Dask worker" in capfd.readouterr().out


def test_a_cluster_without_workers():
    with start_dask_cluster(0) as client, pytest.raises(RuntimeError, match="no workers"):
        bootstrap_dask_cluster(client)
