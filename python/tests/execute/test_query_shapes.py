"""Every operator, alone and in company, on 1 to 4 ranks: the answer is Polars' own."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from execute.compare import ORDINARY, TINY, assert_like_polars

from cudf_polars.execute.options import ExecutionOptions

A, B, S, I, W = (pl.col(name) for name in ("a", "b", "s", "i", "w"))  # noqa: E741

MAY_FALL_BACK = {
    "hconcat",
    "map_batches",
    "merge_sorted",
    "over_all",
    "dynamic",
    "rolling",
    "sort_by_list",
}


def _ordered(big: pl.LazyFrame, small: pl.LazyFrame, folder: Path) -> dict[str, pl.LazyFrame]:
    """Return queries whose order of rows Polars promises."""
    many = pl.scan_parquet([folder / "big.parquet", folder / "small.parquet", folder / "big.parquet"])
    csv = [folder / f"part{i}.csv" for i in range(5)]
    return {
        "scan": big,
        "scan_predicate": big.filter(A > 2, B < 15).select("i", "s"),
        "scan_many": many,
        "scan_many_row_index": many.with_row_index("n", 3).filter(A == 1),
        "scan_slice": many.slice(13, 90),
        "scan_slice_filter": many.slice(13, 90).filter(A > 3),
        "scan_slice_negative": many.slice(-33, 25),
        "scan_paths": pl.scan_parquet(
            [folder / "big.parquet", folder / "small.parquet"], include_file_paths="path"
        ),
        "scan_hive": pl.scan_parquet(folder / "hive", hive_partitioning=True).filter(I > 5),
        "scan_csv": pl.scan_csv(folder / "big.csv").filter(A > 1),
        "scan_csv_files": pl.scan_csv(csv).select("i", "b"),
        "scan_csv_head": pl.scan_csv(csv).head(15),
        "scan_csv_row_index": pl.scan_csv(csv, row_index_name="n"),
        "scan_ndjson": pl.scan_ndjson([folder / f"part{i}.ndjson" for i in range(5)]),
        "select": big.select(A + 1, S.str.to_uppercase(), one=pl.lit(1)),
        "select_constants": big.select(x=pl.lit(1), y=pl.lit("z")),
        "with_columns": big.with_columns(z=A * B, a=I),
        "head": big.filter(A > 1).head(7),
        "head_none": big.filter(A > 1).head(0),
        "tail": big.filter(A > 1).tail(7),
        "slice": big.filter(A > 1).slice(5, 20),
        "slice_open": big.filter(A > 1).slice(40),
        "slice_past_end": big.filter(A > 1).slice(400, 3),
        "row_index": big.filter(A > 2).with_row_index("r", 5),
        "group_by_maintain_order": big.group_by("s", maintain_order=True).agg(A.sum()),
        "group_by_maintain_order_raw": big.group_by("s", maintain_order=True).agg(A.median(), I),
        "group_by_maintain_order_head": big.group_by("a", "s", maintain_order=True).agg(I.sum()).head(4),
        "select_aggregates": big.select(
            A.sum(),
            B.mean(),
            pl.len(),
            v=B.var(),
            sd=B.std(ddof=0),
            f=I.first(),
            l=S.last(),
            n=B.null_count(),
            any=(A > 5).any(),
            all=(A > 5).all(),
            lo=S.min(),
            hi=B.max(),
            c=S.count(),
        ),
        "select_aggregate_expression": big.select(
            (A.sum() / B.filter(A > 2).sum()).alias("r"), (B - 3).max()
        ),
        "select_aggregates_of_nothing": big.filter(I > 1000).select(A.sum(), B.mean(), pl.len(), f=I.first()),
        "select_len": big.select(pl.len()),
        "select_n_unique": big.select(A.n_unique()),
        "select_n_unique_two": big.select(A.n_unique(), S.n_unique(), I.sum()),
        "select_median": big.select(A.median()),
        "select_cum_sum": big.select(I.cum_sum()),
        "shift": big.with_columns(z=I.shift(1)),
        "gather_every": big.gather_every(7),
        "scalar_in_columns": big.with_columns(z=B - B.mean(), share=A / A.sum()),
        "scalar_in_filter": big.filter(I > I.mean()),
        "scalar_of_scalar": big.select(((B - B.mean()) ** 2).sum()),
        "scalar_after_join": big.join(small.select("i", w="a"), on="i", maintain_order="left").filter(
            W > W.mean()
        ),
        "sort": big.sort("s", "i", descending=[True, False]),
        "sort_nulls_last": big.sort("b", "i", nulls_last=True),
        "sort_nulls_mixed": big.sort(
            "s", "b", "i", descending=[True, True, False], nulls_last=[False, True, True]
        ),
        "sort_stable": big.sort("s", maintain_order=True),
        "sort_expression": big.sort(A % 3, I),
        "sort_head": big.sort("b", "i").head(3),
        "sort_head_long": big.sort("b", "i").head(13),
        "sort_slice": big.sort("b", "i").slice(5, 20),
        "sort_tail": big.sort("b", "i").tail(6),
        "top_k": big.top_k(4, by="i"),
        "sort_bool_first": big.with_columns(t=A > 3).sort("t", "i"),
        "sort_by_list": big.with_columns(l=pl.concat_list("a", "i")).sort("l"),
        "sort_then_group": big.sort("a", "i").group_by("a", maintain_order=True).agg(I.first(), B.sum()),
        "sort_then_head_of_groups": big.sort("b", "i", descending=True)
        .group_by("a", maintain_order=True)
        .head(2),
        "unique_first": big.unique(subset=["a"], keep="first", maintain_order=True),
        "unique_last": big.unique(subset=["a", "s"], keep="last", maintain_order=True),
        "unique_none": many.unique(keep="none", maintain_order=True),
        "unique_head": big.unique(subset=["a"], keep="first", maintain_order=True).head(3),
        "concat": pl.concat([big, small, big.filter(A > 3)]),
        "concat_sorted": pl.concat([big.sort("b", "i"), small.sort("i", descending=True)]),
        "concat_diagonal": pl.concat([big, small.select("i", w="a")], how="diagonal"),
        "concat_head": pl.concat([small, big]).head(25),
        "hconcat": pl.concat([big.select("a"), big.select("b")], how="horizontal"),
        "hconcat_scalars": pl.concat([big.select(A.sum()), small.select(B.mean())], how="horizontal"),
        "over_sum": big.with_columns(z=B.sum().over("a")),
        "over_order_sensitive": big.select("i", z=I.cum_sum().over("a"), y=B.rank().over("a", "s")),
        "over_order_by": big.with_columns(z=I.cum_sum().over("a", order_by="b")),
        "over_in_filter": big.filter(B == B.max().over("a")),
        "over_all": big.select("i", z=I.rank().over(pl.lit(1))),
        "explode": big.select(S.str.split("s"), "i").explode("s"),
        "unnest": big.select(pl.struct("a", "s").alias("x"), "i").unnest("x"),
        "drop_nulls": big.drop_nulls(),
        "fill_null": big.fill_null(0),
        "join_maintain_left": big.join(small.select("a", w="i"), on="a", maintain_order="left_right"),
        "join_maintain_right": big.join(small.select("a", w="i"), on="a", maintain_order="right_left"),
        "left_join_maintain": big.join(small.select("i", w="a"), on="i", how="left", maintain_order="left"),
        "full_join_maintain": big.select("i", "s").join(
            small.select(i=I + 15, w="a"), on="i", how="full", maintain_order="left_right"
        ),
        "semi_join_maintain": big.join(small.select("a"), on="a", how="semi", maintain_order="left"),
        "asof": big.sort("i").join_asof(small.select("i", w="b").sort("i"), on="i"),
        "map_batches": big.map_batches(lambda frame: frame.reverse()),
        "merge_sorted": big.sort("i").merge_sorted(small.sort("i"), key="i"),
        "dynamic": big.sort("i").group_by_dynamic("i", every="10i").agg(A.sum()),
        "rolling": big.sort("i").rolling("i", period="3i").agg(A.sum()),
    }


def _unordered(big: pl.LazyFrame, small: pl.LazyFrame, folder: Path) -> dict[str, pl.LazyFrame]:
    """Return queries whose order of rows is free."""
    right = small.filter(I > 3).select("a", w="i")
    groups = big.group_by("a").agg(B.sum())
    queries = {
        "group_by": big.group_by("a").agg(
            B.sum(),
            pl.len(),
            m=B.mean(),
            sd=B.std(),
            v=B.var(ddof=0),
            lo=S.min(),
            hi=I.max(),
            f=I.first(),
            l=I.last(),
            n=S.null_count(),
            c=S.count(),
            p=(I + 1).cast(pl.Float64).product(),
            any=(I > 50).any(),
            all=(I > 1).all(),
            fn=S.drop_nulls().first(),
        ),
        "group_by_filtered": big.group_by("s").agg(
            x=B.filter(A > 2).sum(),
            y=I.filter(A > 5).first(),
            z=I.filter(A == 1).last(),
            c=pl.len().cast(pl.Int8),
        ),
        "group_by_expression": big.group_by(A % 2, "s").agg((B.sum() / I.max()).alias("x")),
        "group_by_renamed_key": big.group_by(k=A).agg(A.sum()),
        "group_by_same_name": big.group_by(A % 3).agg(B.max()),
        "group_by_n_unique": big.group_by("s").agg(A.n_unique(), B.sum()),
        "group_by_n_unique_two": big.group_by("s").agg(A.n_unique(), x=B.n_unique()),
        "group_by_whole_groups": big.group_by("s").agg(A.median(), I, x=B.quantile(0.25)),
        "group_by_sorted_first": big.group_by("s").agg(I.sort_by("b", "i").first()),
        "group_by_head": big.group_by("a").head(2),
        "group_by_having": big.group_by("a").having(B.sum() > 40).agg(I.sum()),
        "group_by_twice": big.group_by("a", "s").agg(I.sum()).group_by("a").agg(I.max()),
        "group_by_nothing": big.filter(I > 1000).group_by("a").agg(B.sum()),
        "group_by_only_keys": big.group_by("a", "s").agg(),
        "group_by_after_concat": pl.concat([big, small]).group_by("a").agg(I.sum()),
        "unique": big.select("a", "s").unique(),
        "unique_any": big.unique(subset=["a"]).select("a"),
        "unique_last": big.unique(subset=["s"], keep="last"),
        "unique_none": pl.concat([big, small]).unique(keep="none"),
        "unpivot": big.select("i", "a", "b").unpivot(index="i", on=["a", "b"]),
        "cross": big.select("i").join(small.select(w="i").head(3), how="cross"),
        "cross_scalar": big.join(big.select(m=B.mean()), how="cross").filter(B > pl.col("m")),
        "inequality": big.join_where(small.select(w="i"), I < W),
        "inequality_two": big.join_where(small.select(w="i", x="a"), I < W, A > pl.col("x")),
        "join_then_group": big.join(right, on="a").group_by("a").agg(W.sum(), B.sum()),
        "join_three": big.join(right, on="a").join(small.select("a", v="b"), on="a"),
        "join_groups": big.join(groups, on="a"),
        "join_self_groups": groups.join(groups.select(B.max()), on="b"),
        "join_null_keys": big.join(small.select("s", w="i"), on="s", nulls_equal=True),
        "join_two_keys": big.join(small.select("a", "s", w="i"), on=["a", "s"], how="left"),
        "join_coalesce_full": big.join(right, on="a", how="full", coalesce=True),
        "join_validate": big.join(groups.select("a", w="b"), on="a", validate="m:1"),
        "join_residual": big.join(small.select("a", w="i"), on="a").filter(I > W),
        "join_nothing": big.join(right.filter(W > 1000), on="a", how="left"),
        "join_then_unique": big.join(right, on="a").select("a").unique(),
        "join_then_over": big.join(right, on="a").with_columns(z=W.max().over("a")),
        "pivot": big.pivot("a", on_columns=[1, 2], index="s", values="i", aggregate_function="sum"),
        "value_shares": big.group_by("a").agg(B.sum()).with_columns(share=B / B.sum()),
        "diamond": big.group_by("a").agg(B.sum()).join(big.group_by("a").agg(I.max()), on="a"),
    }
    for how in ("inner", "left", "right", "full", "semi", "anti"):
        queries[f"join_{how}"] = big.join(right, on="a", how=how)
        queries[f"join_{how}_swapped"] = right.join(big, on="a", how=how)
        queries[f"join_{how}_expression"] = big.join(
            small.filter(I > 3).select("s", w="i"), left_on=I % 5, right_on=W % 4, how=how
        )
        queries[f"join_{how}_group"] = big.join(right, on="a", how=how).group_by("a").agg(pl.len())
    return queries


def _names(make: object) -> list[str]:
    empty = pl.LazyFrame(schema={"a": pl.Int64, "b": pl.Float64, "s": pl.String, "i": pl.Int64})
    return list(make(empty, empty, Path("none")))  # type: ignore[operator]


def _make(files: Path, make: object, name: str) -> pl.LazyFrame:
    big, small = pl.scan_parquet(files / "big.parquet"), pl.scan_parquet(files / "small.parquet")
    return make(big, small, files)[name]  # type: ignore[operator, no-any-return]


@pytest.mark.parametrize("options", [TINY, ORDINARY], ids=["tiny", "ordinary"])
@pytest.mark.parametrize("nranks", [1, 2, 3, 4])
@pytest.mark.parametrize("name", _names(_ordered))
def test_ordered_answer(files: Path, name: str, nranks: int, options: ExecutionOptions) -> None:
    outcomes = assert_like_polars(_make(files, _ordered, name), nranks, options)
    assert name in MAY_FALL_BACK or not outcomes[0].fallbacks


@pytest.mark.parametrize("options", [TINY, ORDINARY], ids=["tiny", "ordinary"])
@pytest.mark.parametrize("nranks", [1, 2, 3, 4])
@pytest.mark.parametrize("name", _names(_unordered))
def test_unordered_answer(files: Path, name: str, nranks: int, options: ExecutionOptions) -> None:
    outcomes = assert_like_polars(_make(files, _unordered, name), nranks, options, ordered=False)
    assert name in MAY_FALL_BACK or not outcomes[0].fallbacks
