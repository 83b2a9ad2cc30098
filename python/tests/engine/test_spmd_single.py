"""SPMDEngine on one rank: every way that Polars calls an engine, and its lifetime."""

import asyncio
import contextlib
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from rapidsmpf.communicator import single
from rapidsmpf.config import Options
from rapidsmpf.progress_thread import ProgressThread

from cudf_polars.engine import sinks
from cudf_polars.engine.options import StreamingOptions
from cudf_polars.engine.spmd import SPMDEngine, allgather_polars_dataframe
from cudf_polars.streaming.actor_graph.collectives.common import reserve_op_id
from support.cluster import on_ranks

FRAME = pl.DataFrame({"k": [1, 2, 1, 3], "v": [10.0, 20.0, 30.0, None], "s": ["a", "b", None, "d"]})
QUERY = FRAME.lazy().group_by("k").agg(pl.col("v").sum()).sort("k")
ANSWER = QUERY.collect()


@pytest.fixture
def engine():
    with SPMDEngine() as engine:
        yield engine


def test_collect(engine):
    assert_frame_equal(QUERY.collect(engine=engine), ANSWER)


def test_the_last_query_keeps_numbers_and_no_rows(engine):
    QUERY.collect(engine=engine)
    assert engine.last_query.frame.height == 0
    assert "; 3 rows, " in engine.last_query.explain()


def test_a_query_is_explained_before_it_runs(engine, tmp_path):
    assert engine.explain(QUERY) == "One fragment on one rank: the query as Polars runs it."
    assert engine.explain(QUERY, physical=False) == QUERY.explain()
    with pytest.raises(pl.exceptions.ColumnNotFoundError):
        engine.explain(QUERY.select("no such column"))
    options = StreamingOptions(target_partition_size=1000)
    pl.DataFrame({"k": range(10_000)}).write_parquet(tmp_path / "t.parquet")
    with SPMDEngine.from_options(options) as small:
        text = small.explain(pl.scan_parquet(tmp_path / "t.parquet").unique())
        assert text.startswith("On one rank, by Polars")
        assert "partitions of its rows" in text
        assert small.last_query is None
    with pytest.raises(RuntimeError, match="shutdown"):
        small.explain(QUERY)


def test_collect_in_the_background(engine):
    assert_frame_equal(QUERY.collect(engine=engine, background=True).fetch_blocking(), ANSWER)


def test_collect_async(engine):
    async def run():
        return await QUERY.collect_async(engine=engine)

    assert_frame_equal(asyncio.run(run()), ANSWER)


def test_collect_batches(engine):
    batches = list(QUERY.collect_batches(engine=engine, chunk_size=2))
    assert [batch.height for batch in batches] == [2, 1]
    assert_frame_equal(pl.concat(batches), ANSWER)


def test_collect_all(engine):
    first, second = pl.collect_all([QUERY, FRAME.lazy().select(pl.len())], engine=engine)
    assert_frame_equal(first, ANSWER)
    assert second.item() == 4


def test_execute(engine):
    assert_frame_equal(QUERY.execute(engine=engine).lazy().collect(), ANSWER)


@pytest.mark.parametrize("kind", ["parquet", "csv", "ipc", "ndjson"])
def test_sinks_write_the_file_that_polars_writes(tmp_path, kind):
    with SPMDEngine.from_options(StreamingOptions(sink_to_directory=False)) as engine:
        for lf in (QUERY, QUERY.with_columns(pl.col("k") * 2)):  # the second replaces the first
            getattr(lf, f"sink_{kind}")(tmp_path / "new" / f"out.{kind}", engine=engine, mkdir=True)
            getattr(lf, f"sink_{kind}")(tmp_path / f"polars.{kind}")
            written = (tmp_path / "new" / f"out.{kind}").read_bytes()
            assert written == (tmp_path / f"polars.{kind}").read_bytes()
        failing = FRAME.lazy().select(pl.col("s").str.to_integer())
        with pytest.raises(pl.exceptions.PolarsError):
            getattr(failing, f"sink_{kind}")(tmp_path / "new" / f"out.{kind}", engine=engine)
        assert (tmp_path / "new" / f"out.{kind}").read_bytes() == written
        assert [path.name for path in (tmp_path / "new").iterdir()] == [f"out.{kind}"]
        with pytest.raises(IsADirectoryError, match="sink_to_directory"):
            getattr(QUERY, f"sink_{kind}")(tmp_path / "new", engine=engine)


@pytest.mark.parametrize("to_directory", [True, False])
def test_a_late_writer_of_a_failed_sink_leaves_no_file(tmp_path, monkeypatch, to_directory):
    late = []

    def fail(rows, target, extension, **kwargs):
        # As threads of Polars do, which go on when the query that they wrote for has failed.
        late.append(
            lambda: target.write(b"late") if hasattr(target, "write") else Path(target).write_bytes(b"late")
        )
        raise pl.exceptions.ComputeError("no rows")

    monkeypatch.setattr(sinks, "write_rows", fail)
    with SPMDEngine.from_options(StreamingOptions(sink_to_directory=to_directory)) as engine:
        with pytest.raises(pl.exceptions.ComputeError, match="no rows"):
            QUERY.sink_csv(tmp_path / "out.csv", engine=engine)
        with contextlib.suppress(OSError, ValueError):
            late[0]()
    assert list(tmp_path.iterdir()) == []


def test_a_sink_into_no_folder_names_the_file(tmp_path):
    with (
        SPMDEngine.from_options(StreamingOptions(sink_to_directory=False)) as engine,
        pytest.raises(FileNotFoundError, match=r"/none/out\.csv"),
    ):
        QUERY.sink_csv(tmp_path / "none" / "out.csv", engine=engine)


def test_a_sink_into_one_file_compresses(tmp_path):
    with SPMDEngine.from_options(StreamingOptions(sink_to_directory=False)) as engine:
        QUERY.sink_csv(tmp_path / "out.csv.zst", compression="zstd", engine=engine)
    assert_frame_equal(pl.read_csv(tmp_path / "out.csv.zst"), ANSWER)


@pytest.mark.parametrize("kind", ["parquet", "csv", "ipc", "ndjson"])
def test_sinks_write_a_directory(engine, tmp_path, kind):
    target = tmp_path / "out"
    getattr(QUERY, f"sink_{kind}")(target, engine=engine)
    assert [entry.name for entry in target.iterdir()] == [f"part.00000.{kind}"]
    back = getattr(pl, f"scan_{kind}")(target / f"part.00000.{kind}").collect()
    assert_frame_equal(back, ANSWER)


def test_sink_replaces_former_parts(engine, tmp_path):
    target = tmp_path / "out"
    target.mkdir()
    (target / "part.00007.parquet").write_bytes(b"of an earlier run with more ranks")
    QUERY.sink_parquet(target, engine=engine)
    assert_frame_equal(pl.read_parquet(target), ANSWER)


def test_sink_refuses_a_directory_with_other_files(engine, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(FileExistsError, match=r"notes\.txt"):
        QUERY.sink_parquet(tmp_path, engine=engine)


def test_failed_sink_leaves_nothing(engine, tmp_path):
    target = tmp_path / "out"
    bad = FRAME.lazy().with_columns(pl.col("s").cast(pl.Int64))
    with pytest.raises(pl.exceptions.PolarsError):
        bad.sink_parquet(target, engine=engine)
    assert not target.exists()


def test_sink_batches(engine):
    seen = []
    QUERY.sink_batches(seen.append, engine=engine)
    assert_frame_equal(pl.concat(seen), ANSWER)


def test_errors_are_those_of_polars(engine):
    with pytest.raises(pl.exceptions.ColumnNotFoundError):
        FRAME.lazy().select("nothing").collect(engine=engine)
    assert_frame_equal(QUERY.collect(engine=engine), ANSWER)


def test_engine_affinity_does_not_recurse(engine):
    try:
        pl.Config.set_engine_affinity(engine)
        assert_frame_equal(QUERY.collect(), ANSWER)
    finally:
        pl.Config.set_engine_affinity("auto")


def test_properties(engine):
    assert engine.rank == 0
    assert engine.nranks == 1
    assert engine.comm.nranks == 1
    assert engine.context is not None


def test_cluster_info_by_attribute_and_by_subscript(engine):
    (info,) = engine.gather_cluster_info()
    assert info["hostname"] == info.hostname
    assert info["pid"] == info.pid
    assert info["cuda_visible_devices"] == info.cuda_visible_devices
    with pytest.raises(KeyError):
        info["no_such_field"]


def test_statistics_are_empty_unless_switched_on(engine):
    assert [stats.list_stat_names() for stats in engine.gather_statistics()] == [[]]


def test_statistics_are_copies_and_can_be_cleared():
    with SPMDEngine.from_options(StreamingOptions(statistics=True)) as engine:
        engine.context.statistics().add_stat("mine", 2.0)
        before = engine.global_statistics(clear=True)
        assert before.get_stat("mine")["value"] == 2.0
        assert "mine" not in engine.global_statistics().list_stat_names()
    with pytest.raises(RuntimeError, match="shutdown"):
        engine.gather_statistics()


def test_closed_engine_refuses_everything():
    engine = SPMDEngine()
    engine.shutdown()
    engine.shutdown()
    for use in (
        lambda: QUERY.collect(engine=engine),
        lambda: engine.comm,
        lambda: engine.context,
        lambda: engine.gather_cluster_info(),
        lambda: allgather_polars_dataframe(engine=engine, local_df=ANSWER, op_id=1),
    ):
        with pytest.raises(RuntimeError, match="shutdown"):
            use()


def test_communicator_outlives_its_engines():
    comm = single.new_communicator(Options(), ProgressThread())
    for _ in range(2):
        with SPMDEngine(comm=comm) as engine:
            assert_frame_equal(QUERY.collect(engine=engine), ANSWER)
    assert comm.nranks == 1


def test_from_options():
    options = StreamingOptions(num_streaming_threads=2, fallback_mode="silent")
    with SPMDEngine.from_options(options) as engine:
        assert_frame_equal(QUERY.collect(engine=engine), ANSWER)
        assert engine.options.fallback_mode == "silent"


def test_reserved_options():
    with pytest.raises(TypeError, match="reserved keys"):
        SPMDEngine(executor_options={"cluster": "spmd"})
    with pytest.raises(TypeError, match="reserved keys"):
        SPMDEngine(engine_options={"executor": "streaming"})


def test_unknown_option():
    with pytest.raises(TypeError, match="no_such"):
        SPMDEngine(executor_options={"no_such": 1})


@pytest.mark.parametrize("nranks", [1, 3])
def test_gather_gives_every_rank_the_whole_answer(nranks, tmp_path):
    rows = pl.DataFrame({"a": range(10), "b": [str(i) for i in range(10)]})
    rows.write_parquet(tmp_path / "rows.parquet", row_group_size=2)
    query = pl.scan_parquet(tmp_path / "rows.parquet").filter(pl.col("a") > 2)

    def work(comm):
        with SPMDEngine(comm=comm) as engine:
            whole = engine.gather(query.collect(engine=engine))
            empty = engine.gather(rows.clear())
            return whole, empty

    for whole, empty in on_ranks(nranks, work):
        assert_frame_equal(whole, rows.filter(pl.col("a") > 2))
        assert_frame_equal(empty, rows.clear())


def test_gather_after_shutdown(engine):
    engine.shutdown()
    with pytest.raises(RuntimeError, match="shutdown"):
        engine.gather(ANSWER)


def test_allgather_on_one_rank(engine):
    with reserve_op_id() as op_id:
        assert_frame_equal(allgather_polars_dataframe(engine=engine, local_df=ANSWER, op_id=op_id), ANSWER)
