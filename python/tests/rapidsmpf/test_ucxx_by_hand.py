"""UCXX communicators whose ranks find the root by its address, without a launcher."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import ExitStack

import pytest
from rapidsmpf.communicator import ucxx
from rapidsmpf.communicator.single import new_communicator
from rapidsmpf.config import Options

RANK = """
import sys
from rapidsmpf.coll.allgather import allgather_bytes
from rapidsmpf.communicator import ucxx
from rapidsmpf.config import Options, get_environment_variables
from rapidsmpf.error import RankFailedError

address = bytes.fromhex(sys.argv[2]) if len(sys.argv) > 2 else None
comm = ucxx.new_communicator(int(sys.argv[1]), None, address, Options(get_environment_variables()), None)
if address is None:
    print(ucxx.get_root_ucxx_address(comm).hex(), flush=True)
ucxx.barrier(comm, timeout=60)
assert allgather_bytes(comm, 1, b"%d" % comm.rank, timeout=60) == [b"%d" % r for r in range(comm.nranks)]
print(f"rank {comm.rank}", flush=True)
"""
WAIT = """
try:
    allgather_bytes(comm, 2, b"", timeout=60)
except RankFailedError as error:
    print(f"{error.rank} {error.pid}", flush=True)
"""
# Takes part in nothing any more until it is killed.
STAY = """
import signal
signal.pause()
"""


class Ranks:
    """Processes that have joined one communicator, by rank."""

    def __init__(self, stack: ExitStack, scripts: list[str]) -> None:
        self._stack = stack
        nranks = str(len(scripts))
        root = self._start(scripts[0], nranks)
        assert root.stdout is not None
        address = root.stdout.readline().strip()
        # Ranks go by order of arrival: which process has which is known when it says so.
        self.processes = [root, *(self._start(script, nranks, address) for script in scripts[1:])]
        self.ranks = {}
        for process in self.processes:
            assert process.stdout is not None
            self.ranks[int(process.stdout.readline().split()[1])] = process

    def _start(self, script: str, *arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", RANK + script, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)
        return process


@pytest.mark.parametrize("root_dies", [True, False])
def test_death_of_a_rank_is_noticed(root_dies):
    with ExitStack() as stack:
        scripts = [STAY, WAIT, WAIT] if root_dies else [WAIT, STAY, WAIT]
        ranks = Ranks(stack, scripts)
        victim = ranks.processes[0 if root_dies else 1]
        rank = next(rank for rank, process in ranks.ranks.items() if process is victim)
        victim.send_signal(signal.SIGKILL)
        for process in ranks.processes:
            if process is not victim:
                out, err = process.communicate(timeout=60)
                assert (out, process.returncode) == (f"{rank} {victim.pid}\n", 0), err


def test_ranks_leave_in_good_order():
    with ExitStack() as stack:
        ranks = Ranks(stack, ["", "", ""])
        for process in ranks.processes:
            out, err = process.communicate(timeout=60)
            assert (out, err, process.returncode) == ("", "", 0)


def test_root_of_one_rank():
    comm = ucxx.new_communicator(1, None, None, Options(), None)
    ucxx.barrier(comm)
    assert (comm.rank, comm.nranks) == (0, 1)


@pytest.mark.parametrize("mode", ["thread-blocking", "thread-polling"])
def test_progress_modes(mode):
    comm = ucxx.new_communicator(1, None, None, Options({"ucxx_progress_mode": mode}), None)
    assert comm.nranks == 1


@pytest.mark.parametrize("mode", ["polling", "blocking", "sometimes"])
def test_progress_modes_that_are_none(mode):
    with pytest.raises(ValueError, match="thread-polling"):
        ucxx.new_communicator(1, None, None, Options({"ucxx_progress_mode": mode}), None)


def damaged_addresses():
    whole = ucxx.get_root_ucxx_address(ucxx.new_communicator(2, None, None, Options(), None))
    middle = len(whole) // 2
    return {
        "empty": b"",
        "text": b"192.168.0.1:4711",
        "cut at the end": whole[:-1],
        "cut at the begin": whole[1:],
        "cut out": whole[:middle] + whole[middle + 1 :],
        "changed": whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :],
        "zeros": bytes(300),
    }


def test_damaged_addresses_are_refused():
    for address in damaged_addresses().values():
        with pytest.raises(ValueError, match="address"):
            ucxx.new_communicator(2, None, address, Options(), None)


def test_other_communicators_have_no_ucxx_address():
    comm = new_communicator(Options())
    with pytest.raises(ValueError, match="UCXX"):
        ucxx.get_root_ucxx_address(comm)
    with pytest.raises(ValueError, match="UCXX"):
        ucxx.barrier(comm)


def test_interrupt_ends_a_barrier():
    # Nobody else ever joins. By a signal of its own, so that a slow machine cannot stop the test run.
    comm = ucxx.new_communicator(2, None, None, Options(), None)

    def interrupted_barrier():
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        ucxx.barrier(comm)

    former = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            interrupted_barrier()
    finally:
        signal.signal(signal.SIGALRM, former)
    with pytest.raises(TimeoutError, match=r"not reached by rank\(s\) 1"):
        ucxx.barrier(comm, timeout=0)
