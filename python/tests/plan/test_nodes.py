"""Children, sharing and walking of nodes."""

from __future__ import annotations

import dataclasses
import pickle

import polars as pl
import pytest

from cudf_polars.plan import expressions as ex
from cudf_polars.plan import nodes
from cudf_polars.plan.dag import Plan, map_nodes, walk_nodes
from cudf_polars.plan.read import read_plan
from cudf_polars.plan.rebuild import to_lazyframe

FRAME = pl.DataFrame({"a": [1, 2, 2], "b": ["x", "y", "y"]})


def _scan() -> nodes.DataFrameScan:
    return nodes.DataFrameScan(FRAME, schema=dict(FRAME.schema))


def test_nodes_compare_by_identity() -> None:
    assert _scan() != _scan()


def test_with_children_replaces_inputs() -> None:
    one, two, three = _scan(), _scan(), _scan()
    union = nodes.Union((one, two), schema=one.schema)
    assert union.with_children([two, three]).inputs == (two, three)


def test_with_a_wrong_number_of_children_fails() -> None:
    union = nodes.Union((_scan(),), schema=FRAME.schema)
    with pytest.raises(ValueError, match="1 children, got 0"):
        union.with_children([])


def test_expressions_of_a_join_are_all_of_them() -> None:
    key, predicate = ex.NamedExpr("a", ex.Column("a")), ex.Column("b")
    join = nodes.Join(_scan(), _scan(), "inner", (key,), (key,), predicate, schema={})
    assert join.expressions == (key.expr, key.expr, predicate)


def test_a_subplan_used_twice_is_one_node() -> None:
    grouped = FRAME.lazy().group_by("b").agg(pl.col("a").sum())
    root = read_plan(grouped.join(grouped, on="b")).root
    assert isinstance(root, nodes.Join)
    assert root.left is root.right


def test_a_node_with_two_users_is_walked_once() -> None:
    grouped = FRAME.lazy().group_by("b").agg(pl.col("a").sum())
    walked = list(read_plan(grouped.join(grouped, on="b")).nodes)
    assert [type(n) for n in walked] == [nodes.DataFrameScan, nodes.GroupBy, nodes.Join]


def test_a_node_with_two_users_is_rebuilt_once() -> None:
    grouped = FRAME.lazy().group_by("b").agg(pl.col("a").sum())
    root = read_plan(grouped.join(grouped, on="b")).root
    calls: list[nodes.Node] = []

    def resolve(node: nodes.Node) -> pl.LazyFrame | None:
        calls.append(node)
        return None

    rebuilt = to_lazyframe(root, resolve)
    assert len(calls) == len(set(calls)) == 3
    assert "CACHE" in rebuilt.explain()


def test_resolve_takes_the_place_of_a_node() -> None:
    root = read_plan(FRAME.lazy().filter(pl.col("a") > 1).select("b")).root

    def resolve(node: nodes.Node) -> pl.LazyFrame | None:
        return pl.LazyFrame({"a": [7], "b": ["z"]}) if isinstance(node, nodes.DataFrameScan) else None

    assert to_lazyframe(root, resolve).collect().to_dict(as_series=False) == {"b": ["z"]}


def test_frames_are_not_copied() -> None:
    (scan,) = (
        n for n in read_plan(FRAME.lazy().filter(pl.col("a") > 1)).nodes if isinstance(n, nodes.DataFrameScan)
    )
    found, given = (f["a"].to_numpy(allow_copy=False).ctypes.data for f in (scan.frame, FRAME))
    assert found == given


def test_a_long_plan_is_rebuilt() -> None:
    node: nodes.Node = _scan()
    for _ in range(3000):
        node = nodes.Slice(node, 0, 3, schema=node.schema)
    assert sum(1 for _ in walk_nodes(node)) == 3001


def _shared_plan() -> Plan:
    grouped = FRAME.lazy().group_by("b").agg(pl.col("a").sum())
    return read_plan(grouped.join(grouped, on="b"))


def test_nodes_have_numbers() -> None:
    plan = _shared_plan()
    assert [plan.number(node) for node in plan.nodes] == [0, 1, 2]
    assert plan.nodes[-1] is plan.root
    assert plan.users == (1, 2, 0)


def test_a_copy_of_a_node_has_no_number() -> None:
    plan = _shared_plan()
    assert plan.number(dataclasses.replace(plan.root)) is None


def test_a_plan_that_travelled_has_the_same_numbers() -> None:
    plan = _shared_plan()
    copy = pickle.loads(pickle.dumps(plan))
    assert [type(node) for node in copy.nodes] == [type(node) for node in plan.nodes]
    assert [copy.number(node) for node in copy.nodes] == [0, 1, 2]
    assert copy.users == plan.users


def test_nodes_are_mapped_once() -> None:
    plan = _shared_plan()
    calls: list[nodes.Node] = []

    def change(node: nodes.Node, new: nodes.Node) -> nodes.Node:
        calls.append(node)
        return _scan() if isinstance(node, nodes.DataFrameScan) else new

    root = map_nodes(plan.nodes, change)
    assert calls == list(plan.nodes)
    assert isinstance(root, nodes.Join)
    assert root.left is root.right
    assert root.left is not plan.nodes[1]
