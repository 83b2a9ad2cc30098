"""Joins whose keys have different types, which Polars casts: one column for each pair of keys in the result."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from typing import Any

import polars as pl
import pytest
from execute.compare import TINY, assert_like_polars
from plan.compare import assert_same_answer, read_and_rebuild

from cudf_polars.plan import nodes

TYPES = (pl.Int64(), pl.Int32(), pl.UInt8(), pl.Float64())
HOWS = ("inner", "left", "right", "full", "semi", "anti")


def _sides(left: pl.DataType, right: pl.DataType, *, same_names: bool) -> tuple[pl.LazyFrame, pl.LazyFrame]:
    """Return tables whose keys are ``b`` and ``k``, or both ``b``; each has the other's key as a plain column."""
    a = pl.LazyFrame(
        {"b": [1, 2, None, 5, 3], "x": range(5), "k": range(9, 4, -1)},
        schema={"b": left, "x": pl.Int64(), "k": pl.Int8()},
    )
    b = pl.LazyFrame(
        {"k": [1, 3, None, 5, 3], "b": range(7, 12), "x": range(4, -1, -1)},
        schema={"k": right, "b": pl.Int64(), "x": pl.Int64()},
    )
    return a, b.rename({"k": "b", "b": "k"}) if same_names else b


def _joins(how: Any) -> Iterator[pl.LazyFrame]:
    for left, right in itertools.product(TYPES, repeat=2):
        if left == right or (pl.Float64() in (left, right) and pl.Int64() in (left, right)):
            continue  # no cast, or one that Polars refuses
        for coalesce in (None, True, False) if how not in ("semi", "anti") else (None,):
            a, b = _sides(left, right, same_names=False)
            yield a.join(b, left_on="b", right_on="k", how=how, coalesce=coalesce)
            a, b = _sides(left, right, same_names=True)
            yield a.join(b, on="b", how=how, coalesce=coalesce, maintain_order="left_right")
            yield a.join(b, on=["b", "x"], how=how, coalesce=coalesce)


@pytest.mark.parametrize("how", HOWS)
def test_rebuilt_joins(how: str) -> None:
    for query in _joins(how):
        try:
            query.collect_schema()
        except pl.exceptions.PolarsError:
            continue
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            plan, rebuilt = read_and_rebuild(query)
            rebuilt.collect()
        assert said == []
        assert isinstance(plan.root, nodes.Join)
        assert_same_answer(rebuilt, query, "in-memory", ordered=False)


@pytest.mark.parametrize("nranks", [1, 2, 3])
@pytest.mark.parametrize("how", HOWS)
def test_answer(tmp_path: Any, how: Any, nranks: int) -> None:
    a, b = _sides(pl.Int64(), pl.Int32(), same_names=False)
    a.sink_parquet(tmp_path / "a.parquet", row_group_size=2)
    b.sink_parquet(tmp_path / "b.parquet", row_group_size=2)
    left, right = pl.scan_parquet(tmp_path / "a.parquet"), pl.scan_parquet(tmp_path / "b.parquet")
    query = left.join(
        right, left_on="b", right_on="k", how=how, coalesce=None if how in ("semi", "anti") else True
    )
    assert_like_polars(query, nranks, TINY, ordered=False)


def test_as_of_joins_of_groups_say_nothing() -> None:
    left, right = _sides(pl.Int64(), pl.Int64(), same_names=True)
    query = left.sort("x").join_asof(right.sort("x"), on="x", by="b", check_sortedness=False)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        _, rebuilt = read_and_rebuild(query)
        rebuilt.collect()
    assert said == []
