"""A worker of Dask dies, leaves or joins: the client is told at once which and why, and the cluster stays usable."""

from __future__ import annotations

import asyncio
import os
import signal
import time

import dask
import polars as pl
import psutil
import pytest
from rapidsmpf.error import RankFailedError

from cudf_polars.engine.dask import DaskEngine
from support.dask_cluster import start_dask_cluster

ROWS = 1000
FRAME = pl.DataFrame({"k": [i % 7 for i in range(ROWS)], "v": [float(i) for i in range(ROWS)]})
SECONDS = 60
"""Guards against hangs only."""
TTL_SECONDS = 5
"""Of Dask by default: 300."""


@pytest.fixture
def client():
    with start_dask_cluster() as client:
        yield client


def total(engine):
    return FRAME.lazy().select(pl.col("v").sum()).collect(engine=engine).item()


def check_answers(client):
    with DaskEngine(dask_client=client) as engine:
        assert total(engine) == FRAME["v"].sum()


def wait_for_workers(client, known):
    """Wait until the nanny of a worker that has died has started another one."""
    deadline = time.monotonic() + SECONDS
    while len(found := set(client.nthreads())) < 2 or found == known:
        assert time.monotonic() < deadline, found
        client.wait_for_workers(2, timeout=SECONDS)


def test_worker_is_killed_in_the_middle_of_a_query(client):
    known = set(client.nthreads())
    with DaskEngine(dask_client=client) as engine:
        victim = engine.gather_cluster_info()[1].pid

        def end(column):
            if os.getpid() == victim:
                os.kill(victim, signal.SIGKILL)
            return column

        # The victim ends where it makes its rows; the other rank waits for them.
        rows = FRAME.lazy().with_columns(
            pl.col("v").map_batches(end, return_dtype=pl.Float64, is_elementwise=True)
        )
        with pytest.raises(RankFailedError, match=r"worker tls://.* is lost") as caught:
            rows.group_by("k").agg(pl.sum("v")).collect(engine=engine)
        assert (caught.value.rank, caught.value.pid) == (1, victim)
        assert any(address in str(caught.value) for address in known)
        # And so does every later query, without asking anybody.
        with pytest.raises(RankFailedError, match="is lost"):
            total(engine)
    wait_for_workers(client, known)
    assert client.submit(lambda: 41 + 1).result() == 42
    check_answers(client)


def test_worker_leaves_and_another_joins(client):
    with DaskEngine(dask_client=client) as engine:
        assert total(engine) == FRAME["v"].sum()
        client.cluster.scale(3)
        client.wait_for_workers(3, timeout=SECONDS)
        with pytest.warns(UserWarning, match=r"joined .*tls://.*next engine"):
            assert total(engine) == FRAME["v"].sum()
        assert engine.nranks == 2
        with DaskEngine(dask_client=client) as wider:
            assert wider.nranks == 3
            victim = sorted(client.nthreads())[0]
            process = psutil.Process(client.run(os.getpid)[victim])
            client.retire_workers([victim])
            # Until it has ended it may answer another query.
            process.wait(SECONDS)
            with pytest.raises(RankFailedError, match=victim):
                total(wider)
    check_answers(client)


def test_a_query_longer_than_the_worker_ttl(tmp_path):
    """Workers whose event loop stands still for as long are given up by the scheduler; queries do not hold it up."""

    gate = tmp_path / "gate"
    os.mkfifo(gate)

    def wait(column):
        with gate.open("rb"):  # waits for someone who writes
            return column

    rows = FRAME.lazy().with_columns(
        pl.col("v").map_batches(wait, return_dtype=pl.Float64, is_elementwise=True)
    )
    with (
        dask.config.set({"distributed.scheduler.worker-ttl": f"{TTL_SECONDS}s"}),
        start_dask_cluster() as client,
        DaskEngine(dask_client=client) as engine,
    ):
        workers = set(client.nthreads())
        running = rows.select(pl.col("v").sum()).collect(engine=engine, background=True)
        client.run_on_scheduler(_heartbeats_for, TTL_SECONDS + 1)
        assert running.fetch() is None
        with gate.open("r+b", buffering=0):
            assert running.fetch_blocking().item() == FRAME["v"].sum()
        assert set(client.nthreads()) == workers


async def _heartbeats_for(seconds, dask_scheduler):
    """Return when every worker has been heard of so much later than now, or one has been given up."""
    workers = list(dask_scheduler.workers.values())
    until = max(worker.last_seen for worker in workers) + seconds
    while any(worker.last_seen < until for worker in dask_scheduler.workers.values()):
        await asyncio.sleep(0.1)
