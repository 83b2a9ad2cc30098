"""Operation ids: those of queries, of engines on one communicator, and of collectives of the user."""

from __future__ import annotations

import gc
import threading

import pytest
from rapidsmpf.communicator import single
from rapidsmpf.config import Options

from cudf_polars.streaming.actor_graph.collectives.common import (
    EPOCH_BITS,
    LANES,
    NODE_BITS,
    CommunicatorOpIds,
    OpIds,
    reserve_op_id,
)

LAST_OF_ENGINES = (1 << (NODE_BITS + EPOCH_BITS - 1)) - 1
OF_THE_LIBRARY = (1 << (NODE_BITS + EPOCH_BITS)) - 1


def engine_on(*ranks: CommunicatorOpIds):
    """Return an engine's operation ids on each of the ranks."""
    offers = [rank.start()[1] for rank in ranks]
    return [rank.take(offers) for rank in ranks]


def test_queries_of_an_engine_never_have_the_same_id():
    (engine,) = engine_on(CommunicatorOpIds())
    ranges = [engine.next().range for _ in range(5000 // 2)]
    assert len(set(ranges)) == len(ranges)
    assert min(first for first, _ in ranges) >= 1 << NODE_BITS  # those below are free for the user
    assert all(last - first == (1 << NODE_BITS) - 1 for first, last in ranges)
    assert max(last for _, last in ranges) <= LAST_OF_ENGINES


def test_numbers_begin_anew_after_the_last():
    (engine,) = engine_on(CommunicatorOpIds())
    ids = [engine.next().id(0) for _ in range(1 << 13)]
    assert min(ids) >= 1 << NODE_BITS
    assert max(ids) <= LAST_OF_ENGINES


def test_numbers_are_named_before_they_are_used_again():
    (engine,) = engine_on(CommunicatorOpIds())
    forgotten: dict[int, int] = {}
    used: dict[int, int] = {}
    for i in range(3 << 12):
        op_ids = engine.next()
        if op_ids.stale is not None:
            first, last = op_ids.stale
            assert not first <= op_ids.id(0) <= last
            forgotten |= dict.fromkeys(range(first, last + 1, 1 << NODE_BITS), i)
        id_of_query = op_ids.id(0)
        if id_of_query in used:  # forgotten since, but not just now: others may be behind
            assert used[id_of_query] + 1000 < forgotten[id_of_query] < i - 1000
        used[id_of_query] = i


def test_too_many_exchanges_is_an_error():
    with pytest.raises(ValueError, match="exchanges"):
        OpIds(1).id(1 << NODE_BITS)


def test_engines_of_a_communicator_never_meet():
    ids = CommunicatorOpIds()
    started = []
    ranges = set()
    for _ in range(LANES):
        op_ids, offer = ids.start()
        ranges.add(op_ids.range)
        started.append(ids.take([offer]))
    ranges |= {engine.next().range for engine in started for _ in range(100)}
    assert len(ranges) == LANES * 101
    assert max(last for _, last in ranges) <= LAST_OF_ENGINES


def test_an_engine_too_many():
    ids = CommunicatorOpIds()
    engines = [engine_on(ids)[0] for _ in range(LANES)]
    with pytest.raises(RuntimeError, match=f"{LANES} engines already"):
        engine_on(ids)
    engines.pop().release()
    engines.append(engine_on(ids)[0])
    # An engine that nobody holds any more has left its lane, too.
    engines.clear()
    gc.collect()
    assert len([engine_on(ids) for _ in range(LANES)]) == LANES


def test_ranks_that_fell_out_of_step_agree_again():
    one, other = CommunicatorOpIds(), CommunicatorOpIds()
    (first, second) = engine_on(one, other)
    first.next()  # a query that the other rank did not begin
    first.release()
    # On the other rank the engine still lives: both have to take another lane.
    (first, third) = engine_on(one, other)
    assert first.next().range == third.next().range
    second.release()
    (fourth, fifth) = engine_on(one, other)
    assert fourth.next().range == fifth.next().range


def test_a_communicator_has_one_numbering():
    one = single.new_communicator(Options())
    other = single.new_communicator(Options())
    assert CommunicatorOpIds.of(one) is CommunicatorOpIds.of(one)
    assert CommunicatorOpIds.of(one) is not CommunicatorOpIds.of(other)


def test_reserving_twice_gives_two_ids():
    with reserve_op_id() as first, reserve_op_id() as second:
        assert first != second


def test_reserved_ids_are_no_ids_of_engines():
    comm = single.new_communicator(Options())
    with reserve_op_id() as of_process, reserve_op_id(comm=comm) as of_communicator:
        assert LAST_OF_ENGINES < of_process < of_communicator < OF_THE_LIBRARY


def test_ranks_that_are_threads_reserve_the_same_ids():
    comms = [single.new_communicator(Options()) for _ in range(3)]
    reserved: dict[int, list[int]] = {}

    def work(rank: int) -> None:
        ids = []
        for _ in range(100):
            with reserve_op_id(comm=comms[rank]) as op_id:
                ids.append(op_id)
        reserved[rank] = ids

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(set(reserved[0])) == 100
    assert reserved[0] == reserved[1] == reserved[2]
