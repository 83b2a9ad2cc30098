"""SPMDEngine on several processes under rrun."""

from __future__ import annotations

import json

import polars as pl
import pytest

from support.ranks import run_ranks

RANKS = [2, 3]

PRELUDE = """
import sys, warnings
import polars as pl
from polars.testing import assert_frame_equal
from cudf_polars.engine.spmd import SPMDEngine, allgather_polars_dataframe
from cudf_polars.streaming.actor_graph.collectives.common import reserve_op_id

def everyone(engine, local):
    with reserve_op_id() as op_id:
        return allgather_polars_dataframe(engine=engine, local_df=local, op_id=op_id)

def check(engine, query, **options):
    answer = everyone(engine, query.collect(engine=engine))
    assert_frame_equal(answer, query.collect(engine="streaming"), **options)
    return answer
"""


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("table") / "t.parquet"
    rows = 10_000
    pl.DataFrame(
        {
            "k": [i % 97 for i in range(rows)],
            "v": [float(i) for i in range(rows)],
            "s": [None if i % 11 == 0 else f"text number {i % 1000}" for i in range(rows)],
        }
    ).write_parquet(path, row_group_size=1000)
    return path


# A column that only rank 1 cannot convert.
ONE_RANK_FAILS = """
def failing(rank):
    local = pl.DataFrame({"s": ["1", "2", "x" if rank == 1 else "3"]})
    return local.lazy().select(k=pl.col("s").cast(pl.Int64)).group_by("k").agg(n=pl.len())
"""


CHECKS = {
    "queries": """
t = pl.scan_parquet(path)
c = pl.col
check(engine, t.filter(c("k") < 50).select("k", w=c("v") * 2))
check(engine, t.group_by("k").agg(c("v").sum(), n=pl.len(), m=c("v").mean()).sort("k"))
check(engine, t.group_by("s").agg(c("v").max()), check_row_order=False)
check(engine, t.sort("v", descending=True))
check(engine, t.sort("s", "v", nulls_last=True).head(20))
check(engine, t.unique(subset="k", keep="any").select("k"), check_row_order=False)
check(engine, t.join(t.filter(c("v") < 500).select("k", u="v"), on="k"), check_row_order=False)
check(engine, t.join(t.filter(c("v") < 50), on="k", how="anti"), check_row_order=False)
check(engine, pl.concat([t.head(10), t.tail(10)]))
""",
    "global aggregate": """
local = pl.scan_parquet(path).select(pl.sum("v"), n=pl.len()).collect(engine=engine)
assert local.height == (1 if engine.rank == 0 else 0), local
assert everyone(engine, local).rows() == [(49995000.0, 10000)]
""",
    "no row group": """
t = pl.scan_parquet(small)
local = t.filter(pl.col("a") > 0).collect(engine=engine)
assert dict(local.schema) == {"a": pl.Int64, "s": pl.String}, local.schema
assert everyone(engine, local).height == 3
check(engine, t.group_by("s").agg(pl.sum("a")), check_row_order=False)
check(engine, t.sort("a"))
""",
    "in-memory frames": """
mine = pl.DataFrame({"a": [engine.rank] * 2})
ranks = range(engine.nranks)
assert everyone(engine, mine.lazy().collect(engine=engine))["a"].to_list() == [r for r in ranks for _ in "ab"]
total = everyone(engine, mine.lazy().select(pl.sum("a")).collect(engine=engine))
assert total.item() == 2 * sum(ranks)
""",
    "a query is explained before it runs": """
totals = pl.scan_parquet(path).group_by("k").agg(pl.sum("v"))
if engine.rank == engine.nranks - 1:  # one rank alone may ask
    text = engine.explain(totals)
    assert text.startswith("One fragment" if engine.nranks == 1 else f"On {engine.nranks} ranks, by Polars"), text
    assert engine.nranks == 1 or "PARTIAL GROUPBY by k" in text
    assert engine.explain(totals, physical=False) == totals.explain()
""",
    "queries collected together": """
totals = pl.scan_parquet(path).group_by("k").agg(pl.sum("v"))
queries = [totals.sort("k"), totals.select(pl.max("v")), totals.sort("v", descending=True).head(3)]
for local, query in zip(pl.collect_all(queries, engine=engine), queries, strict=True):
    assert_frame_equal(everyone(engine, local), query.collect())
assert engine.nranks == 1 or "read more than once" in engine.last_query.explain(), engine.last_query.explain()
try:
    pl.collect_all([totals, totals.select("no such column")], engine=engine)
except pl.exceptions.ColumnNotFoundError:
    pass
else:
    raise AssertionError("no error")
assert [local.shape for local in pl.collect_all([], engine=engine)] == []
""",
    "different queries": """
from cudf_polars.execute.errors import QueryMismatchError
t = pl.scan_parquet(path)
query = t.group_by("k").agg(pl.sum("v")) if engine.rank == 0 else t.filter(pl.col("k") > 3)
try:
    query.collect(engine=engine)
except QueryMismatchError as error:
    assert "rank" in str(error), error
else:
    raise AssertionError("no error")
check(engine, t.group_by("k").agg(pl.sum("v")).sort("k"))  # the engine is as good as new
""",
    "a rank fails": ONE_RANK_FAILS
    + """
from rapidsmpf.error import RankFailedError
t = pl.scan_parquet(path)
for _ in range(5):
    try:
        failing(engine.rank).collect(engine=engine)
    except RankFailedError as error:
        assert engine.rank != 1
        assert error.rank == 1, error
        assert "conversion from `str` to `i64` failed" in error.reason, error
    except Exception as error:
        assert engine.rank == 1
        assert "conversion from `str` to `i64` failed" in str(error), error
    else:
        raise AssertionError("the query did not fail")
    check(engine, t.group_by("k").agg(pl.sum("v")).sort("k"))
    # What every rank misses is an error of each.
    try:
        t.select("no such column").collect(engine=engine)
    except pl.exceptions.ColumnNotFoundError:
        pass
""",
    "cluster info": """
if engine.rank == 0:
    for i, info in enumerate(engine.gather_cluster_info()):
        print(f"rank {i}: {info['hostname']} {info['pid']} {info['cuda_visible_devices']}")
""",
    "sink": """
pl.scan_parquet(path).sort("v", descending=True).sink_parquet(target, engine=engine)
""",
    "fallback": """
import inspect
from cudf_polars import FallbackWarning
query = pl.scan_parquet(path).select(pl.col("v").ewm_mean(alpha=0.5))
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    local = query.collect(engine=engine); line = inspect.currentframe().f_lineno
ours = [w for w in caught if issubclass(w.category, FallbackWarning)]
assert len(ours) == (engine.rank == 0), caught  # once in the job, not on every rank
here = inspect.currentframe().f_code.co_filename
assert all((w.filename, w.lineno) == (here, line) for w in ours), [str(w) for w in ours]
assert_frame_equal(everyone(engine, local), query.collect())
""",
}
"""What one engine does, one after the other: ranks take seconds to start."""

RUN_CHECKS = """
import json, traceback
from pathlib import Path
path, small, target, said, checks = sys.argv[1:]
with SPMDEngine() as engine:
    for name, text in json.loads(checks).items():
        try:
            exec(compile(text, name, "exec"), {**globals()})
        except BaseException:
            (Path(said) / f"{name}.{engine.rank}").write_text(traceback.format_exc())
            raise
        (Path(said) / f"{name}.{engine.rank}").touch()
"""


class Checked:
    """How the checks of a job have ended.

    Parameters
    ----------
    folder
        An empty folder.
    nranks
        Number of ranks.
    table
        What they read.
    """

    def __init__(self, folder, nranks, table):
        self.nranks, self.target, self._said = nranks, folder / "out", folder / "said"
        self._said.mkdir()
        small = folder / "small.parquet"
        pl.DataFrame({"a": [1, 2, 3], "s": ["x", None, "z"]}).write_parquet(small)
        files = map(str, (table, small, self.target, self._said))
        self.job = run_ranks(nranks, PRELUDE + RUN_CHECKS, *files, json.dumps(CHECKS))

    def check(self, name):
        """Fail the test if a check has failed on a rank, or never came about."""
        for rank in range(self.nranks):
            ended = self._said / f"{name}.{rank}"
            if not ended.exists():
                pytest.fail(
                    f"rank {rank} did not end the check {name!r}\n{self.job.stdout}\n{self.job.stderr}"
                )
            assert ended.read_text() == "", f"rank {rank}"


@pytest.fixture(scope="module", params=RANKS)
def checked(request, tmp_path_factory, table):
    return Checked(tmp_path_factory.mktemp("checked"), request.param, table)


def test_the_job_of_all_checks_ends_well(checked):
    checked.job.check()


def test_queries_equal_polars(checked):
    checked.check("queries")


def test_a_global_aggregate_is_one_row_once(checked):
    checked.check("global aggregate")


def test_ranks_without_a_row_group_return_empty_frames(checked):
    checked.check("no row group")


def test_in_memory_frames_are_rank_local(checked):
    checked.check("in-memory frames")


def test_ranks_with_different_queries_all_raise(checked):
    checked.check("different queries")


def test_a_query_that_fails_on_one_rank_fails_everywhere_and_the_next_works(checked):
    checked.check("a rank fails")


def test_cluster_info_on_one_rank_alone(checked):
    checked.check("cluster info")
    assert len(checked.job.stdout.splitlines()) == checked.nranks


def test_sink_writes_a_file_per_rank(checked):
    checked.check("sink")
    names = [f"part.{rank:05d}.parquet" for rank in range(checked.nranks)]
    assert sorted(path.name for path in checked.target.iterdir()) == names
    assert pl.read_parquet(checked.target)["v"].to_list() == [float(i) for i in reversed(range(10_000))]


def test_fallback_warns_once_at_the_line_of_the_query_and_is_right(checked):
    checked.check("fallback")


def test_a_raising_rank_ends_the_others_with_its_reason(table):
    job = run_ranks(
        3,
        PRELUDE
        + """
from rapidsmpf.error import RankFailedError
t = pl.scan_parquet(sys.argv[1])
try:
    # A rank may still be joining when another gives up: the engine's start raises the same error.
    with SPMDEngine() as engine:
        if engine.rank == 1:
            raise ValueError("no more, thanks")
        for _ in range(100_000):
            t.group_by("k").agg(pl.sum("v")).collect(engine=engine)
except RankFailedError as error:
    assert error.rank == 1, error
    assert "no more, thanks" in str(error), error
    print("survivor saw it", flush=True)
""",
        str(table),
        timeout=60,
    )
    assert job.returncode == 1, job
    assert job.stdout.count("survivor saw it") == 2, job


def test_the_job_ends_with_the_error_of_the_rank_that_raised():
    job = run_ranks(
        3,
        PRELUDE
        + ONE_RANK_FAILS
        + """
engine = SPMDEngine()
failing(engine.rank).collect(engine=engine)
""",
    )
    assert job.returncode == 1, job
    (line,) = [line for line in job.stderr.splitlines() if line.startswith("rrun: ")]
    assert line.startswith("rrun: rank 1 (pid "), job
    assert "conversion from `str` to `i64` failed" in job.stderr, job


def test_statistics_of_all_ranks(table):
    run_ranks(
        2,
        PRELUDE
        + """
from cudf_polars.engine.options import StreamingOptions
with SPMDEngine.from_options(StreamingOptions(statistics=True)) as engine:
    check(engine, pl.scan_parquet(sys.argv[1]).group_by("k").agg(pl.len()).sort("k"))
    def received(stats):
        names = [name for name in stats.list_stat_names() if name.endswith("-payload-recv")]
        return sum(stats.get_stat(name)["value"] for name in names)

    ranks = engine.gather_statistics()
    total = engine.global_statistics(clear=True)
    assert len(ranks) == 2
    assert received(total) >= sum(received(rank) for rank in ranks) > 0  # not every rank need receive something
    # Cleared; what gathering itself moves is counted again, and the query's shuffles are not.
    assert "shuffle-payload-recv" not in engine.global_statistics().list_stat_names()
""",
        str(table),
    ).check()


def test_communicator_is_reused(table):
    run_ranks(
        2,
        PRELUDE
        + """
from rapidsmpf import bootstrap
from rapidsmpf.progress_thread import ProgressThread
comm = bootstrap.create_ucxx_comm(progress_thread=ProgressThread())
t = pl.scan_parquet(sys.argv[1])
for _ in range(3):
    with SPMDEngine(comm=comm) as engine:
        check(engine, t.group_by("k").agg(pl.sum("v")).sort("k"))
""",
        str(table),
    ).check()


SPILLING = """
import os
os.environ["RAPIDSMPF_SPILL_DEVICE_LIMIT"] = "1 MiB"  # less than the process takes: all that waits is spilled
os.environ["RAPIDSMPF_STATISTICS"] = "true"
"""


@pytest.mark.parametrize("nranks", RANKS)
def test_queries_equal_polars_when_everything_is_spilled(nranks, table):
    run_ranks(
        nranks,
        SPILLING
        + PRELUDE
        + """
t = pl.scan_parquet(sys.argv[1])
c = pl.col
with SPMDEngine() as engine:
    check(engine, t.group_by("v").agg(c("k").sum(), c("s").first()), check_row_order=False)
    check(engine, t.sort("s", "v", nulls_last=True))
    check(engine, t.join(t.select("v", w="k"), on="v"), check_row_order=False)
    total = engine.global_statistics()
    assert total.get_stat("spill-bytes-device-to-disk")["value"] > 0, total.report()
    assert total.get_stat("spill-bytes-disk-to-device")["value"] > 0, total.report()
""",
        str(table),
    ).check()


FULL_DISK = f"""
{SPILLING}
os.environ["RAPIDSMPF_SPILL_DISK_LIMIT"] = "64 KiB"
{PRELUDE}
"""


def test_a_full_disk_is_said_on_every_rank(table):
    job = run_ranks(
        2,
        FULL_DISK
        + """
t = pl.scan_parquet(sys.argv[1])
with SPMDEngine() as engine:
    t.group_by("v", "s").agg(pl.len()).collect(engine=engine)
""",
        str(table),
    )
    assert job.returncode != 0
    assert "SpillError: cannot spill" in job.stderr
    assert "64.00 KiB" in job.stderr
    assert "Raise spill_disk_limit" in job.stderr


def test_after_a_full_disk_the_next_query_works(table):
    run_ranks(
        2,
        FULL_DISK
        + """
from rapidsmpf.error import RankFailedError, SpillError
t = pl.scan_parquet(sys.argv[1])
with SPMDEngine() as engine:
    for _ in range(3):
        try:
            t.group_by("v", "s").agg(pl.len()).collect(engine=engine)
        except RankFailedError as error:
            assert "SpillError: cannot spill" in error.reason, error
        except (SpillError, pl.exceptions.PolarsError) as error:
            assert "cannot spill" in str(error), error
        else:
            raise AssertionError("64 KiB were enough")
        check(engine, t.group_by("k").agg(n=pl.len()).sort("k"))
""",
        str(table),
    ).check()


def test_a_rank_that_starts_no_engine_is_named():
    job = run_ranks(
        2,
        """
import signal
from cudf_polars.engine.spmd import SPMDEngine
from rapidsmpf import bootstrap
comm = bootstrap.create_ucxx_comm()
if comm.rank == 1:
    signal.pause()
SPMDEngine(comm=comm, rapidsmpf_options={"bootstrap_timeout": "500 ms"})
""",
    )
    assert job.returncode == 1, job
    assert "TimeoutError" in job.stderr, job
    assert "rank 1 has not finished it" in job.stderr, job
