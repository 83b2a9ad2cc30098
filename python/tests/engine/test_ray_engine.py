"""RayEngine on two actors of a Ray of this machine: answers, errors, lifetime, death of an actor."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import warnings

import polars as pl
import pytest
import ray
from polars.testing import assert_frame_equal
from rapidsmpf.error import RankFailedError

from cudf_polars.engine.options import StreamingOptions
from cudf_polars.engine.ray import RayEngine, nodes_with
from cudf_polars.lower import FallbackWarning
from support.cluster_queries import ANSWER, FRAME, check_explain_of_two_ranks, totals
from support.leftovers import wait_for_end


@pytest.fixture(scope="module", autouse=True)
def cluster():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Ray about itself
        ray.init(num_cpus=4, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def engine():
    with RayEngine(num_ranks=2) as engine:
        yield engine


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("table") / "t.parquet"
    FRAME.write_parquet(path, row_group_size=100)
    return path


def test_collect_returns_the_whole_answer(engine, table):
    assert engine.nranks == len(engine.rank_actors) == 2
    assert_frame_equal(totals(pl.scan_parquet(table)).collect(engine=engine), ANSWER)


def test_queries_that_are_collected_together_share_what_they_have_in_common(engine, table):
    query = totals(pl.scan_parquet(table))
    first, second = pl.collect_all([query, query.head(2)], engine=engine)
    assert_frame_equal(first, ANSWER)
    assert_frame_equal(second, ANSWER.head(2))
    assert "read more than once" in engine.last_query.explain()


def test_in_memory_frames_are_split_once(engine):
    assert_frame_equal(FRAME.lazy().collect(engine=engine), FRAME)
    assert_frame_equal(totals(FRAME.lazy()).collect(engine=engine), ANSWER)


def test_sinks_write_on_the_actors(engine, table, tmp_path):
    pl.scan_parquet(table).sink_parquet(tmp_path / "out", engine=engine)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "part.00000.parquet",
        "part.00001.parquet",
    ]
    assert_frame_equal(pl.read_parquet(tmp_path / "out"), FRAME)


def test_the_last_query_is_explained_with_the_numbers_of_all_ranks(engine, table, tmp_path):
    check_explain_of_two_ranks(engine, table, tmp_path)


def test_errors_and_warnings_have_their_own_types(engine, table):
    with pytest.raises(pl.exceptions.ColumnNotFoundError):
        pl.scan_parquet(table).select("nothing").collect(engine=engine)
    with pytest.raises(pl.exceptions.InvalidOperationError) as caught:
        pl.scan_parquet(table).select(pl.col("s").cast(pl.Int64)).collect(engine=engine)
    assert any("Ray actor" in note for note in caught.value.__notes__)
    with pytest.warns(FallbackWarning, match="not fully distributed") as warned:
        pl.scan_parquet(table).select(pl.col("v").ewm_mean(alpha=0.5)).collect(engine=engine)
    assert [w.filename for w in warned if w.category is FallbackWarning] == [__file__]
    assert_frame_equal(totals(pl.scan_parquet(table)).collect(engine=engine), ANSWER)


def test_information(engine):
    infos = engine.gather_cluster_info()
    assert len({info["pid"] for info in infos}) == 2
    assert all(info["hostname"] == info.hostname for info in infos)


def test_options_of_the_library_reach_the_actors(tmp_path):
    options = StreamingOptions(
        memory_limit=300_000_000, spill_directory=tmp_path, hardware_binding={"cpu": False}
    )
    with RayEngine.from_options(options, num_ranks=2) as engine:
        assert {info.device_memory for info in engine.gather_cluster_info()} == {300_000_000}
    (tmp_path / "file").write_text("no folder")
    given = {"spill_directory": tmp_path / "file" / "spill"}
    with pytest.raises(
        ValueError, match=r"option spill_directory: .*spill_directory: given in rapidsmpf_options"
    ):
        RayEngine(num_ranks=2, rapidsmpf_options=given)


def test_two_threads(engine, table):
    answers: dict[int, float] = {}

    def work(k):
        query = pl.scan_parquet(table).filter(pl.col("k") == k).select(pl.col("v").sum())
        answers[k] = query.collect(engine=engine).item()

    threads = [threading.Thread(target=work, args=(k,)) for k in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == {k: FRAME.filter(pl.col("k") == k)["v"].sum() for k in (1, 2)}


def test_actor_is_killed_in_the_middle_of_a_query(table):
    options = StreamingOptions(fallback_mode="silent")
    with RayEngine.from_options(options, num_ranks=2) as engine:
        victim = engine.gather_cluster_info()[1].pid

        def end(column):
            if os.getpid() == victim:
                os.kill(victim, signal.SIGKILL)
            return column

        rows = pl.scan_parquet(table).with_columns(
            pl.col("v").map_batches(end, return_dtype=pl.Float64, is_elementwise=True)
        )
        with pytest.raises(RankFailedError, match=r"Ray actor of process \d+ .*is lost") as caught:
            rows.group_by("k").agg(pl.sum("v")).collect(engine=engine)
        assert (caught.value.rank, caught.value.pid) == (1, victim)
        with pytest.raises(RankFailedError, match="is lost"):
            pl.scan_parquet(table).select(pl.len()).collect(engine=engine)
    assert ray.is_initialized()
    with RayEngine(num_ranks=2) as engine:
        assert_frame_equal(totals(pl.scan_parquet(table)).collect(engine=engine), ANSWER)
    with pytest.raises(RuntimeError, match="shutdown"):
        engine.rank_actors  # noqa: B018


CLIENT = """
    import sys

    import polars as pl

    from cudf_polars.engine.ray import RayEngine

    address, gate = sys.argv[1:]

    def wait(column):
        with open(gate, "rb"):  # waits for someone who writes
            return column

    frame = pl.LazyFrame({"v": [1.0, 2.0, 3.0, 4.0]})
    options = {"address": address, "logging_level": "ERROR", "log_to_driver": False}
    with RayEngine(num_ranks=2, ray_init_options=options) as engine:
        assert frame.select(pl.sum("v")).collect(engine=engine).item() == 10
        print(*(info.pid for info in engine.gather_cluster_info()), flush=True)
        rows = frame.with_columns(
            pl.col("v").map_batches(wait, return_dtype=pl.Float64, is_elementwise=True)
        )
        rows.select(pl.sum("v")).collect(engine=engine)
"""


def test_actors_end_with_a_client_that_is_killed(engine, table, tmp_path):
    script, gate = tmp_path / "client.py", tmp_path / "gate"
    script.write_text(textwrap.dedent(CLIENT))
    os.mkfifo(gate)
    command = [sys.executable, str(script), ray.get_runtime_context().gcs_address, str(gate)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        pids = [int(pid) for pid in other.stdout.readline().split()]
        assert len(pids) == 2
        with gate.open("wb"):  # opens when the query reads it
            other.kill()
            for pid in pids:
                wait_for_end(pid)
    # Another client of the cluster goes on, and a new engine works.
    assert_frame_equal(totals(pl.scan_parquet(table)).collect(engine=engine), ANSWER)
    with RayEngine(num_ranks=2) as another:
        assert_frame_equal(totals(pl.scan_parquet(table)).collect(engine=another), ANSWER)


def test_a_head_without_cores_has_no_ranks(monkeypatch):
    def node(name, **resources):
        return {"NodeID": name * 56, "Alive": name != "d", "Resources": {"memory": 1.0, **resources}}

    head, first, second, dead = node("a"), node("b", CPU=2.0), node("c", CPU=1.0, GPU=1.0), node("d", CPU=2.0)
    monkeypatch.setattr(ray, "nodes", lambda: [head, first, second, dead])
    assert nodes_with("CPU") == [first, second]
    assert nodes_with("GPU") == [second]
    monkeypatch.setattr(ray, "nodes", lambda: [head, dead])
    assert nodes_with("CPU") == [head]  # there is no other


def test_wrong_arguments():
    with pytest.raises(ValueError, match="num_ranks"):
        RayEngine(num_ranks=0)
    with pytest.raises(TypeError, match="reserved keys"):
        RayEngine(executor_options={"ray_context": 1})


def test_refused_inside_rrun(monkeypatch):
    monkeypatch.setenv("RRUN_RANK", "0")
    monkeypatch.setenv("RRUN_SOCKET_ADDR", "127.0.0.1:1")
    with pytest.raises(RuntimeError, match="rrun cluster"):
        RayEngine()
