"""A rank is killed in the middle of a shuffle: the others learn of it, and nothing is left behind."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

from support.ranks import run_ranks

SCRIPT = """
import os, signal, sys, time
from rapidsmpf import bootstrap
from rapidsmpf.coll.allgather import allgather_bytes
from rapidsmpf.error import RankFailedError
from rapidsmpf.memory.buffer_resource import BufferResource
from rapidsmpf.memory.packed_data import PackedData
from rapidsmpf.shuffler import Shuffler

def say(line):
    os.write(1, f"{line}\\n".encode())  # at once: ranks share a pipe

comm = bootstrap.create_ucxx_comm()
say(f"pid {os.getpid()}")
br = BufferResource()
shuffler = Shuffler(comm, 1, 3, br)
allgather_bytes(comm, 2, b"")  # everybody is there
try:
    for turn in range(4):
        shuffler.insert_chunks({p: PackedData.from_host_bytes(bytes(10_000_000), br) for p in range(3)})
    if comm.rank == 1:
        say(f"killed {time.time()}")
        os.kill(os.getpid(), signal.SIGKILL)
    shuffler.insert_finished()
    while True:
        shuffler.extract(shuffler.wait_any())
except RankFailedError as error:
    assert error.rank == 1, error
    assert error.pid > 0 and error.host, error
    say(f"raised {time.time()}")
try:
    shuffler.wait_any()
except RankFailedError:
    say("again")
if sys.argv[1] == "raise":
    comm.check()
"""


def unmapped_shared_memory() -> set[str]:
    """Names in /dev/shm that no process maps: left behind by processes that are gone."""
    there = {str(path) for path in Path("/dev/shm").iterdir() if path.is_file()}
    for maps in Path("/proc").glob("[0-9]*/maps"):
        try:
            text = maps.read_text()
        except OSError:  # the process has ended
            continue
        there -= set(re.findall(r"/dev/shm/\S+", text))
    return there


def shared_segments_of(pids: set[int]) -> list[str]:
    """System V segments that were made by some processes."""
    lines = Path("/proc/sysvipc/shm").read_text().splitlines()[1:]
    return [line for line in lines if int(line.split()[4]) in pids]


@pytest.mark.parametrize("afterwards", ["raise", "return"])
def test_kill_in_the_middle_of_a_shuffle(tmp_path, afterwards):
    before = unmapped_shared_memory()
    job = run_ranks(3, SCRIPT, afterwards, timeout=60, env={"TMPDIR": str(tmp_path)})
    assert job.returncode == 128 + signal.SIGKILL, job.stderr
    assert re.search(r"rank 1 .*SIGKILL", job.stderr), job.stderr

    words = [line.split() for line in job.stdout.splitlines()]
    (killed,) = [float(value[1]) for value in words if value[0] == "killed"]
    raised = [float(value[1]) for value in words if value[0] == "raised"]
    assert len(raised) == 2, job.stdout + job.stderr
    assert all(time - killed < 5 for time in raised)
    assert sum(value[0] == "again" for value in words) == 2

    pids = {int(value[1]) for value in words if value[0] == "pid"}
    assert len(pids) == 3
    assert not [pid for pid in pids if os.path.exists(f"/proc/{pid}")]
    assert shared_segments_of(pids) == []
    assert unmapped_shared_memory() - before == set()
    assert list(tmp_path.iterdir()) == []
