"""Ranks whose memory has no room for a query: many partitions, divided twice, and all that waits is spilled."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import polars as pl
import pytest
from differential.ranks import Coverage, LoopbackTransport, on_threads
from differential.run import Report, run_seeds
from execute.local_transport import Group
from polars.testing import assert_frame_equal
from rapidsmpf.communicator import loopback
from rapidsmpf.config import Options
from rapidsmpf.streaming.core.context import Context

from benchmarks.pdsh.queries import QUERIES, Tables
from cudf_polars.execute.options import ExecutionOptions
from cudf_polars.execute.paths import CARRIED, LOOKUP, PATHS, SORTED_RANGES, TO_RANGES
from cudf_polars.execute.run import QueryOutcome, run_query

SEEDS = int(os.environ.get("RIVERRUN_TINY_SEEDS", "100"))
pytestmark = pytest.mark.timeout(900 + 2 * SEEDS)  # for a machine that may be busy
ALL = "RIVERRUN_TINY_ALL" in os.environ
NUMBERS = sorted(QUERIES) if ALL else [1, 3, 9, 13, 18, 21]
BUDGET = 300_000
"""Bytes of rows that a rank holds before it spills."""


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    """Return the tables, made by tpchgen-cli."""
    program = shutil.which("tpchgen-cli")
    if program is None:
        pytest.skip("tpchgen-cli is not on the PATH (pip install tpchgen-cli)")
    folder = tmp_path_factory.mktemp("pdsh")
    subprocess.run(
        [program, "parquet", "-s", "0.01", f"--output-dir={folder}"],
        check=True,
        capture_output=True,
        timeout=120,
    )
    return Tables(Path(folder))


@pytest.fixture(scope="module")
def taken() -> Counter[str]:
    """How often each way was taken in this module."""
    return Counter()


def _run(query: pl.LazyFrame, nranks: int, options: ExecutionOptions, folder: Path) -> list[QueryOutcome]:
    given = {
        "num_streaming_threads": "1",
        "spill_device_limit": str(BUDGET),
        # The process is always larger than that: waiting for it to become smaller is in vain.
        "memory_reserve_timeout": "1 ms",
        "spill_directory": str(folder),
    }
    group = Group(nranks)
    contexts = [Context.from_options(comm, Options(given)) for comm in loopback.new_cluster(nranks, 1)]
    outcomes: dict[int, QueryOutcome] = {}

    def work(rank: int) -> pl.DataFrame:
        transport = LoopbackTransport(contexts[rank], group, Coverage())
        outcomes[rank] = run_query(query.lazy(), transport, options=options)
        return outcomes[rank].frame

    ends = on_threads(nranks, work, lambda _, __: group.barrier.abort(), limit_s=300.0)
    for context in contexts:
        context.shutdown()
    for end in sorted(ends, key=lambda end: end.is_echo):
        if end.error is not None:
            raise end.error
    return [outcomes[rank] for rank in range(nranks)]


@pytest.mark.parametrize("nranks", [1, 2, 3])
@pytest.mark.parametrize("number", NUMBERS)
def test_pdsh(tables: Tables, number: int, nranks: int, taken: Counter[str], tmp_path: Path) -> None:
    query = QUERIES[number]
    frame = query.build(tables)
    expected = frame.collect(engine="streaming")
    options = ExecutionOptions(
        fallback_mode="raise",
        broadcast_limit=1 if number % 2 else 20_000,
        small_limit=0,
        read_everywhere_limit=0,
        head_limit=4,
        filter_least=0,
        filter_keys=100 if number % 3 == 0 else 1_000_000,
        partitions=8 + number,
        partition_limit=10_000,
        memory=BUDGET,
    )
    outcomes = _run(frame, nranks, options, tmp_path)
    for outcome in outcomes:
        taken.update(outcome.paths.counts)
        assert outcome.paths.frames_held == 0
    actual = pl.concat([outcome.frame for outcome in outcomes])
    order = list(query.order)
    assert_frame_equal(actual.select(order), expected.select(order), rel_tol=1e-9)
    by = [name for name, dtype in expected.schema.items() if not dtype.is_float()] or expected.columns
    assert_frame_equal(actual.sort(by), expected.sort(by), rel_tol=1e-9)
    assert not list(tmp_path.rglob("*.spill")), "spill files are left"


def _ways_of(
    query: pl.LazyFrame, by: list[str], nranks: int, broadcast_limit: int, taken: Counter[str], folder: Path
) -> list[Counter[str]]:
    """Run a query in eight partitions, compare its answer in the order of ``by``, and return each rank's ways."""
    options = ExecutionOptions(
        fallback_mode="raise",
        broadcast_limit=broadcast_limit,
        small_limit=0,
        read_everywhere_limit=0,
        partitions=8,
        partition_limit=10_000,
        memory=BUDGET,
    )
    outcomes = _run(query, nranks, options, folder)
    for outcome in outcomes:
        taken.update(outcome.paths.counts)
        assert outcome.paths.frames_held == 0
    actual = pl.concat([outcome.frame for outcome in outcomes])
    assert_frame_equal(actual.sort(by), query.collect(engine="streaming").sort(by))
    return [outcome.paths.counts for outcome in outcomes]


@pytest.mark.parametrize("nranks", [1, 2, 3])
def test_a_join_by_lookup(tables: Tables, nranks: int, taken: Counter[str], tmp_path: Path) -> None:
    lines = tables.scan("lineitem").select("l_orderkey", "l_linenumber", "l_suppkey", "l_comment")
    suppliers = tables.scan("supplier").select("s_suppkey", "s_nationkey", "s_name")
    query = (
        lines.join(suppliers, left_on="l_suppkey", right_on="s_suppkey")
        .group_by("l_orderkey", "s_nationkey")
        .agg(pl.len(), pl.col("s_name").min(), pl.col("l_comment").max())
    )
    by = ["l_orderkey", "s_nationkey"]
    for counts in _ways_of(query, by, nranks, 20_000, taken, tmp_path):
        assert counts[LOOKUP] > 0


@pytest.mark.parametrize("nranks", [1, 2, 3])
def test_rows_move_to_the_ranges_of_a_file(
    tables: Tables, nranks: int, taken: Counter[str], tmp_path: Path
) -> None:
    lines, orders = tmp_path / "lines.parquet", tmp_path / "orders.parquet"
    tables.scan("lineitem").select("l_orderkey", "l_comment").collect().write_parquet(
        lines, row_group_size=200
    )
    tables.scan("orders").sort("o_comment").select("o_orderkey", "o_comment").collect().write_parquet(orders)
    query = (
        pl.scan_parquet(lines)
        .join(pl.scan_parquet(orders), left_on="l_orderkey", right_on="o_orderkey", how="left")
        .group_by("l_orderkey")
        .agg(pl.len(), pl.col("o_comment").min(), pl.col("l_comment").max())
    )
    for counts in _ways_of(query, ["l_orderkey"], nranks, 1, taken, tmp_path):
        assert counts[TO_RANGES] == 1


@pytest.mark.parametrize("nranks", [1, 2, 3])
def test_rows_around_a_row(tables: Tables, nranks: int, taken: Counter[str], tmp_path: Path) -> None:
    amount = pl.col("l_quantity").cast(pl.Float64)
    seldom = pl.when(pl.col("l_partkey") % 1000 == 0).then("l_suppkey")
    lines = tables.scan("lineitem").filter(pl.col("l_orderkey") < 10_000)
    query = lines.select(
        "l_orderkey",
        "l_linenumber",
        sum=amount.cum_sum(),
        last=seldom.forward_fill(),
        next=seldom.backward_fill(),
        before=amount.shift(1000),
        behind=amount.shift(-7),
        mean=amount.rolling_mean(50),
        week=amount.rolling_sum_by("l_shipdate", "7d"),
    )
    by = ["l_orderkey", "l_linenumber"]
    for counts in _ways_of(query, by, nranks, 1, taken, tmp_path):
        assert counts[CARRIED] > 1


@pytest.mark.parametrize("nranks", [1, 2, 3])
def test_rows_of_the_time_before(tables: Tables, nranks: int, taken: Counter[str], tmp_path: Path) -> None:
    lines = tables.scan("lineitem").sort("l_shipdate", "l_orderkey", "l_linenumber")
    orders = tables.scan("orders").sort("o_orderdate", "o_orderkey")
    query = (
        lines.select("l_orderkey", "l_linenumber", "l_shipdate")
        .set_sorted("l_shipdate")
        .join_asof(
            orders.select("o_orderdate", "o_orderkey").set_sorted("o_orderdate"),
            left_on="l_shipdate",
            right_on="o_orderdate",
        )
    )
    for counts in _ways_of(query, ["l_orderkey", "l_linenumber"], nranks, 1, taken, tmp_path):
        assert counts[SORTED_RANGES] == 2


@pytest.fixture(scope="module")
def report(taken: Counter[str]) -> Report:
    """Run random queries."""
    report = run_seeds(0, SEEDS, shrink_s=0.0, tiny_blocks=True)
    taken.update(report.coverage.paths)
    return report


def test_random_queries(report: Report) -> None:
    assert report.cases == SEEDS
    assert not report.broken, report.text()
    assert not report.unknown, report.text()


def test_no_frame_waits_between_steps(report: Report) -> None:
    assert not report.coverage.frames_held


def test_every_way_was_taken(report: Report, taken: Counter[str]) -> None:
    missing = [path for path in PATHS if not taken[path]]
    assert not missing, (missing, taken)
