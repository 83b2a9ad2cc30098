"""``collect_batches`` gives rows while they are made, on every engine, and may be left early."""

from __future__ import annotations

import gc
import threading

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from cudf_polars.engine.spmd import SPMDEngine
from support.ranks import run_ranks

ROWS = 400_000
SECONDS = 60
"""Guards against hangs only."""


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("batches") / "t.parquet"
    frame = pl.DataFrame({"k": range(ROWS), "v": [i * 7 % 1000 for i in range(ROWS)]})
    frame.write_parquet(path, row_group_size=20_000)
    return path


def one_rank():
    return SPMDEngine()


def one_rank_in_partitions():
    return SPMDEngine(executor_options={"target_partition_size": 400_000})


def dask_engine():
    from cudf_polars.engine.dask import DaskEngine

    return DaskEngine(n_workers=2)


def ray_engine():
    pytest.importorskip("ray")
    from cudf_polars.engine.ray import RayEngine

    return RayEngine(num_ranks=2, ray_init_options={"include_dashboard": False, "log_to_driver": False})


MAKERS = [one_rank, one_rank_in_partitions, dask_engine, ray_engine]


@pytest.fixture(scope="module", params=MAKERS, ids=lambda make: make.__name__)
def engine(request):
    with request.param() as engine:
        yield engine


def queries(table):
    rows = pl.scan_parquet(table)
    yield rows.filter(pl.col("v") < 500)
    yield rows.sort("v", "k", descending=[True, False])
    yield rows.join(rows.select("k", w=pl.col("v") * 2), on="k").sort("k")
    yield rows.filter(pl.col("v") < 0)
    yield rows.select(pl.sum("v"))


def test_batches_are_the_answer_in_its_order(engine, table):
    for query in queries(table):
        expected = query.collect(engine="streaming")
        batches = list(query.collect_batches(engine=engine, chunk_size=50_000))
        assert max((batch.height for batch in batches), default=0) <= 50_000
        assert_frame_equal(pl.concat([expected.clear(), *batches]), expected)


def test_batches_in_any_order(engine, table):
    query = pl.scan_parquet(table)
    batches = query.collect_batches(engine=engine, maintain_order=False, lazy=True)
    assert_frame_equal(pl.concat(batches), query.collect(), check_row_order=False)


def test_other_queries_run_while_batches_are_read(engine, table):
    query = pl.scan_parquet(table).sort("v", "k")
    heights = []
    for batch in query.collect_batches(engine=engine, chunk_size=100_000):
        heights.append(batch.height)
        assert pl.scan_parquet(table).select(pl.len()).collect(engine=engine).item() == ROWS
    assert sum(heights) == ROWS


def test_batches_may_be_left_early(engine, table):
    query = pl.scan_parquet(table).sort("v", "k")
    expected = query.head(10).collect()
    for _ in range(3):
        first = next(query.collect_batches(engine=engine, chunk_size=10))
        gc.collect()
        assert_frame_equal(first.head(10), expected)
        assert pl.scan_parquet(table).select(pl.len()).collect(engine=engine).item() == ROWS


def test_an_error_of_the_last_step_comes_with_its_type(engine, table):
    query = (
        pl.scan_parquet(table)
        .select(pl.col("k").cast(pl.String) + "x")
        .with_columns(pl.when(pl.col("k") == f"{ROWS - 1}x").then(pl.col("k").cast(pl.Int64)).otherwise(0))
    )
    with pytest.raises(pl.exceptions.InvalidOperationError):
        list(query.collect_batches(engine=engine))
    assert pl.scan_parquet(table).select(pl.len()).collect(engine=engine).item() == ROWS


def test_a_wrong_query_fails_at_once_unless_it_is_lazy(engine, table):
    query = pl.scan_parquet(table).select("nothing")
    with pytest.raises(pl.exceptions.ColumnNotFoundError):
        query.collect_batches(engine=engine)
    lazy = query.collect_batches(engine=engine, lazy=True)
    with pytest.raises(pl.exceptions.ColumnNotFoundError):
        next(lazy)


def test_batches_are_an_arrow_stream(engine, table):
    query = pl.scan_parquet(table).sort("v", "k")
    assert_frame_equal(pl.DataFrame(query.collect_batches(engine=engine)), query.collect())


@pytest.mark.parametrize("make", [one_rank_in_partitions, dask_engine])
def test_what_an_engine_that_is_shut_down_leaves_open_says_so(make, table):
    with make() as engine:
        batches = pl.scan_parquet(table).sort("v", "k").collect_batches(engine=engine, chunk_size=1000)
        assert next(batches).height <= 1000
    with pytest.raises(RuntimeError, match="was shut down before"):
        next(batches)


@pytest.mark.parametrize("make", [one_rank, one_rank_in_partitions])
def test_rows_wait_until_they_are_asked_for(make, table):
    """Most rows have not been made when the first have been read, and are not where the batches are left."""
    made, lock = 0, threading.Lock()

    def count(column: pl.Series) -> pl.Series:
        nonlocal made
        with lock:
            made += len(column)
        return column

    query = (
        pl.scan_parquet(table)
        .sort("v", "k")
        .with_columns(pl.col("v").map_batches(count, return_dtype=pl.Int64, is_elementwise=True))
    )
    with pl.Config() as config, make() as engine:
        config.set_streaming_chunk_size(2000)
        batches = query.collect_batches(engine=engine, chunk_size=2000)
        assert next(batches).height
        assert made < ROWS / 2
        del batches
        gc.collect()
        assert pl.scan_parquet(table).select(pl.len()).collect(engine=engine).item() == ROWS
    assert made < ROWS / 2


def test_one_rank_of_several_may_leave_early(table):
    run_ranks(
        2,
        """
import sys
import polars as pl
from cudf_polars.engine.spmd import SPMDEngine
with SPMDEngine(executor_options={"target_partition_size": 400_000}) as engine:
    rows = pl.scan_parquet(sys.argv[1])
    query = rows.sort("v", "k")
    for leaver in (0, 1):
        heights = []
        for batch in query.collect_batches(engine=engine, chunk_size=1000):
            heights.append(batch.height)
            if engine.rank == leaver:
                break
        assert engine.rank == leaver or sum(heights) > 100_000, heights
        assert sum(heights) > 0
        assert rows.group_by("v").len().collect(engine=engine).height <= 1000
    left_open = query.collect_batches(engine=engine)
    next(left_open)
    assert rows.group_by("v").len().collect(engine=engine).height <= 1000
""",
        str(table),
    )
