"""Ranks that are silent: stopped for ever they are named, stopped for a moment nobody minds."""

from __future__ import annotations

import pytest

from support.ranks import run_ranks

SCRIPT = """
import os, signal, subprocess, sys
import polars as pl
from cudf_polars.engine.spmd import SPMDEngine
from rapidsmpf.error import RankFailedError

victim, again = int(sys.argv[1]), sys.argv[2]

def stop(column):
    if rank == victim:
        if again:
            # Somebody else lets it go on.
            subprocess.Popen(["sh", "-c", f"sleep {again}; kill -CONT {os.getpid()}"])
        os.kill(os.getpid(), signal.SIGSTOP)
    return column

def say(text):
    os.write(1, f"{text}\\n".encode())

with SPMDEngine() as engine:
    rank = engine.rank
    rows = pl.LazyFrame({"k": [i % 7 for i in range(1000)], "v": range(1000)})
    query = rows.with_columns(pl.col("v").map_batches(stop, return_dtype=pl.Int64, is_elementwise=True))
    query = query.group_by("k").agg(pl.sum("v")).sort("k")
    try:
        query.collect(engine=engine)
        say("right")
    except RankFailedError as error:
        say(f"{error.rank} {error.pid > 0} {error.reason}")
        raise
"""


@pytest.mark.parametrize("victim", [0, 1])
def test_a_rank_that_is_stopped_for_ever_is_named(victim):
    job = run_ranks(2, SCRIPT, str(victim), "", env={"RAPIDSMPF_LIVENESS_TIMEOUT": "3 s"}, timeout=60)
    assert job.returncode != 0
    told = [line for line in job.stdout.splitlines() if line.startswith(f"{victim} True it has not answered")]
    assert told, job.stdout + job.stderr
    assert f"rank {victim}" in job.stderr


def test_a_rank_that_is_stopped_for_a_moment_goes_on():
    job = run_ranks(2, SCRIPT, "1", "1.5").check()
    assert job.stdout.splitlines() == ["right", "right"]
