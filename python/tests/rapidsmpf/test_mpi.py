"""The communicator over MPI, between processes that mpirun has started."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
import tempfile

import pytest
from rapidsmpf.communicator import COMMUNICATORS

from support.leftovers import orphaned_segments
from support.mpi import needs_mpi, run_mpi_ranks

# mpi4py before rapidsmpf, as sorted imports have it: then Open MPI has loaded its own UCX.
PRELUDE = """
import sys
from mpi4py import MPI
import polars as pl
from rapidsmpf.coll.allgather import allgather_bytes
from rapidsmpf.communicator.mpi import new_communicator
from rapidsmpf.config import Options
from rapidsmpf.error import RankFailedError
from rapidsmpf.memory.buffer_resource import BufferResource
from rapidsmpf.progress_thread import ProgressThread
from rapidsmpf.shuffler import Shuffler
from rapidsmpf.table import partition_and_pack, unpack_and_concat

comm = new_communicator(MPI.COMM_WORLD, Options(), ProgressThread())
assert (comm.rank, comm.nranks) == (MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size)

def say(text):
    sys.stdout.write(text + "\\n")  # one write, so that the lines of the ranks do not mix
    sys.stdout.flush()
"""


def test_shared_memory_that_nobody_uses_is_noticed():
    """What run_mpi_ranks() looks for after each job."""
    with tempfile.NamedTemporaryFile(prefix="sm_segment.test.", dir="/dev/shm") as segment:
        segment.write(bytes(4096))
        segment.flush()
        with mmap.mmap(segment.fileno(), 4096):
            assert segment.name not in orphaned_segments()
        assert segment.name in orphaned_segments()


@needs_mpi
@pytest.mark.parametrize("nranks", [1, 2, 3])
def test_shuffle_and_split(nranks):
    script = """
br = BufferResource()
rows = 50_000
mine = pl.DataFrame({"k": [i % 101 for i in range(comm.rank, rows, comm.nranks)],
                     "i": range(comm.rank, rows, comm.nranks)})
part = comm.split(comm.rank % 2, -comm.rank, timeout=60)
assert part.nranks == len(range(comm.rank % 2, comm.nranks, 2))
for on in (comm, part, comm):
    shuffler = Shuffler(on, 1, 4 * on.nranks, br)
    shuffler.insert_chunks(partition_and_pack(mine, ["k"], 4 * on.nranks, br))
    shuffler.insert_finished()
    parts = []
    for _ in shuffler.local_partitions():
        parts.append(pl.DataFrame(unpack_and_concat(shuffler.extract(shuffler.wait_any(timeout=60)), br)))
    heights = allgather_bytes(on, 2, str(pl.concat(parts).height).encode(), timeout=60)
    inserted = allgather_bytes(on, 3, str(mine.height).encode(), timeout=60)
    assert sum(map(int, heights)) == sum(map(int, inserted))
say(f"done {comm.rank}")
"""
    job = run_mpi_ranks(nranks, PRELUDE + script).check()
    assert sorted(job.stdout.splitlines()) == [f"done {rank}" for rank in range(nranks)]


@needs_mpi
def test_communicator_of_some_processes():
    script = """
half = MPI.COMM_WORLD.Split(comm.rank // 2)
with_others = new_communicator(half, Options({"mpi_chunk_bytes": "1 KiB"}), comm.progress_thread)
got = allgather_bytes(with_others, 1, bytes([comm.rank]) * 100_000, timeout=60)
assert [value[0] for value in got] == [rank for rank in range(3) if rank // 2 == comm.rank // 2]
assert "Open MPI" not in MPI.Get_library_version() or "Open MPI" in comm.get_str()
"""
    run_mpi_ranks(3, PRELUDE + script).check()


@needs_mpi
def test_uncaught_exception_reaches_the_others():
    script = """
if comm.rank == 1:
    allgather_bytes(comm, 1, b"", timeout=60)  # every rank has its communicator
    raise LookupError("nothing found")
try:
    allgather_bytes(comm, 1, b"", timeout=60)  # the end may come as early as this
    allgather_bytes(comm, 1, b"", timeout=60)
except RankFailedError as error:
    say(f"{error.rank} {error.reason}")
"""
    job = run_mpi_ranks(3, PRELUDE + script)
    assert job.stdout.splitlines() == ["1 LookupError: nothing found"] * 2, job.stderr
    assert job.returncode != 0


@needs_mpi
@pytest.mark.parametrize("victim", [0, 1])
def test_death_of_a_rank(victim, tmp_path):
    # Where mpirun does not end the job itself.
    script = """
import os, signal
if comm.rank == int(sys.argv[1]):
    allgather_bytes(comm, 1, b"", timeout=60)
    os.kill(os.getpid(), signal.SIGKILL)
try:
    allgather_bytes(comm, 1, b"", timeout=60)  # the end may come as early as this
    allgather_bytes(comm, 1, b"", timeout=60)
except RankFailedError as error:
    say(f"{error.rank} {error.pid > 0}")
if sys.argv[1] == "1":
    # Rank 0 hosts the coordinator, and goes when rank 2 has heard of it.
    with open(sys.argv[2], "r" if comm.rank == 0 else "w") as fifo:
        if comm.rank == 0:
            fifo.read()
os._exit(0)  # MPI_Finalize would wait for the dead
"""
    fifo = tmp_path / "heard"
    os.mkfifo(fifo)
    job = run_mpi_ranks(3, PRELUDE + script, str(victim), str(fifo), options=("--enable-recovery",))
    if "unrecognized" in job.stderr.lower() or "unrecognised" in job.stderr.lower():
        pytest.skip("this mpirun cannot go on without a rank")
    assert job.stdout.splitlines() == [f"{victim} True"] * 2, job.stderr


@needs_mpi
def test_exit_with_the_communicator_in_globals():
    script = """
part = comm.split(0, timeout=60)
shuffler = Shuffler(comm, 1, 2, BufferResource())
shuffler.insert_finished()
kept = [comm, part, shuffler]
kept.append(kept)
"""
    job = run_mpi_ranks(2, PRELUDE + script).check()
    assert job.stderr == ""


@needs_mpi
def test_finalize_comes_first():
    script = """
MPI.Finalize()
try:
    comm.check()
except RankFailedError as error:
    say(error.reason)
try:
    new_communicator(MPI.COMM_WORLD, Options(), None)
except RuntimeError as error:
    say("refused")
"""
    job = run_mpi_ranks(2, PRELUDE + script).check()
    assert sorted(job.stdout.splitlines()) == ["MPI was finalised"] * 2 + ["refused"] * 2


@needs_mpi
def test_what_is_refused():
    script = """
for wrong, error_type in ((None, TypeError), (MPI.COMM_NULL, (TypeError, ValueError)), (MPI.GROUP_NULL, TypeError)):
    try:
        new_communicator(wrong, Options(), None)
    except error_type:
        pass
    else:
        raise AssertionError(wrong)
try:
    new_communicator(MPI.COMM_WORLD, Options({"mpi_chunk_bytes": "3 GiB"}), None)
except ValueError as error:
    assert "mpi_chunk_bytes" in str(error)
else:
    raise AssertionError("3 GiB")
"""
    run_mpi_ranks(1, PRELUDE + script).check()


@needs_mpi
def test_needs_thread_multiple():
    script = """
import mpi4py
mpi4py.rc.thread_level = "serialized"
from mpi4py import MPI
from rapidsmpf.communicator.mpi import new_communicator
from rapidsmpf.config import Options
if MPI.Query_thread() == MPI.THREAD_MULTIPLE:
    print("MPI gives more than it is asked for")
else:
    try:
        new_communicator(MPI.COMM_WORLD, Options(), None)
    except RuntimeError as error:
        print(str(error))
"""
    job = run_mpi_ranks(1, script).check()
    assert "MPI_THREAD_MULTIPLE" in job.stdout or "more than it is asked for" in job.stdout


def test_import_without_mpi_says_what_to_install():
    script = """
import sys
sys.modules["mpi4py"] = None
try:
    import rapidsmpf.communicator.mpi
except ImportError as error:
    assert "pip install" in str(error)
else:
    raise AssertionError("it was imported")
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_nothing_else_loads_mpi():
    script = """
import rapidsmpf.communicator, rapidsmpf.communicator.ucxx, rapidsmpf.shuffler
with open("/proc/self/maps") as maps:
    assert not [line for line in maps if "libmpi" in line]
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
    assert set(COMMUNICATORS) <= {"single", "ucxx", "mpi"}
