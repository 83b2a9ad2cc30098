"""Collectives without a timeout: the option's, with the missing named; and word of who is missing meanwhile."""

from __future__ import annotations

import math
import threading
import time

import numpy as np
import pytest
from rapidsmpf.coll import SparseAlltoall, barrier, broadcast_bytes
from rapidsmpf.coll.allgather import AllGather, allgather_bytes
from rapidsmpf.coll.allreduce import AllReduce
from rapidsmpf.communicator.communicator import Communicator
from rapidsmpf.config import Options
from rapidsmpf.error import RankFailedError
from rapidsmpf.memory.buffer_resource import BufferResource
from rapidsmpf.shuffler import Shuffler

from support.cluster import on_ranks

WAIT = 60.0


def shuffle(comm: Communicator) -> Shuffler:
    shuffler = Shuffler(comm, 1, 2, BufferResource())
    shuffler.insert_finished()
    return shuffler


def gather(comm: Communicator) -> AllGather:
    gathering = AllGather(comm, 1, BufferResource())
    gathering.insert_finished()
    return gathering


def sparse(comm: Communicator) -> SparseAlltoall:
    exchange = SparseAlltoall(comm, 1, BufferResource(), [1], [1])
    exchange.insert_finished()
    return exchange


COLLECTIVES = {
    "barrier": lambda comm: barrier(comm, 1),
    "broadcast_bytes": lambda comm: broadcast_bytes(comm, 1, b"", 1),
    "allgather_bytes": lambda comm: allgather_bytes(comm, 1, b""),
    "AllGather": lambda comm: gather(comm).wait_and_extract(),
    "AllReduce": lambda comm: AllReduce(comm, 1, np.zeros(4), "sum").wait_and_extract(),
    "SparseAlltoall": lambda comm: sparse(comm).wait(),
    "Shuffler.wait_any": lambda comm: shuffle(comm).wait_any(),
    "Shuffler.wait_on": lambda comm: shuffle(comm).wait_on(0),
}


@pytest.mark.parametrize("name", COLLECTIVES)
def test_who_does_not_come_is_named(name):
    def work(comm: Communicator) -> None:
        if comm.rank == 0:
            with pytest.raises(TimeoutError, match=r"rank 1 .*collective_timeout"):
                COLLECTIVES[name](comm)

    on_ranks(2, work, options=Options({"collective_timeout": "50ms"}))


def test_different_operation_ids_are_an_error():
    def work(comm: Communicator) -> None:
        with pytest.raises((TimeoutError, RankFailedError), match=f"rank {1 - comm.rank}"):
            allgather_bytes(comm, 10 + comm.rank, b"")

    on_ranks(2, work, options=Options({"collective_timeout": "50ms"}))


def test_a_timeout_of_ones_own_goes_before():
    def work(comm: Communicator) -> None:
        if comm.rank == 1:
            time_passes()
        barrier(comm, 1, timeout=WAIT)
        if comm.rank == 1:
            time_passes()
        barrier(comm, 2, timeout=math.inf)

    on_ranks(2, work, options=Options({"collective_timeout": "10ms"}))


def time_passes() -> None:
    """Let more time pass than the options of these tests allow."""
    threading.Event().wait(0.1)


def test_who_is_missing_is_logged(capfd):
    """Rank 1 comes when the log says that it is missing."""
    seen: list[str] = []

    def work(comm: Communicator) -> None:
        if comm.rank == 1:
            end = time.monotonic() + WAIT
            while "has waited" not in "".join(seen):
                assert time.monotonic() < end
                time_passes()
                seen.append(capfd.readouterr().err)
        barrier(comm, 1)

    on_ranks(2, work, options=Options({"collective_warning": "100ms"}))
    assert "barrier 1 on rank 0 has waited" in "".join(seen)
    assert "rank 1 has not finished it" in "".join(seen)


def test_what_is_complete_outlives_the_end_of_its_ranks():
    """Rank 0 gives up right after a collective that is complete; rank 1, which has not looked yet, gets its result."""
    complete, ended = threading.Event(), threading.Event()

    def work(comm: Communicator) -> object:
        gathering = AllGather(comm, 1, BufferResource())
        gathering.insert_finished()
        if comm.rank == 0:
            gathering.wait_and_extract(timeout_ms=WAIT * 1000)
            assert complete.wait(WAIT)
            comm.abort("it ends")
            ended.set()
            return None
        while not gathering.finished():
            time_passes()
        complete.set()
        assert ended.wait(WAIT)
        end = time.monotonic() + WAIT
        while time.monotonic() < end:  # until the news is here
            try:
                comm.check()
            except RankFailedError:
                break
            time_passes()
        assert gathering.wait_and_extract(timeout_ms=WAIT * 1000) == []
        with pytest.raises(RankFailedError, match="it ends"):
            allgather_bytes(comm, 2, b"", timeout=WAIT)
        return None

    on_ranks(2, work)
