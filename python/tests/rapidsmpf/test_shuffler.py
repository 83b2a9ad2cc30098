"""The shuffler."""

from __future__ import annotations

import threading

import polars as pl
import pytest
from rapidsmpf import table
from rapidsmpf.communicator import loopback, single
from rapidsmpf.config import Options
from rapidsmpf.error import RankFailedError, SpillError
from rapidsmpf.memory.buffer_resource import BufferResource
from rapidsmpf.memory.packed_data import PackedData
from rapidsmpf.shuffler import PartitionAssignment, Shuffler
from rapidsmpf.utils.system_info import get_device_name

from support.cluster import on_ranks

WAIT = 60.0  # seconds; a correct run never waits that long


@pytest.fixture
def comm():
    return single.new_communicator(Options())


def packed(text, br):
    return PackedData.from_host_bytes(text.encode(), br)


@pytest.mark.parametrize("nranks", [1, 2, 4])
@pytest.mark.parametrize("total", [1, 5])
@pytest.mark.parametrize("assignment", list(PartitionAssignment))
def test_every_chunk_arrives_in_order(nranks, total, assignment):
    br = BufferResource()
    tiny = Options({"exchange_frame_bytes": "64", "exchange_gather_limit": "8"})

    def work(comm):
        shuffler = Shuffler(comm, 3, total, br, assignment, options=tiny)
        for turn in range(3):
            shuffler.insert_chunks({pid: packed(f"{comm.rank} {pid} {turn}", br) for pid in range(total)})
        shuffler.insert_finished(range(total))
        got = {}
        for _ in shuffler.local_partitions():
            pid = shuffler.wait_any(timeout=WAIT)
            got[pid] = [chunk.to_host_bytes().decode() for chunk in shuffler.extract(pid)]
        assert shuffler.finished()
        shuffler.shutdown(timeout=WAIT)
        return got

    merged = {}
    for part in on_ranks(nranks, work, seed=1, delay_probability=0.2):
        assert not merged.keys() & part.keys()
        merged.update(part)
    assert merged == {
        pid: [f"{rank} {pid} {turn}" for rank in range(nranks) for turn in range(3)] for pid in range(total)
    }


@pytest.mark.parametrize(
    ("assignment", "expected"),
    [
        (PartitionAssignment.ROUND_ROBIN, [[0, 2, 4], [1, 3]]),
        (PartitionAssignment.CONTIGUOUS, [[0, 1, 2], [3, 4]]),
    ],
)
def test_local_partitions(assignment, expected):
    br = BufferResource()
    comms = loopback.new_cluster(2)
    assert [Shuffler(comm, 0, 5, br, assignment).local_partitions() for comm in comms] == expected


def test_partitions_complete_one_by_one(comm, br):
    shuffler = Shuffler(comm, 0, 2, br)
    shuffler.insert_chunks({1: packed("x", br)})
    shuffler.insert_finished(1)
    assert shuffler.wait_any(timeout=WAIT) == 1
    with pytest.raises(TimeoutError, match="partition 0"):
        shuffler.wait_any(timeout=0)
    shuffler.insert_finished([0])
    shuffler.wait_on(0, timeout=WAIT)


def test_timeout_says_how_long_it_was(comm, br):
    with pytest.raises(TimeoutError, match="after 250 ms"):
        Shuffler(comm, 0, 1, br).wait_on(0, timeout=0.25)


def test_all_partitions_are_finished_at_once(comm, br):
    shuffler = Shuffler(comm, 0, 3, br)
    shuffler.insert_finished(1)
    shuffler.insert_finished()
    assert {shuffler.wait_any(timeout=WAIT) for _ in range(3)} == {0, 1, 2}
    with pytest.raises(IndexError):
        shuffler.wait_any(timeout=WAIT)


def test_chunks_are_taken(comm, br):
    shuffler = Shuffler(comm, 0, 1, br)
    chunk = packed("x", br)
    shuffler.insert_chunks({0: chunk})
    with pytest.raises(ValueError, match="taken"):
        shuffler.insert_chunks({0: chunk})


@pytest.mark.parametrize(
    ("chunks", "error"), [({7: b"x"}, IndexError), ({-1: b"x"}, IndexError), ({0: None}, TypeError)]
)
def test_bad_chunks_take_nothing(comm, br, chunks, error):
    shuffler = Shuffler(comm, 0, 2, br)
    good = packed("good", br)
    bad = {pid: data and PackedData.from_host_bytes(data, br) for pid, data in chunks.items()}
    with pytest.raises(error):
        shuffler.insert_chunks({1: good, **bad})
    assert good.to_host_bytes() == b"good"


def test_insert_after_finish(comm, br):
    shuffler = Shuffler(comm, 0, 2, br)
    shuffler.insert_finished(0)
    with pytest.raises(RuntimeError):
        shuffler.insert_chunks({0: packed("x", br)})
    with pytest.raises(RuntimeError):
        shuffler.insert_finished(0)


def test_finish_of_a_partition_that_is_not_there(comm, br):
    for pids in (2, [0, 5], -1):
        with pytest.raises(IndexError):
            Shuffler(comm, 0, 2, br).insert_finished(pids)


def test_operation_id_is_used_once_at_a_time(comm, br):
    first = Shuffler(comm, 9, 1, br)
    with pytest.raises(ValueError, match="9"):
        Shuffler(comm, 9, 1, br)
    del first
    Shuffler(comm, 9, 1, br)


@pytest.mark.parametrize("op_id", [-1, Shuffler.max_concurrent_shuffles])
def test_operation_id_out_of_range(comm, br, op_id):
    with pytest.raises(ValueError, match="op"):
        Shuffler(comm, op_id, 1, br)


def test_no_partitions(comm, br):
    with pytest.raises(ValueError, match="partition"):
        Shuffler(comm, 0, 0, br)


def test_partition_of_another_rank(br):
    comms = loopback.new_cluster(2)
    with pytest.raises(ValueError, match="rank"):
        Shuffler(comms[0], 0, 2, br).wait_on(1, timeout=WAIT)


def test_properties(comm, br):
    shuffler = Shuffler(comm, 0, 3, br)
    assert shuffler.comm is comm
    assert shuffler.total_num_partitions == 3
    assert not shuffler.finished()


def test_shutdown(comm, br):
    shuffler = Shuffler(comm, 0, 1, br)
    shuffler.insert_finished()
    for _ in range(2):
        shuffler.shutdown(timeout=WAIT)
    with pytest.raises(RuntimeError, match="shut down"):
        shuffler.extract(0)
    Shuffler(comm, 0, 1, br)  # the id is free again


def test_shutdown_ends_the_waits_of_other_threads(comm, br):
    shuffler = Shuffler(comm, 0, 1, br)
    errors = []

    def wait():
        try:
            shuffler.wait_any(timeout=WAIT)
        except RuntimeError as error:
            errors.append(str(error))

    waiting = threading.Thread(target=wait)
    waiting.start()
    shuffler.shutdown(timeout=WAIT)
    waiting.join(WAIT)
    assert "shut down" in errors[0]


def test_waits_let_other_threads_run(comm, br):
    shuffler = Shuffler(comm, 0, 1, br)
    waiting = threading.Thread(target=lambda: shuffler.wait_on(0, timeout=WAIT))
    waiting.start()
    shuffler.insert_finished()
    waiting.join(WAIT)
    assert not waiting.is_alive()


def test_death_of_a_rank_ends_the_waits_of_the_others():
    br = BufferResource()
    ready = threading.Barrier(3)

    def work(comm):
        shuffler = Shuffler(comm, 0, 3, br)
        if comm.rank != 1:
            shuffler.insert_finished()
        ready.wait(WAIT)
        if comm.rank == 1:
            comm.abort("as planned")
            return None
        with pytest.raises(RankFailedError, match="as planned") as error:
            shuffler.wait_any(timeout=WAIT)
        return error.value.rank

    assert on_ranks(3, work) == [1, None, 1]


@pytest.mark.parametrize("dies_after", [0, 1, 3, 10])
def test_death_in_the_middle_of_messages(dies_after):
    br = BufferResource()
    options = Options(
        {"exchange_frame_bytes": "64", "exchange_gather_limit": "8", "exchange_eager_bytes": "64"}
    )

    def work(comm):
        # How many messages one shuffle takes depends on what is gathered: shuffle until the rank has died.
        try:
            for op_id in range(100):
                shuffler = Shuffler(comm, op_id, 6, br, options=options)
                for turn in range(20):
                    shuffler.insert_chunks({pid: packed("x" * 50 + str(turn), br) for pid in range(6)})
                shuffler.insert_finished()
                while not shuffler.finished():
                    shuffler.extract(shuffler.wait_any(timeout=WAIT))
                shuffler.shutdown()
        except RankFailedError as error:
            return error.rank
        return None

    survivors = on_ranks(
        3, work, seed=dies_after, delay_probability=0.3, dying_rank=2, dies_after=dies_after
    )[:2]
    assert survivors == [2, 2]


@pytest.mark.skipif(get_device_name() != "cpu", reason="host memory is the device's only where that is a CPU")
def test_a_full_disk_fails_a_shuffle_and_not_the_next(comm):
    # Less memory than the process takes: all that waits is spilled.
    br = BufferResource.from_options(
        None, Options({"spill_device_limit": "1 MiB", "spill_disk_limit": "64 KiB"})
    )

    def shuffle(frame):
        shuffler = Shuffler(comm, 0, 1, br)
        shuffler.insert_chunks({0: table.pack(frame, br)})
        shuffler.insert_finished(0)
        shuffler.wait_on(0, timeout=WAIT)
        got = pl.DataFrame(table.unpack_and_concat(shuffler.extract(0), br))
        shuffler.shutdown(timeout=WAIT)
        return got

    with pytest.raises(SpillError, match="Raise spill_disk_limit"):
        shuffle(pl.DataFrame({"a": range(100_000)}))
    small = pl.DataFrame({"a": range(1000)})
    assert shuffle(small).equals(small)


@pytest.mark.skipif(get_device_name() != "cpu", reason="host memory is the device's only where that is a CPU")
def test_spill_frees_device_memory(comm):
    br = BufferResource()
    frame = pl.DataFrame({"a": range(20_000)})
    shuffler = Shuffler(comm, 1, 2, br)
    shuffler.insert_chunks(table.partition_and_pack(frame, ["a"], 2, br))
    with pytest.raises(ValueError, match="must not be negative"):
        shuffler.spill(-1)
    assert shuffler.spill(0) == 0
    assert shuffler.spill(1) > 0
    shuffler.spill()
    assert shuffler.spill() == 0  # there is no more
    shuffler.insert_finished()
    parts = [
        pl.DataFrame(table.unpack_and_concat(shuffler.extract(shuffler.wait_any(timeout=WAIT)), br))
        for _ in range(2)
    ]
    assert pl.concat(parts).sort("a").equals(frame)
    shuffler.shutdown(timeout=WAIT)
    with pytest.raises(RuntimeError, match="shut down"):
        shuffler.spill()
