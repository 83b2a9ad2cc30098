"""Selections that keep, drop or reorder whole rows: distributed, and Polars' own answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import polars as pl
import pytest
from execute.compare import ORDINARY, PARTITIONED, TINY, assert_like_polars
from execute.random_tables import five_file_tables

from cudf_polars.execute.options import ExecutionOptions

I, X, F, S, L = (pl.col(name) for name in "ixfsl")  # noqa: E741

ORDERED: Mapping[str, Callable[[pl.LazyFrame], pl.LazyFrame]] = {
    "head": lambda lf: lf.select(pl.all().head(3)),
    "tail": lambda lf: lf.select(pl.all().tail(3)),
    "slice": lambda lf: lf.select(X.slice(-9, 3), S.slice(-9, 3)),
    "open slice": lambda lf: lf.select(X.slice(2)),
    "open slice from the end": lambda lf: lf.select(X.slice(-4)),
    "sort_by": lambda lf: lf.select(pl.col("x", "i").sort_by("f", "i", descending=[True, False])),
    "sort": lambda lf: lf.select(X.sort(nulls_last=True)),
    "sort downwards": lambda lf: lf.select(F.sort(descending=True)),
    "reverse": lambda lf: lf.reverse(),
    "places of what is sorted": lambda lf: lf.select(X.arg_sort(descending=True, nulls_last=True)),
    "places of sorted text": lambda lf: lf.select(S.arg_sort().alias("p")),
    "places of distinct values": lambda lf: lf.select(F.arg_unique()),
    "places of what is computed": lambda lf: lf.select((I % 4).arg_sort()),
    "reverse what is sorted": lambda lf: lf.select(
        X.sort_by("f", "i").reverse(), s=S.sort_by("f", "i").reverse()
    ),
    "head of what is sorted": lambda lf: lf.select(F.sort(descending=True).head(3)),
    "tail of what is filtered": lambda lf: lf.select(X.filter(I > 5).tail(2)),
    "every second of the reverse": lambda lf: lf.select(S.reverse().gather_every(2)),
    "reverse one": lambda lf: lf.select(S.reverse()),
    "gather_every": lambda lf: lf.gather_every(3),
    "gather_every from a row": lambda lf: lf.gather_every(2, 3),
    "gather_every behind the end": lambda lf: lf.gather_every(2, 50),
    "filter": lambda lf: lf.select(X.filter(I > 5), S.filter(I > 5)),
    "computed of a filter": lambda lf: lf.select((X.filter(I > 5) + 1).cast(pl.String)),
    "constants": lambda lf: lf.select(pl.linear_space(0, 1, 5)),
    "a range of constants": lambda lf: lf.select(pl.int_range(2, 9)),
    "explode": lambda lf: lf.select(L.explode()),
    "drop_nulls": lambda lf: lf.select(X.drop_nulls()),
    "drop_nans": lambda lf: lf.select(F.drop_nans()),
    "unique in order": lambda lf: lf.select(X.unique(maintain_order=True)),
    "a sum over a filter": lambda lf: lf.select(L.filter(I > 3).list.sum().sum()),
}
UNORDERED: Mapping[str, Callable[[pl.LazyFrame], pl.LazyFrame]] = {"unique": lambda lf: lf.select(X.unique())}


COLUMNS: Mapping[str, tuple[pl.DataType, Sequence[object]]] = {
    "x": (pl.Int64(), range(5)),
    "f": (pl.Float64(), [float("nan"), 1.5, -2.0, 0.25]),
    "s": (pl.String(), ["a", "b"]),
    "l": (pl.List(pl.Int64()), [[], [1], [2, None]]),
}


table = five_file_tables(COLUMNS)


@pytest.mark.parametrize("options", [TINY, ORDINARY, PARTITIONED], ids=["tiny", "ordinary", "partitioned"])
@pytest.mark.parametrize("nranks", [1, 2, 3])
@pytest.mark.parametrize("name", [*ORDERED, *UNORDERED])
def test_rows_of_a_selection(table: pl.LazyFrame, name: str, nranks: int, options: ExecutionOptions) -> None:
    make = ORDERED.get(name) or UNORDERED[name]
    for query in (make(table), make(table.filter(I > 3))):
        for outcome in assert_like_polars(query, nranks, options, ordered=name in ORDERED):
            assert not outcome.fallbacks


def test_different_filters_of_one_selection_are_paired_by_position(tmp_path: Path) -> None:
    pl.DataFrame({"i": range(10)}).write_parquet(tmp_path / "0.parquet", row_group_size=5)
    lf = pl.scan_parquet(tmp_path / "0.parquet")
    assert_like_polars(lf.select(a=I.filter(I < 4), b=I.filter(I > 5)), 2)


@pytest.mark.parametrize(
    "expr",
    [I.head(-1), I.slice(2, -3), I.gather_every(2**33), I.gather_every(2, 2**40)],
    ids=["negative head", "negative length", "far apart", "far behind"],
)
def test_numbers_out_of_the_range_of_rows_are_gathered(expr: pl.Expr, tmp_path: Path) -> None:
    pl.DataFrame({"i": range(10)}).write_parquet(tmp_path / "0.parquet", row_group_size=5)
    assert_like_polars(pl.scan_parquet(tmp_path / "0.parquet").select(expr), 2)
