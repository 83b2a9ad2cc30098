"""A rank is killed in the middle of a shuffle: the others learn of it, and nothing is left behind."""

from __future__ import annotations

import re
import signal

import pytest

from support.leftovers import Places
from support.ranks import run_ranks

SCRIPT = """
import os, signal, sys, time

begin = time.monotonic()
from rapidsmpf import bootstrap
from rapidsmpf.coll.allgather import allgather_bytes
from rapidsmpf.error import RankFailedError
from rapidsmpf.memory.buffer_resource import BufferResource
from rapidsmpf.memory.packed_data import PackedData
from rapidsmpf.shuffler import Shuffler

def say(line):
    os.write(1, f"{line}\\n".encode())  # at once: ranks share a pipe

comm = bootstrap.create_ucxx_comm()
say(f"pid {os.getpid()} {time.monotonic() - begin}")
br = BufferResource()
shuffler = Shuffler(comm, 1, 3, br)
allgather_bytes(comm, 2, b"")  # everybody is there
try:
    for turn in range(4):
        shuffler.insert_chunks({p: PackedData.from_host_bytes(bytes(10_000_000), br) for p in range(3)})
    if comm.rank == 1:
        say(f"killed {time.monotonic()}")
        os.kill(os.getpid(), signal.SIGKILL)
    shuffler.insert_finished()
    while True:
        shuffler.extract(shuffler.wait_any())
except RankFailedError as error:
    assert error.rank == 1, error
    assert error.pid > 0 and error.host, error
    say(f"raised {time.monotonic()}")
try:
    shuffler.wait_any()
except RankFailedError:
    say("again")
if sys.argv[1] == "raise":
    comm.check()
"""


@pytest.mark.parametrize("afterwards", ["raise", "return"])
def test_kill_in_the_middle_of_a_shuffle(tmp_path, afterwards):
    places = Places(tmp_path)
    job = run_ranks(3, SCRIPT, afterwards, timeout=60, env=places.env)
    assert job.returncode == 128 + signal.SIGKILL, job.stderr
    assert re.search(r"rank 1 .*SIGKILL", job.stderr), job.stderr

    words = [line.split() for line in job.stdout.splitlines()]
    (killed,) = [float(value[1]) for value in words if value[0] == "killed"]
    raised = [float(value[1]) for value in words if value[0] == "raised"]
    assert len(raised) == 2, job.stdout + job.stderr
    # On a machine where it takes seconds to begin, the news may take long as well.
    allowed = max(5.0, *(5 * float(value[2]) for value in words if value[0] == "pid"))
    assert max(raised) - killed < allowed
    assert sum(value[0] == "again" for value in words) == 2

    pids = {int(value[1]) for value in words if value[0] == "pid"}
    assert len(pids) == 3
    places.check(pids)
