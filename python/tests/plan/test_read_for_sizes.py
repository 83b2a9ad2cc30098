"""A plan that is read for the sizes of its tables does not cost what reading it for a run does."""

from __future__ import annotations

import polars as pl
import pytest

from cudf_polars.plan.nodes import DataFrameScan, Join
from cudf_polars.plan.read import read_plan


def test_data_frames_are_not_serialised(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pl.LazyFrame({"k": range(100), "v": range(100)})
    query = rows.join(rows, on="k", validate="1:1")
    (join,) = (node for node in read_plan(query).nodes if isinstance(node, Join))
    assert join.validate == "1:1"

    def serialize(*_: object, **__: object) -> None:
        raise AssertionError("the query is serialised")

    monkeypatch.setattr(pl.LazyFrame, "serialize", serialize)
    plan = read_plan(query, to_be_rebuilt=False)
    assert [node.frame.height for node in plan.nodes if isinstance(node, DataFrameScan)] == [100]
    assert any(isinstance(node, Join) for node in plan.nodes)
