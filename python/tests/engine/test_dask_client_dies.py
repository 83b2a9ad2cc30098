"""A client of Dask dies without a word: its ranks leave the workers, and others use the cluster as before."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import polars as pl
import pytest

from cudf_polars.engine.dask import DaskEngine
from support.dask_cluster import key_of, start_dask_cluster

SECONDS = 120
"""Guards against hangs only."""

CLIENT = """
    import sys

    import polars as pl
    from distributed import Client

    from cudf_polars.engine.dask import DaskEngine

    if __name__ == "__main__":
        address, gate = sys.argv[1:]


        def wait(column):
            with open(gate, "rb"):  # waits for someone who writes
                return column


        frame = pl.LazyFrame({"k": [1, 2, 3, 4], "v": [1.0, 2.0, 3.0, 4.0]})
        with Client(address) as client, DaskEngine(dask_client=client) as engine:
            assert frame.select(pl.sum("v")).collect(engine=engine).item() == 10
            print("ready", flush=True)
            if gate:
                rows = frame.with_columns(
                    pl.col("v").map_batches(wait, return_dtype=pl.Float64, is_elementwise=True)
                )
                rows.group_by("k").agg(pl.sum("v")).collect(engine=engine)
            sys.stdin.read()
"""


@pytest.fixture(scope="module")
def client():
    with start_dask_cluster() as client:
        yield client


def held():
    """Look for threads and shared memory of ranks in this process."""
    maps = Path("/proc/self/maps").read_text()
    return any(t.name.startswith("riverrun-rank") for t in threading.enumerate()), "ucx_shm" in maps


async def ranks_of(count, dask_worker):
    """Return when the worker has so many ranks, and what ranks have of the process, or nothing of it."""
    hosts = dask_worker.plugins["cudf-polars-ranks"].hosts
    while len(hosts) != count or held() != (count > 0, count > 0):
        await asyncio.sleep(0.05)


def wait_for_ranks(client, count):
    client.sync(asyncio.wait_for, client.run(ranks_of, count, asynchronous=True), SECONDS)


@pytest.mark.parametrize("busy", [False, True], ids=["idle", "busy"])
def test_ranks_leave_with_a_client_that_is_killed(client, busy, tmp_path):
    script, gate = tmp_path / "client.py", tmp_path / "gate"
    script.write_text(textwrap.dedent(CLIENT))
    os.mkfifo(gate)
    command = [sys.executable, str(script), client.scheduler.address, str(gate) if busy else ""]
    env = {**os.environ, **key_of(client.security)}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "ready\n"
        wait_for_ranks(client, 1)
        with gate.open("wb") if busy else contextlib.nullcontext():  # opens when the query reads it
            other.kill()
            other.wait(SECONDS)
    # Whoever reads the gate goes on: Polars cannot be interrupted.
    with gate.open("r+b", buffering=0):
        wait_for_ranks(client, 0)
    with DaskEngine(dask_client=client) as engine:
        assert pl.LazyFrame({"v": [1, 2, 3]}).select(pl.sum("v")).collect(engine=engine).item() == 6
