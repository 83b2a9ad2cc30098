"""What has to come right between processes: values that say something in one of them only, frames that travel."""

from __future__ import annotations

from collections.abc import Iterator

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
