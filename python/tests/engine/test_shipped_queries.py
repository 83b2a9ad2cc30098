"""What has to come right between processes: values that say something in one of them only, frames that travel."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from cudf_polars.execute.options import ExecutionOptions
from support.rank_processes import RankProcesses

FRAME = pl.LazyFrame({"k": [1, 1, 2, 2, 1, 2], "s": ["b", "a", "a", "b", "c", "a"]})
CATEGORY = pl.col("s").cast(pl.Categorical)


@pytest.fixture(scope="module", params=[2, 3])
def engine(request: pytest.FixtureRequest) -> Iterator[RankProcesses]:
    with RankProcesses(request.param, ExecutionOptions.tiny()) as engine:
        yield engine


def _codes_say_the_categories(frame: pl.DataFrame) -> None:
    """Check that equal texts have equal codes, and different texts different ones."""
    pairs = frame.select("s", "code").unique()
    assert pairs["s"].n_unique() == pairs["code"].n_unique() == pairs.height == 3


@pytest.mark.parametrize(
    "code",
    [
        CATEGORY.to_physical(),
        CATEGORY.cat.physical(),
        pl.struct(CATEGORY.alias("c")).to_physical().struct.field("c"),
        CATEGORY.cat.physical().map_elements(lambda code: code, return_dtype=pl.UInt32),
    ],
    ids=["to_physical", "physical", "in_struct", "in_opaque"],
)
def test_codes_of_categories(engine: RankProcesses, code: pl.Expr) -> None:
    _codes_say_the_categories(FRAME.with_columns(code=code).collect(engine=engine))


def test_codes_of_categories_in_groups(engine: RankProcesses) -> None:
    query = FRAME.group_by("k").agg("s", code=CATEGORY.to_physical()).explode("s", "code")
    _codes_say_the_categories(query.collect(engine=engine))


def test_order_of_categories_is_that_of_their_texts(engine: RankProcesses) -> None:
    query = FRAME.with_columns(c=CATEGORY).sort("c", "k").select("k", "s")
    assert_frame_equal(query.collect(engine=engine), query.collect())


@pytest.mark.parametrize(
    "cut",
    [lambda lf: lf.head(2), lambda lf: lf.slice(1, 2), lambda lf: lf.slice(-6, 3), lambda lf: lf.head(0)],
)
def test_a_step_does_not_see_rows_that_are_cut_off(
    engine: RankProcesses, cut: Callable[[pl.LazyFrame], pl.LazyFrame]
) -> None:
    table = pl.LazyFrame({"s": ["1", "2", "3", "x", "5", "6"], "k": range(6)})
    number = pl.col("s").cast(pl.Int64)
    for query in (
        cut(table.with_columns(n=number)),
        cut(table.with_columns(n=number).with_columns(m=pl.col("n") + 1).select("m", "k")),
        cut(table.select(number, one=pl.lit(1))),
        cut(
            table.with_columns(
                n=number, f=pl.col("k").map_elements(lambda k: 6 // (4 - k), return_dtype=pl.Int64)
            )
        ),
    ):
        assert_frame_equal(query.collect(engine=engine), query.collect())


def test_rows_are_not_cut_below_steps_that_see_others(engine: RankProcesses) -> None:
    table = pl.LazyFrame({"a": [3, 1, 2, 5, 4], "k": range(5)})
    shared = table.with_columns(b=pl.col("a") + 1)
    for query in (
        table.with_columns(t=pl.col("a").cum_sum()).head(3),
        table.with_columns(m=pl.col("a") - pl.col("a").max()).head(2),
        table.select(pl.col("a").sum()).head(1),
        table.select(pl.lit(7)).head(3),
        table.filter(pl.col("a") > 2).head(2),
        pl.concat([shared.head(2), shared]),
    ):
        assert_frame_equal(query.collect(engine=engine), query.collect())


CATEGORIES = pl.Enum(["a", "b", "c"])


@pytest.mark.parametrize(
    "dtype",
    [
        pl.Categorical(),
        CATEGORIES,
        pl.List(pl.Categorical()),
        pl.Array(CATEGORIES, 1),
        pl.Struct({"x": pl.Categorical(), "y": pl.Struct({"z": CATEGORIES})}),
        pl.List(pl.Struct({"x": CATEGORIES})),
    ],
    ids=str,
)
def test_exchanged_categories(engine: RankProcesses, dtype: pl.DataType) -> None:
    letters = ["b", None, "a", "c", "b", "a"]
    match dtype:
        case pl.List(inner=pl.Struct()):
            values: list[Any] = [[{"x": letter}] for letter in letters]
        case pl.List() | pl.Array():
            values = [[letter] for letter in letters]
        case pl.Struct():
            values = [{"x": letter, "y": {"z": letter}} for letter in letters]
        case _:
            values = letters
    table = pl.LazyFrame({"i": range(6), "c": pl.Series(values, dtype=dtype)})
    for query in (
        table.sort("i", descending=True),
        table.group_by("i").agg(pl.col("c").first()).sort("i"),
        table.filter(pl.col("i") < 0).sort("i"),
        table.filter(pl.col("i") == 3).sort("i"),
    ):
        assert_frame_equal(query.collect(engine=engine), query.collect())


@pytest.mark.parametrize("dtype", [pl.UInt128, pl.Int128, pl.UInt8, pl.Float32], ids=str)
def test_products_of_which_polars_plans_another_type(engine: RankProcesses, dtype: pl.DataType) -> None:
    query = pl.LazyFrame({"a": [10, 3, 2]}, schema={"a": dtype}).select(pl.col("a").product())
    assert query.collect(engine=engine).item() == 60
