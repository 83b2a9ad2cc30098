"""The all-gather."""

from __future__ import annotations

import pytest
from rapidsmpf.coll.allgather import AllGather, allgather_bytes
from rapidsmpf.communicator import single
from rapidsmpf.config import Options
from rapidsmpf.memory.buffer_resource import BufferResource
from rapidsmpf.memory.packed_data import PackedData

from support.cluster import on_ranks

WAIT = 60.0


@pytest.mark.parametrize("nranks", [1, 2, 4])
def test_everyone_gets_everything_in_order(nranks):
    br = BufferResource()

    def work(comm):
        gather = AllGather(comm, 1, br)
        # Rank r gives r chunks, the last first.
        for sequence in reversed(range(comm.rank)):
            gather.insert(sequence, PackedData.from_host_bytes(f"{comm.rank}.{sequence}".encode(), br))
        gather.insert_finished()
        chunks = gather.wait_and_extract(ordered=True, timeout_ms=WAIT * 1000)
        assert gather.finished()
        assert gather.extract_ready() == []
        return [chunk.to_host_bytes().decode() for chunk in chunks]

    expected = [f"{rank}.{sequence}" for rank in range(nranks) for sequence in range(rank)]
    assert on_ranks(nranks, work, seed=2, delay_probability=0.3) == [expected] * nranks


@pytest.mark.parametrize("nranks", [1, 3])
def test_allgather_bytes(nranks):
    values = on_ranks(nranks, lambda comm: allgather_bytes(comm, 5, b"%d\0" % comm.rank, timeout=WAIT))
    assert values == [[b"%d\0" % rank for rank in range(nranks)]] * nranks


def test_same_id_again_and_again():
    def work(comm):
        return [allgather_bytes(comm, 5, b"%d" % turn, timeout=WAIT) for turn in range(20)]

    assert (
        on_ranks(3, work, seed=3, delay_probability=0.3) == [[[b"%d" % turn] * 3 for turn in range(20)]] * 3
    )


def test_timeout_names_the_ranks_that_are_missing():
    br = BufferResource()

    def work(comm):
        gather = AllGather(comm, 1, br)
        if comm.rank == 0:
            gather.insert_finished()
            with pytest.raises(TimeoutError, match="rank 1"):
                gather.wait_and_extract(timeout_ms=50)
        allgather_bytes(comm, 2, b"", timeout=WAIT)
        if comm.rank == 1:
            gather.insert_finished()
        return len(gather.wait_and_extract(timeout_ms=WAIT * 1000))

    assert on_ranks(2, work) == [0, 0]


def test_misuse(br):
    gather = AllGather(single.new_communicator(Options()), 1, br)
    gather.insert_finished()
    with pytest.raises(RuntimeError):
        gather.insert_finished()
    with pytest.raises(RuntimeError):
        gather.insert(0, PackedData.from_host_bytes(b"x", br))


def test_comm(br):
    comm = single.new_communicator(Options())
    assert AllGather(comm, 1, br).comm is comm
