"""What goes wrong: ranks with different queries, a rank that fails, steps that may not fall back."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from execute.compare import run
from execute.local_transport import LocalTransport, RankFailedError, run_ranks
from polars.testing import assert_frame_equal

from cudf_polars.execute.errors import QueryMismatchError
from cudf_polars.execute.options import ExecutionOptions
from cudf_polars.execute.run import run_query
from cudf_polars.lower import FallbackWarning


def test_different_queries_raise_on_all_ranks(files: Path) -> None:
    scan = pl.scan_parquet(files / "big.parquet")
    raised: list[str] = []

    def work(transport: LocalTransport) -> None:
        query = scan.group_by("a").agg(pl.col("b").sum()) if transport.rank != 1 else scan.sort("b")
        with pytest.raises(QueryMismatchError) as caught:
            run_query(query, transport)
        raised.append(str(caught.value))

    run_ranks(3, work)
    assert len(raised) == 3
    assert len(set(raised)) == 1
    assert "rank 0 and rank 1" in raised[0]


def test_same_query_over_different_frames_is_the_same_query() -> None:
    def work(transport: LocalTransport) -> pl.DataFrame:
        mine = pl.LazyFrame({"k": [0, 1, 1], "v": [transport.rank] * 3})
        return run_query(mine.group_by("k").agg(pl.col("v").sum()).sort("k"), transport).frame

    assert pl.concat(run_ranks(3, work)).rows() == [(0, 3), (1, 6)]


def test_failing_rank_fails_the_query_everywhere() -> None:
    seen: list[type[BaseException]] = []

    def work(transport: LocalTransport) -> None:
        texts = ["1", "2"] if transport.rank != 1 else ["1", "not a number"]
        query = (
            pl.LazyFrame({"k": [0, 1], "v": texts})
            .with_columns(pl.col("v").cast(pl.Int64))
            .group_by("k")
            .agg(pl.col("v").sum())
        )
        try:
            run_query(query, transport, options=ExecutionOptions.tiny("silent"))
        except BaseException as error:
            seen.append(type(error))
            raise

    with pytest.raises(pl.exceptions.InvalidOperationError, match="not a number"):
        run_ranks(3, work)
    assert seen.count(RankFailedError) == 2


def test_fallback_warns_once_and_names_the_step(files: Path) -> None:
    query = pl.scan_parquet(files / "big.parquet").select(
        pl.col("i").ewm_mean(alpha=0.5), pl.col("s").str.join("-")
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        frame, _ = run(query, 2, ExecutionOptions())
    ours = [w for w in caught if issubclass(w.category, FallbackWarning)]
    assert len(ours) == 2  # one on each rank
    assert "SELECT" in str(ours[0].message)
    assert frame.equals(query.collect())


def test_fallback_raises_when_asked(files: Path) -> None:
    query = pl.scan_parquet(files / "big.parquet").select(pl.col("i").ewm_mean(alpha=0.5))
    with pytest.raises(NotImplementedError, match="SELECT"):
        run(query, 2, ExecutionOptions(fallback_mode="raise"))


def test_silent_fallback_is_still_reported(files: Path) -> None:
    query = pl.scan_parquet(files / "big.parquet").select(pl.col("i").ewm_mean(alpha=0.5))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _, outcomes = run(query, 2, ExecutionOptions(fallback_mode="silent"))
    assert len(outcomes[0].fallbacks) == 1


def test_error_of_the_query_keeps_its_type(files: Path) -> None:
    query = pl.scan_parquet(files / "big.parquet").join(
        pl.scan_parquet(files / "small.parquet").select("a", w="i"), on="a", validate="1:1"
    )
    with pytest.raises(pl.exceptions.ComputeError, match="join keys did not fulfill"):
        run(query, 3)


@pytest.mark.parametrize("name", ["__rr_order", "__rr_anything"])
def test_names_of_the_engines_own_columns_are_refused(files: Path, name: str) -> None:
    query = pl.scan_parquet(files / "big.parquet").with_columns(pl.lit(1).alias(name)).sort("i")
    with pytest.raises(ValueError, match=f"called '{name}'"):
        run(query, 2)
    assert_frame_equal(run(query, 1)[0], query.collect())


def test_single_rank_runs_the_query_itself(files: Path) -> None:
    query = pl.scan_parquet(files / "big.parquet").select(pl.col("i").ewm_mean(alpha=0.5))
    frame, outcomes = run(query, 1, ExecutionOptions(fallback_mode="raise"))
    assert outcomes[0].physical is None
    assert frame.equals(query.collect())


@pytest.mark.parametrize("wrong", [{"fallback_mode": "loud"}, {"broadcast_limit": -1}])
def test_wrong_options(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        ExecutionOptions(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("partitions", [1, 3])
def test_what_fails_over_a_table_without_rows_fails(tmp_path: Path, partitions: int) -> None:
    options = replace(ExecutionOptions.tiny("silent"), partitions=partitions)
    pl.DataFrame(schema={"k": pl.Int64, "v": pl.UInt32}).write_parquet(tmp_path / "t.parquet")
    table = pl.scan_parquet(tmp_path / "t.parquet")
    wrong = pl.col("v").map_batches(lambda values: values.cum_sum(), return_dtype=pl.Int64)
    query = table.group_by("k").agg(wrong)
    with pytest.raises(pl.exceptions.SchemaError, match="expected output type 'Int64'"):
        query.collect(engine="streaming")
    with pytest.raises(pl.exceptions.SchemaError, match="expected output type 'Int64'"):
        run_ranks(3, lambda transport: run_query(query, transport, options=options))


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("number", ["index", "slice"])
def test_a_function_may_fail_on_a_part_without_rows(number: str, partitions: int) -> None:
    rows = pl.DataFrame({"v": [7, 8, 9]})
    needs_a_row = pl.col("v").map_batches(lambda v: v + 0 * v[0], return_dtype=pl.Int64, is_elementwise=True)
    options = replace(ExecutionOptions.tiny("silent"), partitions=partitions)

    def work(transport: LocalTransport) -> pl.DataFrame:
        mine = (rows if transport.rank == 0 else rows.clear()).lazy()
        numbered = mine.with_row_index() if number == "index" else mine.slice(0, 3)
        return run_query(numbered.with_columns(w=needs_a_row), transport, options=options).frame

    assert pl.concat(run_ranks(2, work))["w"].to_list() == [7, 8, 9]
