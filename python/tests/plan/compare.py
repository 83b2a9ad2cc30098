"""Whether a plan that was read and rebuilt gives what the query gives."""

from __future__ import annotations

from typing import Literal

import polars as pl
from polars.testing import assert_frame_equal

from cudf_polars.plan.dag import Plan
from cudf_polars.plan.read import read_plan
from cudf_polars.plan.rebuild import to_lazyframe


def read_and_rebuild(query: pl.LazyFrame) -> tuple[Plan, pl.LazyFrame]:
    """Read a query, and return its plan and the query that the plan is rebuilt into."""
    plan = read_plan(query)
    return plan, to_lazyframe(plan.root)


def assert_same_answer(
    rebuilt: pl.LazyFrame,
    query: pl.LazyFrame,
    engine: Literal["in-memory", "streaming"],
    *,
    ordered: bool = True,
) -> None:
    """Run both and compare schema and rows."""
    expected = query.collect(engine=engine)
    found = rebuilt.collect(engine=engine)
    assert found.schema == expected.schema
    if not ordered:
        try:
            assert_frame_equal(found, expected, check_row_order=False)
        except (TypeError, pl.exceptions.InvalidOperationError):  # lists and structs cannot be sorted
            assert sorted(map(repr, found.rows())) == sorted(map(repr, expected.rows()))
    else:
        assert_frame_equal(found, expected)
