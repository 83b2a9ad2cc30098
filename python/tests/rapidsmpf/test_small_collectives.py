"""Barrier, broadcast and the sparse all-to-all."""

from __future__ import annotations

import pytest
from rapidsmpf.coll import SparseAlltoall, barrier, broadcast_bytes
from rapidsmpf.communicator import single
from rapidsmpf.config import Options
from rapidsmpf.memory.buffer_resource import BufferResource
from rapidsmpf.memory.packed_data import PackedData

from support.cluster import on_ranks

WAIT = 60.0


@pytest.mark.parametrize("nranks", [1, 3])
def test_barrier_waits_for_the_last(nranks):
    come: list[int] = []

    def work(comm):
        come.append(comm.rank)
        barrier(comm, 1, timeout=WAIT)
        return len(come)

    assert on_ranks(nranks, work, seed=7, delay_probability=0.3) == [nranks] * nranks


def test_barrier_that_times_out():
    def work(comm):
        if comm.rank == 0:
            with pytest.raises(TimeoutError, match="rank 1"):
                barrier(comm, 1, timeout=0.0)
        barrier(comm, 2, timeout=WAIT)
        if comm.rank == 1:
            barrier(comm, 1, timeout=WAIT)  # rank 0 has come to it

    on_ranks(2, work)


@pytest.mark.parametrize("root", [0, 2])
@pytest.mark.parametrize("value", [b"", b"a few \0 bytes", bytes(200_000)])
def test_broadcast(root, value):
    def work(comm):
        return broadcast_bytes(comm, 1, value if comm.rank == root else None, root, timeout=WAIT)

    assert on_ranks(3, work, seed=5, delay_probability=0.3) == [value] * 3


def test_broadcast_misuse():
    comm = single.new_communicator(Options())
    with pytest.raises(ValueError, match="root"):
        broadcast_bytes(comm, 1, b"", 1)
    with pytest.raises(TypeError, match="bytes"):
        broadcast_bytes(comm, 1, None)

    def work(comm):
        with pytest.raises(ValueError, match="disagree about the root"):
            broadcast_bytes(comm, 1, b"x", comm.rank, timeout=WAIT)

    on_ranks(2, work)


def test_sparse_alltoall():
    br = BufferResource()

    def work(comm):
        # Each rank sends to the next one, and rank 0 to itself, too.
        dsts = [(comm.rank + 1) % comm.nranks] + [0] * (comm.rank == 0)
        srcs = [(comm.rank - 1) % comm.nranks] + [0] * (comm.rank == 0)
        exchange = SparseAlltoall(comm, 1, br, srcs, dsts)
        assert (exchange.srcs, exchange.dsts, exchange.comm) == (srcs, dsts, comm)
        for dst in dsts:
            for turn in range(3):
                exchange.insert(dst, PackedData.from_host_bytes(f"{comm.rank}-{dst}-{turn}".encode(), br))
        exchange.insert_finished()
        exchange.wait(timeout=WAIT)
        assert exchange.finished()
        got = {src: [chunk.to_host_bytes().decode() for chunk in exchange.extract(src)] for src in srcs}
        assert all(exchange.extract(src) == [] for src in srcs)
        return got

    results = on_ranks(3, work, seed=6, delay_probability=0.3)
    assert results == [
        {2: ["2-0-0", "2-0-1", "2-0-2"], 0: ["0-0-0", "0-0-1", "0-0-2"]},
        {0: ["0-1-0", "0-1-1", "0-1-2"]},
        {1: ["1-2-0", "1-2-1", "1-2-2"]},
    ]


def test_sparse_alltoall_misuse(br):
    comm = single.new_communicator(Options())
    for srcs, dsts in (([1], []), ([], [0, 0]), ([-1], [])):
        with pytest.raises(ValueError, match=r"source|destination"):
            SparseAlltoall(comm, 1, br, srcs, dsts)
    exchange = SparseAlltoall(comm, 1, br, [0], [0])
    chunk = PackedData.from_host_bytes(b"x", br)
    with pytest.raises(ValueError, match="not among the destinations"):
        exchange.insert(1, chunk)
    with pytest.raises(ValueError, match="not among the sources"):
        exchange.extract(1)
    with pytest.raises(RuntimeError, match="wait"):
        exchange.extract(0)
    exchange.insert(0, chunk)  # it was not taken before
    exchange.insert_finished()
    with pytest.raises(RuntimeError):
        exchange.insert_finished()
    with pytest.raises(RuntimeError):
        exchange.insert(0, PackedData.from_host_bytes(b"x", br))
    exchange.wait(timeout=WAIT)
    assert len(exchange.extract(0)) == 1


def test_lists_that_do_not_agree():
    br = BufferResource()

    def work(comm):
        exchange = SparseAlltoall(comm, 1, br, [1] if comm.rank == 0 else [], [])
        exchange.insert_finished()
        if comm.rank == 0:
            with pytest.raises(ValueError, match="rank 0 has rank 1 among its sources"):
                exchange.wait(timeout=WAIT)

    on_ranks(2, work)
