"""Plans that are made by estimates: what explain says before a run is what runs."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from execute.compare import ORDINARY, PARTITIONED, TINY, assert_like_polars

from cudf_polars.execute.explain import explain_query
from cudf_polars.execute.options import ExecutionOptions

pytestmark = pytest.mark.filterwarnings("ignore")

SMALL = replace(ORDINARY, broadcast_limit=4 << 10, small_limit=1 << 10, read_everywhere_limit=0)


def queries(folder: Path) -> dict[str, pl.LazyFrame]:
    """Return queries over two tables, by name."""
    rows = pl.DataFrame({"k": [n * 7 % 501 for n in range(4000)], "v": range(4000)})
    rows.write_parquet(folder / "large.parquet")
    rows.head(100).write_parquet(folder / "small.parquet")
    large, small = pl.scan_parquet(folder / "large.parquet"), pl.scan_parquet(folder / "small.parquet")
    return {
        "join of a small side": large.join(small, on="k"),
        "join of large sides": large.join(large.filter(pl.col("v") % 100 == 0), on="k"),
        "group-by": large.group_by("k").agg(pl.col("v").sum(), pl.col("v").n_unique().alias("n")),
        "sort": large.sort("v", descending=True),
        "head": large.sort("k", "v").head(7),
        "distinct": large.select("k").unique(),
        "window": large.with_columns(s=pl.col("v").sum().over("k")),
        "all": large.join(small, on="k").group_by("k").agg(pl.col("v").max()).sort("k"),
    }


def plan(text: str) -> str:
    """Return what is in a plan before and after a run."""
    kept = [line for line in text.splitlines() if not line.startswith("On 2 ranks, by Polars, as estimated")]
    return re.sub(r"; a rank [^\n]*", "", "\n".join(kept))


@pytest.mark.parametrize("options", [SMALL, TINY, PARTITIONED], ids=["small", "tiny", "partitioned"])
def test_what_is_explained_is_what_runs(tmp_path: Path, options: ExecutionOptions) -> None:
    options = replace(options, dynamic_planning=False, filter_keys=0)
    for name, query in queries(tmp_path).items():
        outcomes = assert_like_polars(query, 2, options, ordered=name in ("sort", "head", "all"))
        assert plan(outcomes[0].explain()) == plan(explain_query(query, 2, options=options)), name


def test_counted_sizes_choose_otherwise(tmp_path: Path) -> None:
    query = queries(tmp_path)["join of large sides"]
    outcomes = [
        assert_like_polars(query, 2, replace(SMALL, dynamic_planning=dynamic, filter_keys=0), ordered=False)
        for dynamic in (True, False)
    ]
    assert "BROADCAST" in outcomes[0][0].explain()
    assert "BROADCAST" not in outcomes[1][0].explain()


def answers_of_counts(folder: Path) -> dict[str, pl.LazyFrame]:
    """Return queries whose answers follow from how many rows there are, by name."""
    x, v = pl.col("x"), pl.col("v")
    numbers = [n * 37 % 101 if n % 9 else None for n in range(300)]
    pl.DataFrame({"x": numbers, "v": range(300)}).write_parquet(folder / "rows.parquet", row_group_size=50)
    rows = pl.scan_parquet(folder / "rows.parquet")
    empty = rows.filter(v < 0)
    return {
        "median": rows.select(x.median()),
        "quantiles": rows.select(a=x.quantile(0.2, "nearest"), b=x.quantile(0.9, "linear"), n=pl.len()),
        "median of few": rows.filter(x > 95).select(x.median()),
        "median beside rows": rows.with_columns(m=x.median()).filter(v > 290),
        "merge of sorted": rows.merge_sorted(rows.filter(v % 3 == 0), "v").select("v"),
        "merge of unsorted": rows.merge_sorted(rows.filter(v % 3 == 0), "x").select(v.sum(), pl.len()),
        "horizontal": pl.concat(
            [rows.select("v"), rows.filter(v % 3 == 0).select("x")], how="horizontal_extend"
        ),
        "validated": rows.join(empty, on=["x", "v"], validate="1:1"),
        "windows of time": rows.group_by_dynamic("v", every="7i").agg(x.sum()),
        "rows that are kept": rows.slice(-7, 3),
    }


@pytest.mark.parametrize(
    "options", [ORDINARY, SMALL, TINY, PARTITIONED], ids=["ordinary", "small", "tiny", "partitioned"]
)
@pytest.mark.parametrize("nranks", [2, 3])
def test_answers_do_not_depend_on_estimates(tmp_path: Path, options: ExecutionOptions, nranks: int) -> None:
    for query in answers_of_counts(tmp_path).values():
        assert_like_polars(query, nranks, replace(options, dynamic_planning=False), ordered=True)
