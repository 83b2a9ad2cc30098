"""Shuffles between processes, started by rrun."""

from __future__ import annotations

import pytest

from support.ranks import run_ranks

RANKS = [2, 3]

PRELUDE = """
import json, sys
import polars as pl
from rapidsmpf import bootstrap
from rapidsmpf.coll.allgather import AllGather, allgather_bytes
from rapidsmpf.memory.buffer_resource import BufferResource
from rapidsmpf.progress_thread import ProgressThread
from rapidsmpf.shuffler import PartitionAssignment, Shuffler
from rapidsmpf.table import partition_and_pack, unpack_and_concat

assert bootstrap.is_running_with_rrun()
comm = bootstrap.create_ucxx_comm(progress_thread=ProgressThread())
assert (comm.rank, comm.nranks) == (bootstrap.get_rank(), bootstrap.get_nranks())
br = BufferResource()
"""


@pytest.mark.parametrize("nranks", RANKS)
@pytest.mark.parametrize("rows", [0, 10, 200_000])
def test_shuffle(nranks, rows):
    script = """
rows = int(sys.argv[1])
mine = pl.DataFrame({
    "k": [i % 101 for i in range(comm.rank, rows, comm.nranks)],
    "i": range(comm.rank, rows, comm.nranks),
    "s": [f"text number {i % 1000} of some length" for i in range(comm.rank, rows, comm.nranks)],
}, schema={"k": pl.Int64, "i": pl.Int64, "s": pl.String})
for turn in range(2):
    partitions = 4 * comm.nranks
    shuffler = Shuffler(comm, 1, partitions, br, list(PartitionAssignment)[turn])
    shuffler.insert_chunks(partition_and_pack(mine, ["k"], partitions, br))
    shuffler.insert_finished()
    parts = []
    for _ in shuffler.local_partitions():
        pid = shuffler.wait_any(timeout=60)
        parts.append(pl.DataFrame(unpack_and_concat(shuffler.extract(pid), br)))
    shuffler.shutdown(timeout=60)
    got = pl.concat(parts)
    assert got.schema == mine.schema
    mine_sum = json.dumps((got.height, got["i"].sum(), sorted(set(got["k"])))).encode()
    sums = [json.loads(text) for text in allgather_bytes(comm, 2, mine_sum)]
    assert sum(s[0] for s in sums) == rows
    assert sum(s[1] for s in sums) == rows * (rows - 1) // 2
    assert sorted(k for s in sums for k in s[2]) == list(range(min(101, rows)))
    assert (got["s"] == pl.select(pl.format("text number {} of some length", got["i"] % 1000)).to_series()).all()
sys.stdout.write(f"done {comm.rank}\\n")
"""
    job = run_ranks(nranks, PRELUDE + script, str(rows)).check()
    assert sorted(job.stdout.splitlines()) == [f"done {rank}" for rank in range(nranks)]


def test_two_communicators_at_a_time():
    script = """
other = bootstrap.create_ucxx_comm()
for turn in range(3):
    for c in (comm, other):
        assert allgather_bytes(c, 1, b"%d" % c.rank) == [b"%d" % r for r in range(c.nranks)]
"""
    run_ranks(2, PRELUDE + script).check()


def test_new_communicator_from_a_root_address(tmp_path):
    script = """
from rapidsmpf.communicator import ucxx
from rapidsmpf.config import Options
# The first communicator stands in for whatever carries the address.
root = ucxx.new_communicator(comm.nranks, None, None, Options(), None) if comm.rank == 0 else None
address = allgather_bytes(comm, 1, ucxx.get_root_ucxx_address(root) if root else b"")[0]
mine = root or ucxx.new_communicator(comm.nranks, None, address, Options(), ProgressThread())
ucxx.barrier(mine, timeout=60)
ranks = allgather_bytes(mine, 1, b"%d" % mine.rank)
assert ranks == [b"%d" % r for r in range(comm.nranks)], ranks
"""
    run_ranks(3, PRELUDE + script).check()


def test_worker_and_address_of_the_ucxx_package():
    script = """
import ucxx._lib.libucxx as lib
from rapidsmpf.communicator import ucxx
from rapidsmpf.config import Options
worker = lib.UCXWorker(lib.UCXContext(feature_flags=(lib.Feature.TAG, lib.Feature.WAKEUP)))
root = ucxx.new_communicator(2, worker, None, Options(), None) if comm.rank == 0 else None
address = allgather_bytes(comm, 1, ucxx.get_root_ucxx_address(root) if root else b"")[0]
mine = root or ucxx.new_communicator(2, worker, lib.UCXAddress.create_from_buffer(address), Options(), None)
ucxx.barrier(mine, timeout=60)
assert allgather_bytes(mine, 1, b"%d" % mine.rank) == [b"0", b"1"]
"""
    run_ranks(2, PRELUDE + script).check()


def test_uncaught_exception_reaches_the_others():
    script = """
from rapidsmpf.error import RankFailedError
try:
    allgather_bytes(comm, 1, b"", timeout=60)  # every rank has its communicator
    if comm.rank == 1:
        raise LookupError("nothing found")
    allgather_bytes(comm, 1, b"", timeout=60)
except RankFailedError as error:
    sys.stdout.write(f"{error.rank} {error.reason}\\n")
    sys.exit(3)
"""
    job = run_ranks(3, PRELUDE + script)
    assert job.stdout.splitlines() == ["1 LookupError: nothing found"] * 2, job.stderr
    assert job.returncode == 1
    assert "rank 1" in job.stderr


def test_exit_with_the_communicator_in_globals():
    script = """
shuffler = Shuffler(comm, 1, 2, br)
shuffler.insert_finished()
kept = [comm, shuffler]
kept.append(kept)
"""
    run_ranks(2, PRELUDE + script).check()


def test_keyboard_interrupt_ends_a_wait():
    script = """
import signal
shuffler = Shuffler(comm, 1, 1, br)
if comm.rank == 0:
    # The signal comes during the wait, or just before it: either must end the block.
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        shuffler.wait_any()
    except KeyboardInterrupt:
        sys.stdout.write("interrupted\\n")
allgather_bytes(comm, 2, b"", timeout=60)
"""
    assert run_ranks(2, PRELUDE + script).check().stdout == "interrupted\n"


def test_communicator_of_one_process():
    script = """
assert comm.nranks == 1
assert allgather_bytes(comm, 1, b"x") == [b"x"]
"""
    run_ranks(1, PRELUDE + script).check()
