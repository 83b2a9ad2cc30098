"""Queries that are collected together: each gives its answer, and what they have in common runs once."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest
from execute.compare import ORDINARY, PARTITIONED, TINY, compare_answers
from execute.local_transport import LocalTransport, run_ranks
from polars.testing import assert_frame_equal

from cudf_polars.execute.errors import QueryMismatchError
from cudf_polars.execute.options import ExecutionOptions
from cudf_polars.execute.run import QueryOutcome, run_queries, run_query
from cudf_polars.lower.physical import Materialize, Stream, walk
from cudf_polars.plan.several import join_queries, with_own_names
from support.wrong_answers import ORDERED, from_files, queries

QUERIES = queries()
ROWS = pl.DataFrame({"k": [i * 7 % 11 for i in range(200)], "v": range(200)})


def collect_all(
    lfs: Sequence[pl.LazyFrame],
    nranks: int,
    options: ExecutionOptions,
    flags: pl.QueryOptFlags | None = None,
) -> tuple[list[pl.DataFrame], list[QueryOutcome]]:
    """Return the result of each query, and the outcomes on rank 0."""

    def work(transport: LocalTransport) -> list[QueryOutcome]:
        outcomes = run_queries(
            join_queries(lfs), len(lfs), transport, apart=lfs, optimizations=flags, options=options
        )
        assert outcomes is not None
        return outcomes

    ranks = run_ranks(nranks, work)
    return [pl.concat(outcome.frame for outcome in each) for each in zip(*ranks, strict=True)], ranks[0]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("nranks", "options"),
    [(1, ORDINARY), (1, PARTITIONED), (2, ORDINARY), (2, TINY), (3, PARTITIONED), (3, TINY)],
)
@pytest.mark.parametrize("offset", range(0, len(QUERIES), 7))
def test_each_query_gives_its_answer(
    tmp_path: Path, nranks: int, options: ExecutionOptions, offset: int
) -> None:
    names = list(QUERIES)[offset : offset + 7]
    lfs = [QUERIES[name](*from_files(tmp_path)) for name in names]
    answers, _ = collect_all(lfs, nranks, options)
    for name, lf, answer in zip(names, lfs, answers, strict=True):
        compare_answers(answer, lf.collect(engine="streaming"), ordered=name in ORDERED)


def _shared(outcomes: Sequence[QueryOutcome]) -> list[set[Stream]]:
    """Return, by query, the materialized streams that it shares with others."""
    streams = [set(walk(outcome.physical)) if outcome.physical else set() for outcome in outcomes]
    return [{each for each in found if isinstance(each, Materialize) and each.shared} for found in streams]


@pytest.mark.parametrize(
    ("nranks", "options"),
    [(1, PARTITIONED), (2, ORDINARY), (2, TINY), (2, PARTITIONED), (3, TINY), (3, PARTITIONED)],
)
def test_what_they_have_in_common_runs_once(tmp_path: Path, nranks: int, options: ExecutionOptions) -> None:
    ROWS.write_parquet(tmp_path / "rows.parquet", row_group_size=20)
    table = pl.scan_parquet(tmp_path / "rows.parquet")
    sums = table.filter(pl.col("v") > 3).group_by("k").agg(pl.col("v").sum())
    lfs = [sums.sort("k"), sums.select(pl.col("v").max()), table.select(pl.len()), sums.sort("v")]
    answers, outcomes = collect_all(lfs, nranks, options)
    for lf, answer in zip(lfs, answers, strict=True):
        assert_frame_equal(answer, lf.collect())
    first, second, third, fourth = _shared(outcomes)
    assert first == second == fourth
    assert len(first) == 1
    assert not third
    (groups,) = first
    assert groups in outcomes[-1].measured
    flags = pl.QueryOptFlags(comm_subplan_elim=False)
    answers, outcomes = collect_all(lfs, nranks, options, flags)
    assert not any(_shared(outcomes))
    for lf, answer in zip(lfs, answers, strict=True):
        assert_frame_equal(answer, lf.collect())


def test_names_of_columns_may_look_like_those_of_joined_queries() -> None:
    frame = pl.DataFrame({"1:a": [1], "0:a": [2], ":": [3], "": [4]})
    lfs = [frame.lazy(), frame.lazy().select("0:a", "1:a")]
    answers, _ = collect_all(lfs, 1, PARTITIONED)
    for lf, answer in zip(lfs, answers, strict=True):
        assert_frame_equal(answer, lf.collect())
    assert with_own_names(pl.DataFrame({"3:a:b": [1]})).columns == ["a:b"]


def test_a_query_that_fails_fails_all_on_all_ranks() -> None:
    table = ROWS.lazy().with_columns(s=pl.lit("x"))
    lfs = [table.group_by("k").len(), table.sort("v").with_columns(pl.col("s").cast(pl.Int64))]
    with pytest.raises(pl.exceptions.InvalidOperationError, match="conversion from `str`"):
        collect_all(lfs, 2, TINY)


def test_a_query_without_columns_has_all_run_for_themselves() -> None:
    def work(transport: LocalTransport) -> list[QueryOutcome] | None:
        # Only on rank 0 does the second query have no columns; both ranks must decide alike.
        lfs = [ROWS.lazy(), ROWS.lazy().select([] if transport.rank == 0 else ["k"])]
        return run_queries(join_queries(lfs), 2, transport, options=TINY)

    for nranks in (1, 2):
        assert run_ranks(nranks, work) == [None] * nranks


def test_a_query_that_is_wrong_says_so() -> None:
    lfs = [ROWS.lazy(), ROWS.lazy().select("not there")]
    with pytest.raises(pl.exceptions.ColumnNotFoundError):
        run_ranks(2, lambda transport: run_queries(join_queries(lfs), 2, transport, options=TINY))
    # Alone, it does when it runs for itself.
    (answer,) = run_ranks(1, lambda transport: run_queries(join_queries(lfs), 2, transport, options=TINY))
    assert answer is None


def test_ranks_that_do_other_things_are_told() -> None:
    lfs = [ROWS.lazy().sort("k"), ROWS.lazy().sort("v")]

    def work(transport: LocalTransport) -> None:
        if transport.rank:
            run_query(lfs[0], transport, options=TINY)
        else:
            run_queries(join_queries(lfs), 2, transport, options=TINY)

    with pytest.raises(QueryMismatchError, match="collect_all"):
        run_ranks(2, work)


def test_ranks_that_collect_other_queries_are_told() -> None:
    def work(transport: LocalTransport) -> None:
        lfs = [ROWS.lazy().sort("k"), ROWS.lazy().sort("v" if transport.rank else "k")]
        run_queries(join_queries(lfs), 2, transport, options=TINY)

    with pytest.raises(QueryMismatchError):
        run_ranks(2, work)


def test_what_runs_on_one_rank_is_told_once() -> None:
    lfs = [ROWS.lazy().select(pl.col("v").ewm_mean(alpha=alpha)) for alpha in (0.5, 0.25)]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        _, outcomes = collect_all(lfs, 2, ExecutionOptions())
    told = [str(each.message) for each in caught if "FallbackWarning" in type(each.message).__name__]
    assert len(outcomes[-1].fallbacks) == 2
    assert len(told) == 2  # one of each rank, which are one process here
