"""A fork of a rank: however it ends, its parent goes on; and it cannot use what it has inherited."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

from support.ranks import Job, run_ranks

SCRIPT = """
import os, select, signal, sys
import polars as pl
from cudf_polars.engine.spmd import SPMDEngine, allgather_polars_dataframe
from cudf_polars.streaming.actor_graph.collectives.common import reserve_op_id
from rapidsmpf.coll.allgather import allgather_bytes
from rapidsmpf.memory.buffer_resource import BufferResource
from rapidsmpf.shuffler import Shuffler

def say(text):
    os.write(1, f"{text}\\n".encode())

def run(engine):
    rows = pl.LazyFrame({"k": [i % 7 for i in range(1000)], "v": range(1000)})
    part = rows.group_by("k").agg(pl.sum("v")).collect(engine=engine)
    with reserve_op_id() as op_id:
        everyone = allgather_polars_dataframe(engine=engine, local_df=part, op_id=op_id)
    assert everyone["v"].sum() == engine.nranks * 499500

def refused(work):
    try:
        work()
    except RuntimeError as error:
        return "is a fork" in str(error)
    return False

def wait_for(child):
    process = os.pidfd_open(child)
    if not select.select([process], [], [], 30)[0]:
        os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

def child(engine, how):
    if how == "exit":
        sys.exit(0)
    if how == "delete":
        shuffler = None
        del engine
        sys.exit(0)
    if how == "use":
        br = BufferResource()
        assert refused(lambda: pl.LazyFrame({"a": [1]}).collect(engine=engine))
        assert refused(lambda: engine.rank)
        assert refused(lambda: Shuffler(comm, 77, 2, br))
        assert refused(lambda: allgather_bytes(comm, 78, b""))
        assert refused(lambda: comm.abort("I am the parent"))
        assert refused(lambda: comm.split(0))
        engine.shutdown()
        sys.exit(0)

how = sys.argv[1]
me = os.getpid()
with SPMDEngine(rapidsmpf_options={"statistics": "true"}) as engine:
    comm = engine.comm
    run(engine)
    pid = os.fork()
    if pid == 0:
        child(engine, how)  # returns when it falls off the end
    else:
        say(f"child ended with {wait_for(pid)}")
        run(engine)
        run(engine)
del comm
if os.getpid() == me:
    say("parent done")
"""


@pytest.mark.parametrize("how", ["exit", "delete", "use", "end"])
@pytest.mark.parametrize("nranks", [1, 2])
def test_fork_of_a_rank(nranks, how):
    job = run_ranks(nranks, SCRIPT, how).check()
    assert sorted(job.stdout.splitlines()) == sorted(["child ended with 0", "parent done"] * nranks)


@pytest.mark.parametrize("how", ["exit", "use"])
def test_fork_without_rrun(how):
    command = [sys.executable, "-c", textwrap.dedent(SCRIPT), how]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    job = Job(done.returncode, done.stdout, done.stderr).check()
    assert job.stdout.splitlines() == ["child ended with 0", "parent done"]
