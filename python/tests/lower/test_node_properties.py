"""What is known of a plan's nodes before any is lowered."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from cudf_polars.lower.node_properties import NodeProperties
from cudf_polars.lower.physical import Estimate
from cudf_polars.plan import nodes
from cudf_polars.plan.dag import Plan
from cudf_polars.plan.read import read_plan

A, B = pl.col("a"), pl.col("b")


@pytest.fixture
def table(tmp_path: Path) -> pl.LazyFrame:
    pl.DataFrame({"a": [1, 2, 3], "b": [4, 5, 6]}).write_parquet(tmp_path / "t.parquet")
    return pl.scan_parquet(tmp_path / "t.parquet")


def _of(query: pl.LazyFrame) -> tuple[Plan, NodeProperties]:
    plan = read_plan(query)
    return plan, NodeProperties(plan, {})


def test_a_row_pipeline_starts_from_its_scan(table: pl.LazyFrame) -> None:
    plan, properties = _of(table.with_columns(c=A + B).filter(pl.col("c") > 5).select("c"))
    scan = plan.nodes[0]
    assert isinstance(scan, nodes.Scan)
    assert [properties.pipeline_scan(node) for node in plan.nodes] == [scan] * len(plan.nodes)


@pytest.mark.parametrize(
    "step",
    [
        lambda lf: lf.select(A.sum()),
        lambda lf: lf.select(A.cum_sum()),
        lambda lf: lf.with_columns(c=A.map_elements(lambda v: v + 1, return_dtype=pl.Int64)),
        lambda lf: lf.group_by("a").agg(B.sum()),
        lambda lf: lf.join(lf, on="a"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_other_steps_end_a_row_pipeline(table: pl.LazyFrame, step) -> None:  # type: ignore[no-untyped-def]
    plan, properties = _of(step(table).with_columns(d=pl.first() + 1))
    assert not properties.is_row_pipeline(plan.root)


def test_copies_of_nodes_are_looked_at_by_themselves(table: pl.LazyFrame) -> None:
    plan, properties = _of(table.with_columns(c=A + B).sort("c"))
    (step,) = (node for node in plan.nodes if isinstance(node, nodes.HStack))
    copy = replace(step)
    assert properties.pipeline_scan(copy) is properties.pipeline_scan(step) is plan.nodes[0]
    assert properties.users(step) == 1
    assert properties.users(copy) == 0
    assert not properties.is_ordered(step)
    assert properties.is_ordered(copy)


def test_filters_below_are_seen(table: pl.LazyFrame) -> None:
    plan, properties = _of(table.filter(A > 1).group_by("a").agg(B.sum()))
    assert properties.is_filtered(plan.root)
    assert properties.is_filtered(replace(plan.root))
    plan, properties = _of(table.group_by("a").agg(B.sum()))
    assert not properties.is_filtered(plan.root)


def test_sizes_of_frames_go_by_number() -> None:
    plan = read_plan(pl.LazyFrame({"a": [1]}).select(A + 1))
    size = Estimate(7.0, 8.0)
    properties = NodeProperties(plan, {0: size})
    assert properties.frame_size(plan.nodes[0]) == size
    assert properties.frame_size(replace(plan.nodes[0])) == Estimate(0.0, 0.0)


def test_a_filtered_side_leaves_out_rows_under_the_joins_of_the_other_one(table: pl.LazyFrame) -> None:
    few, wide = table.filter(A > 1).select("a"), table.with_columns(c=A + B)
    plan, properties = _of(table.join(wide, on="a", how="left").join(few, left_on="c", right_on="a"))
    inner, outer = (node for node in plan.nodes if isinstance(node, nodes.Join))
    assert not properties.is_left_out(outer)
    assert properties.is_left_out(inner)
    assert all(map(properties.is_left_out, inner.children))
    assert not properties.is_left_out(replace(inner))
    groups = table.join(wide, on="a").group_by("c").agg(A.sum())
    plan, properties = _of(groups.join(few, left_on="c", right_on="a"))
    assert properties.is_left_out(next(node for node in plan.nodes if isinstance(node, nodes.GroupBy)))
    assert not properties.is_left_out(next(node for node in plan.nodes if isinstance(node, nodes.Join)))
