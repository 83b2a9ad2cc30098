"""DaskEngine: every way that Polars calls an engine, on a cluster of two worker processes, and its lifetime."""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import signal
import sys
import threading
import warnings
from datetime import date, datetime, timedelta

import dask
import polars as pl
import pytest
from polars.testing import assert_frame_equal
from rapidsmpf.integrations.dask_workers import WorkerCalls

from cudf_polars.engine import sealed
from cudf_polars.engine.dask import DaskEngine
from cudf_polars.engine.hardware_binding import HardwareBindingPolicy
from cudf_polars.engine.options import StreamingOptions
from cudf_polars.engine.sealed import SealError
from cudf_polars.lower import FallbackWarning
from support.cluster_queries import ANSWER, FRAME, ROWS, check_explain_of_two_ranks, totals
from support.dask_cluster import local_client, start_dask_cluster


@pytest.fixture(scope="module")
def client():
    with start_dask_cluster() as client:
        yield client


@pytest.fixture(scope="module")
def engine(client):
    with DaskEngine(dask_client=client) as engine:
        yield engine


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("table") / "t.parquet"
    FRAME.write_parquet(path, row_group_size=100)
    return path


# -- answers ----------------------------------------------------------------------------------------------------


def test_collect_returns_the_whole_answer(engine, table):
    assert engine.nranks == 2
    assert_frame_equal(totals(pl.scan_parquet(table)).collect(engine=engine), ANSWER)


def test_rows_come_in_rank_order(engine, table):
    assert_frame_equal(
        pl.scan_parquet(table).filter(pl.col("k") > 2).collect(engine=engine), FRAME.filter(pl.col("k") > 2)
    )


def test_in_memory_frames_are_split_once(engine):
    assert_frame_equal(FRAME.lazy().collect(engine=engine), FRAME)
    assert_frame_equal(totals(FRAME.lazy()).collect(engine=engine), ANSWER)
    assert FRAME.lazy().select(pl.len()).collect(engine=engine).item() == ROWS


def test_in_memory_frames_meet_files(engine, table):
    names = pl.DataFrame({"k": [1, 3, 5], "name": ["one", "three", "five"]})
    query = (
        pl.scan_parquet(table).join(names.lazy(), on="k").group_by("name").agg(pl.col("v").max()).sort("name")
    )
    assert_frame_equal(query.collect(engine=engine), query.collect())


def test_a_frame_used_twice(engine):
    lf = FRAME.lazy()
    query = lf.join(lf.group_by("k").agg(pl.col("v").mean().alias("mean")), on="k").sort("v")
    assert_frame_equal(query.collect(engine=engine), query.collect(), check_column_order=True)


def test_a_constant_is_counted_once(engine):
    query = pl.select(pl.lit(1).alias("one")).lazy()
    assert_frame_equal(query.collect(engine=engine), pl.DataFrame({"one": pl.Series([1], dtype=pl.Int32)}))


def test_every_type_reaches_the_client(engine):
    frame = pl.DataFrame(
        {
            "enum": pl.Series(["a", "b", None], dtype=pl.Enum(["b", "a"])),
            "cat": pl.Series(["x", None, "y"], dtype=pl.Categorical),
            "dec": pl.Series(["1.50", None, "2.25"]).cast(pl.Decimal(10, 2)),
            "i128": pl.Series([2**100, None, -1], dtype=pl.Int128),
            "list": [[1, 2], None, []],
            "struct": [{"a": 1, "b": "x"}, {"a": None, "b": "y"}, None],
            "array": pl.Series([[1, 2], [3, 4], None], dtype=pl.Array(pl.Int8, 2)),
            "date": [date(2020, 1, 1), None, date(1969, 1, 1)],
            "time": pl.Series([datetime(2020, 1, 1, 1, 2, 3), None, None], dtype=pl.Datetime("ns", "UTC")),
            "span": [timedelta(microseconds=1), None, timedelta(days=1)],
            "binary": [b"\x00", b"", None],
            "null": pl.Series([None, None, None], dtype=pl.Null),
        }
    )
    assert_frame_equal(frame.lazy().collect(engine=engine), frame)
    assert frame.lazy().head(0).collect(engine=engine).schema == frame.schema


def test_functions_of_the_script_run_on_the_workers(engine, table):
    query = pl.scan_parquet(table).with_columns(
        pl.col("v").map_batches(lambda s: s * 0 + os.getpid(), return_dtype=pl.Float64, is_elementwise=True)
    )
    pids = set(query.collect(engine=engine)["v"].to_list())
    assert pids == {float(info.pid) for info in engine.gather_cluster_info()}


# -- the ways that Polars calls an engine ---------------------------------------------------------------------------


def test_every_kind_of_collect(engine, table):
    query = totals(pl.scan_parquet(table))
    assert_frame_equal(query.collect(engine=engine, background=True).fetch_blocking(), ANSWER)
    assert_frame_equal(pl.concat(query.collect_batches(engine=engine, chunk_size=3)), ANSWER)
    first, second = pl.collect_all([query, query.head(2)], engine=engine)
    assert_frame_equal(first, ANSWER)
    assert_frame_equal(second, ANSWER.head(2))
    assert "read more than once" in engine.last_query.explain()  # what both have in common ran once

    async def run():
        return await query.collect_async(engine=engine)

    assert_frame_equal(asyncio.run(run()), ANSWER)
    assert_frame_equal(query.execute(engine=engine).lazy().collect(), ANSWER)


@pytest.mark.parametrize("kind", ["parquet", "csv", "ipc", "ndjson"])
def test_sinks_write_on_the_workers(engine, table, tmp_path, monkeypatch, kind):
    monkeypatch.chdir(tmp_path)  # the workers are elsewhere
    getattr(pl.scan_parquet(table), f"sink_{kind}")("out", engine=engine)
    written = sorted((tmp_path / "out").iterdir())
    assert [path.name for path in written] == [f"part.0000{rank}.{kind}" for rank in range(2)]
    back = pl.concat(getattr(pl, f"scan_{kind}")(path) for path in written).collect()
    assert_frame_equal(back, FRAME)


def test_file_objects_are_written_by_the_client(engine, table, tmp_path):
    with (tmp_path / "out.parquet").open("wb") as file:
        pl.scan_parquet(table).sink_parquet(file, engine=engine)
    assert_frame_equal(pl.read_parquet(tmp_path / "out.parquet"), FRAME)


def test_failed_sink_leaves_nothing(engine, table, tmp_path):
    bad = pl.scan_parquet(table).with_columns(pl.col("s").cast(pl.Int64))
    with pytest.raises(pl.exceptions.InvalidOperationError):
        bad.sink_parquet(tmp_path / "out", engine=engine)
    assert list(tmp_path.iterdir()) == []


# -- errors, warnings and logs --------------------------------------------------------------------------------------


class Mine(Exception):
    pass


def test_errors_have_their_own_types_and_name_the_rank(engine, table):
    def fail(column):
        raise_if = column.max() > ROWS - 2  # only the last rows, on the last rank
        if raise_if:
            raise Mine("of the script")
        return column

    query = pl.scan_parquet(table).select(pl.col("v").map_batches(fail, is_elementwise=True))
    with pytest.raises((Mine, pl.exceptions.ComputeError), match="of the script") as caught:
        query.collect(engine=engine)
    assert any("rank 1, worker tls://" in note for note in caught.value.__notes__)
    with pytest.raises(pl.exceptions.ColumnNotFoundError):
        pl.scan_parquet(table).select("nothing").collect(engine=engine)
    with pytest.raises(FileNotFoundError):
        pl.scan_parquet(table.parent / "nothing.parquet").collect(engine=engine)
    assert_frame_equal(totals(pl.scan_parquet(table)).collect(engine=engine), ANSWER)


def test_warnings_reach_the_client(engine, table):
    def warn(column):
        if column.min() == 0:
            warnings.warn("first rows", RuntimeWarning, stacklevel=1)
        return column

    query = pl.scan_parquet(table).select(
        pl.col("v").map_batches(warn, return_dtype=pl.Float64, is_elementwise=True)
    )
    with pytest.warns(RuntimeWarning, match=r"first rows \(on rank 0, worker tls://"):
        query.collect(engine=engine)
    with pytest.warns(FallbackWarning, match="not fully distributed") as caught:
        pl.scan_parquet(table).select(pl.col("v").ewm_mean(alpha=0.5)).collect(engine=engine)
    assert len([w for w in caught if w.category is FallbackWarning]) == 1
    assert caught[0].filename == __file__


def test_log_records_reach_the_client(engine, table, caplog):
    def log(column):
        logging.getLogger("cudf_polars.mine").warning("a batch of %s", "rows")
        return column

    query = pl.scan_parquet(table).select(
        pl.col("v").map_batches(log, return_dtype=pl.Float64, is_elementwise=True)
    )
    with caplog.at_level(logging.WARNING):
        query.collect(engine=engine)
    said = {
        record.getMessage().partition(":")[0]
        for record in caplog.records
        if record.name == "cudf_polars.mine"
    }
    assert said == {"rank 0, worker tls", "rank 1, worker tls"}


def test_what_cannot_be_sent_is_said(engine):
    lock = threading.Lock()
    query = FRAME.lazy().select(pl.col("v").map_batches(lambda s: (lock, s)[1], return_dtype=pl.Float64))
    with pytest.raises(TypeError, match="cannot be sent"):
        query.collect(engine=engine)


def test_a_query_of_other_versions_is_refused_and_the_next_works(engine, table, monkeypatch):
    for query in (pl.scan_parquet(table), FRAME.lazy()):
        with monkeypatch.context() as client_elsewhere:
            client_elsewhere.setattr(sealed, "versions", lambda: "Python 3.99, Polars 9.8.7, riverrun 7")
            with pytest.raises(SealError, match=r"Polars 9\.8\.7.*install the same on both"):
                query.collect(engine=engine)
        assert_frame_equal(totals(query).collect(engine=engine), ANSWER)


# -- information and lifetime ---------------------------------------------------------------------------------------


def test_cluster_info_names_every_worker(engine, client):
    infos = engine.gather_cluster_info()
    workers = client.nthreads()
    assert len({info["pid"] for info in infos} | {info.pid for info in infos}) == len(workers) == 2
    assert all(info["hostname"] == info.hostname for info in infos)


def test_what_clients_fetch_beside_does_not_matter(client):
    """Clients fetch what the scheduler says of itself, without the workers, from time to time."""
    with (
        dask.config.set({"distributed.client.scheduler-info-interval": "1ms"}),
        local_client(client) as busy,
    ):
        calls = WorkerCalls(busy)
        assert all(len(calls.addresses()) == 2 for _ in range(300))


def test_the_last_query_is_explained_with_the_numbers_of_all_ranks(engine, table, tmp_path):
    check_explain_of_two_ranks(engine, table, tmp_path)


def test_statistics_of_all_ranks(client, table):
    with DaskEngine.from_options(StreamingOptions(statistics=True), dask_client=client) as engine:
        totals(pl.scan_parquet(table)).collect(engine=engine)
        each = engine.gather_statistics(clear=True)
        assert len(each) == 2
        assert all(stats.list_stat_names() for stats in each)
        # The progress thread goes on; what the query did is no longer there.
        left = set(engine.global_statistics().list_stat_names())
        assert left < set(each[0].list_stat_names())


def test_options_reach_the_workers(client, table):
    options = StreamingOptions(fallback_mode="raise", hardware_binding=HardwareBindingPolicy(enabled=False))
    with DaskEngine.from_options(options, dask_client=client) as engine:
        with pytest.raises(NotImplementedError, match="fallback_mode"):
            pl.scan_parquet(table).select(pl.col("v").ewm_mean(alpha=0.5)).collect(engine=engine)
        assert_frame_equal(totals(pl.scan_parquet(table)).collect(engine=engine), ANSWER)


def test_options_of_the_library_reach_the_workers(client, tmp_path):
    def threads(dask_worker):
        hosts = dask_worker.plugins["cudf-polars-ranks"].hosts.values()
        return [host._rank.context.num_streaming_threads for host in hosts]

    options = StreamingOptions(memory_limit=300_000_000, spill_directory=tmp_path, bootstrap_timeout=60)
    with DaskEngine.from_options(options, dask_client=client) as engine:
        assert {info.device_memory for info in engine.gather_cluster_info()} == {300_000_000}
        ours = [each[-1] for each in client.run(threads).values()]
        assert ours == [engine.options.get("num_streaming_threads")] * 2 == [4, 4]
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(
        ValueError, match=r"option spill_directory: .*spill_directory: given in rapidsmpf_options"
    ):
        DaskEngine(dask_client=client, rapidsmpf_options={"spill_directory": tmp_path / "file" / "spill"})
    with pytest.raises(TypeError, match="did you mean spill_directory"):
        DaskEngine(dask_client=client, rapidsmpf_options={"spil_directory": tmp_path})


def ranks_of_workers(client):
    def count(dask_worker):
        plugin = dask_worker.plugins.get("cudf-polars-ranks")
        return 0 if plugin is None else len(plugin.hosts)

    return list(client.run(count).values())


def test_shutdown_leaves_the_cluster_alone(client, table):
    before = ranks_of_workers(client)
    engine = DaskEngine(dask_client=client)
    assert ranks_of_workers(client) == [n + 1 for n in before]
    engine.shutdown()
    engine.shutdown()
    assert ranks_of_workers(client) == before
    with pytest.raises(RuntimeError, match="shutdown"):
        totals(pl.scan_parquet(table)).collect(engine=engine)
    assert client.submit(lambda: 41 + 1).result() == 42


def test_engines_that_fail_to_start_leave_nothing(client):
    before = ranks_of_workers(client)
    with pytest.raises(ValueError, match="spill_device_limit"):
        DaskEngine(dask_client=client, rapidsmpf_options={"spill_device_limit": "a lot"})
    assert ranks_of_workers(client) == before


def test_wrong_arguments(client):
    with pytest.raises(TypeError, match="reserved keys"):
        DaskEngine(dask_client=client, executor_options={"dask_context": 1})
    with pytest.raises(TypeError, match="no_such"):
        DaskEngine(dask_client=client, executor_options={"no_such": 1})
    with pytest.raises(ValueError, match="n_workers"):
        DaskEngine(dask_client=client, n_workers=2)
    with pytest.raises(ValueError, match="at least 1"):
        DaskEngine(n_workers=0)


def test_a_cluster_without_workers():
    with start_dask_cluster(0) as client, pytest.raises(RuntimeError, match="no workers"):
        DaskEngine(dask_client=client)


def test_refused_inside_rrun(monkeypatch):
    monkeypatch.setenv("RRUN_RANK", "0")
    monkeypatch.setenv("RRUN_SOCKET_ADDR", "127.0.0.1:1")
    with pytest.raises(RuntimeError, match="rrun cluster"):
        DaskEngine()


@pytest.mark.parametrize(
    ("module", "library", "packages"),
    [("dask", "distributed", "dask distributed"), ("ray", "ray", "ray")],
    ids=["dask", "ray"],
)
def test_what_to_install_is_said(monkeypatch, module, library, packages):
    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.delitem(sys.modules, f"cudf_polars.engine.{module}", raising=False)
    with pytest.raises(ImportError, match=f"pip install {packages}$"):
        importlib.import_module(f"cudf_polars.engine.{module}")


# -- at the same time -----------------------------------------------------------------------------------------------


def test_two_clients_and_two_threads(client, table):
    """Four queries run at once, by two engines of two clients."""
    failures: list[BaseException] = []

    def work(engine, k):
        query = pl.scan_parquet(table).filter(pl.col("k") == k).select(pl.col("v").sum())
        expected = query.collect().item()
        try:
            for _ in range(5):
                assert query.collect(engine=engine).item() == expected
        except BaseException as error:
            failures.append(error)

    with (
        local_client(client) as other,
        DaskEngine(dask_client=client) as first,
        DaskEngine(dask_client=other) as second,
    ):
        threads = [
            threading.Thread(target=work, args=(engine, k)) for engine in (first, second) for k in (1, 2)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert failures == []


def test_workers_answer_while_a_query_runs(client, table, tmp_path):
    """The query waits for the client to open a pipe, which it does only once the workers' event loops have answered."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)

    def wait(column):
        with gate.open("rb"):  # waits for someone who writes
            return column

    query = pl.scan_parquet(table).select(
        pl.col("v").map_batches(wait, return_dtype=pl.Float64, is_elementwise=True).sum()
    )
    with DaskEngine(dask_client=client) as engine:
        running = query.collect(engine=engine, background=True)
        assert len(client.run(os.getpid)) == 2
        assert running.fetch() is None
        with gate.open("r+b", buffering=0):
            assert running.fetch_blocking().item() == FRAME["v"].sum()


def test_an_interrupted_query_is_given_up(client, table, tmp_path):
    gate = tmp_path / "gate"
    os.mkfifo(gate)

    def wait(column):
        with gate.open("rb"):  # waits for someone who writes
            return column

    rows = pl.scan_parquet(table).with_columns(
        pl.col("v").map_batches(wait, return_dtype=pl.Float64, is_elementwise=True)
    )

    def interrupted_query(engine):
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        totals(rows).collect(engine=engine)

    # By a signal of its own, so that a slow machine cannot stop the test run.
    former = signal.signal(signal.SIGALRM, signal.default_int_handler)
    with DaskEngine(dask_client=client) as engine:
        try:
            with pytest.raises(KeyboardInterrupt):
                interrupted_query(engine)
        finally:
            signal.signal(signal.SIGALRM, former)
        with gate.open("r+b", buffering=0):
            # The ranks come to the end of what they were doing, and go on.
            assert_frame_equal(totals(pl.scan_parquet(table)).collect(engine=engine), ANSWER)
