"""SPMDEngine where ranks are threads of one process, and several engines of a rank that are used from its threads."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from rapidsmpf.communicator import loopback
from rapidsmpf.communicator.communicator import Communicator
from rapidsmpf.memory.buffer import MemoryType

from cudf_polars.engine.spmd import SPMDEngine, allgather_polars_dataframe
from cudf_polars.execute.errors import QueryMismatchError
from cudf_polars.streaming.actor_graph.collectives.common import reserve_op_id
from support.cluster import on_ranks

# Everything is exchanged, however small.
SHUFFLING = {"broadcast_limit": 1}


def part(rank: int, salt: int = 0) -> pl.LazyFrame:
    rows = range(rank * 1000, (rank + 1) * 1000)
    return pl.LazyFrame({"k": [(i * 7 + salt) % 97 for i in rows], "v": [i + salt for i in rows]})


def sums(frame: pl.LazyFrame) -> pl.LazyFrame:
    return frame.group_by("k").agg(pl.sum("v"), n=pl.len()).sort("k")


def whole(nranks: int, salt: int = 0) -> pl.DataFrame:
    return sums(pl.concat([part(rank, salt) for rank in range(nranks)])).collect()


def gathered(engine: SPMDEngine, query: pl.LazyFrame) -> pl.DataFrame:
    local = query.collect(engine=engine)
    with reserve_op_id(comm=engine.comm) as op_id:
        return allgather_polars_dataframe(engine=engine, local_df=local, op_id=op_id)


@pytest.mark.parametrize("nranks", [1, 2, 3, 5])
def test_ranks_are_threads(nranks):
    def work(comm: Communicator) -> None:
        with SPMDEngine(comm=comm, executor_options=SHUFFLING) as engine:
            assert engine.nranks == nranks
            mine = part(engine.rank)
            for _ in range(3):
                assert_frame_equal(gathered(engine, sums(mine)), whole(nranks))
            other = mine.select("k", w=pl.col("v") * 2)
            joined = gathered(engine, mine.join(other, on="k").select(pl.len(), pl.sum("w")))
            everything = pl.concat([part(rank) for rank in range(nranks)])
            expected = everything.join(everything.select("k", w=pl.col("v") * 2), on="k")
            assert_frame_equal(joined, expected.select(pl.len(), pl.sum("w")).collect())

    on_ranks(nranks, work)


def test_engines_follow_each_other_on_a_communicator():
    def work(comm: Communicator) -> None:
        for _ in range(10):
            with SPMDEngine(comm=comm) as engine:
                assert_frame_equal(gathered(engine, sums(part(engine.rank))), whole(2))

    on_ranks(2, work)


def use_at_once(engines: list[SPMDEngine], query: Callable[[int, SPMDEngine], None]) -> None:
    """Run ``query(i, engine)`` for each engine on a thread of its own."""
    with ThreadPoolExecutor(len(engines)) as pool:
        for future in [pool.submit(query, i, engine) for i, engine in enumerate(engines)]:
            future.result(timeout=120)


def test_engines_of_a_rank_on_threads_with_communicators_of_their_own():
    """The threads of the ranks ask for their queries in whatever order they come."""
    clusters = [loopback.new_cluster(2) for _ in range(2)]

    def work(rank: int) -> None:
        engines = [SPMDEngine(comm=cluster[rank]) for cluster in clusters]

        def queries(i: int, engine: SPMDEngine) -> None:
            for n in range(20):
                salt = 100 * i + n
                assert_frame_equal(gathered(engine, sums(part(rank, salt))), whole(2, salt))

        use_at_once(engines, queries)
        for engine in engines:
            engine.shutdown()

    with ThreadPoolExecutor(2) as pool:
        for future in [pool.submit(work, rank) for rank in range(2)]:
            future.result(timeout=120)


def test_engines_of_a_rank_on_threads_share_a_communicator():
    """Rank 0 runs the queries of its first engine before those of its second, rank 1 the other way round."""

    def work(comm: Communicator) -> None:
        engines = [SPMDEngine(comm=comm) for _ in range(2)]
        begun = [threading.Event(), threading.Event()]

        def queries(i: int, engine: SPMDEngine) -> None:
            if i != comm.rank:
                assert begun[comm.rank].wait(60)  # a query of the other engine is on its way
            begun[i].set()
            for n in range(20):
                salt = 100 * i + n
                local = sums(part(comm.rank, salt)).collect(engine=engine)
                transport_id = 100 * i + n  # below those of engines: for collectives made by hand
                answer = allgather_polars_dataframe(engine=engine, local_df=local, op_id=transport_id)
                assert_frame_equal(answer, whole(2, salt))

        use_at_once(engines, queries)
        for engine in engines:
            engine.shutdown()

    on_ranks(2, work)


def test_different_queries_of_an_engine_are_still_a_mismatch():
    def work(comm: Communicator) -> None:
        with SPMDEngine(comm=comm) as engine:
            mine = part(comm.rank)
            query = sums(mine) if comm.rank == 0 else mine.sort("v")
            with pytest.raises(QueryMismatchError):
                query.collect(engine=engine)
            assert_frame_equal(gathered(engine, sums(mine)), whole(2))

    on_ranks(2, work)


def test_a_rank_that_shut_its_engine_down_early():
    """Rank 1 leaves its first engine before the last query; the next one works nevertheless."""

    def work(comm: Communicator) -> None:
        with SPMDEngine(comm=comm) as engine:
            assert_frame_equal(gathered(engine, sums(part(comm.rank))), whole(2))
            if comm.rank == 0:
                # Cannot be read: rank 1 would not have come to it either.
                with pytest.raises(pl.exceptions.ColumnNotFoundError):
                    part(0).select("nothing").collect(engine=engine)
        with SPMDEngine(comm=comm) as engine:
            assert_frame_equal(gathered(engine, sums(part(comm.rank))), whole(2))

    on_ranks(2, work)


def test_ranks_with_other_memory_make_the_same_partitions(tmp_path):
    rows = pl.select(v=pl.int_range(8_000_000)).with_columns(k=pl.col("v") * 7919 % 4_000_037)
    rows.write_parquet(tmp_path / "rows.parquet")
    left = pl.scan_parquet(tmp_path / "rows.parquet")
    query = left.join(left.select("k", w="v"), on="k").select(pl.len(), pl.sum("w"))
    limit = 1 << 30
    with SPMDEngine(rapidsmpf_options={"spill_device_limit": limit}) as engine:
        used = limit - engine.context.br().memory_available(MemoryType.DEVICE)

    def work(comm: Communicator) -> pl.DataFrame:
        # As measured when the engine starts, no two ranks have the same. The rows do not fit into that of rank 0.
        own = {"spill_device_limit": used + ((130 + 60 * comm.rank) << 20)}
        with SPMDEngine(comm=comm, rapidsmpf_options=own, executor_options={"broadcast_limit": 1}) as engine:
            frame = gathered(engine, query)
            assert "partitions of its rows" in engine.last_query.explain()
            return frame

    for frame in on_ranks(3, work):
        assert_frame_equal(frame, query.collect())


def test_ranks_that_would_plan_otherwise_do_not_start():
    def work(comm: Communicator) -> None:
        with pytest.raises(ValueError, match="rank 0 has broadcast_limit=7 and rank 1 has broadcast_limit=8"):
            SPMDEngine(comm=comm, executor_options={"broadcast_limit": 7 + comm.rank})

    on_ranks(2, work)


def test_queries_leave_the_warnings_of_other_threads_alone(monkeypatch):
    """Warning filters are global to the process: a query that changes them loses the warnings of other threads."""
    ended = threading.Event()
    entered = []  # the threads that change the filters
    enter = warnings.catch_warnings.__enter__

    def recorded(self):
        entered.append(threading.current_thread().name)
        return enter(self)

    def work(comm: Communicator) -> None:
        with SPMDEngine(comm=comm, executor_options=SHUFFLING) as engine:
            for salt in range(5):
                mine = part(engine.rank, salt)
                queries = [
                    sums(mine),
                    sums(mine.map_batches(lambda rows: rows, schema=mine.collect_schema())),
                ]
                for query in queries:
                    gathered(engine, query)

    def run() -> None:
        try:
            on_ranks(2, work)
        finally:
            ended.set()

    issued = 0
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        monkeypatch.setattr(warnings.catch_warnings, "__enter__", recorded)
        with ThreadPoolExecutor(1) as pool:
            queries = pool.submit(run)
            while not ended.is_set():
                warnings.warn("of the user's thread", UserWarning, stacklevel=1)
                issued += 1
                time.sleep(1e-4)
            queries.result()
    assert entered == []
    assert sum(str(one.message) == "of the user's thread" for one in caught) == issued
