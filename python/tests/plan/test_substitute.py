"""What Polars hides is kept as it was written, as little of it as possible."""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from cudf_polars.plan import expressions as ex
from cudf_polars.plan import nodes, read
from cudf_polars.plan.dag import Plan, walk_nodes
from cudf_polars.plan.dsl_facts import DslFacts
from cudf_polars.plan.plugin import LIBRARY_VARIABLE
from cudf_polars.plan.properties import walk
from cudf_polars.plan.read import read_plan
from cudf_polars.plan.rebuild import to_lazyframe

pytestmark = pytest.mark.filterwarnings("ignore")
c = pl.col

FRAME = pl.DataFrame({"k": [1, 2, 3, 4], "g": ["a", "b", "a", "b"], "v": [1.0, 2.0, 3.0, 4.0]})


def _double(column: str) -> pl.Expr:
    return c(column).map_elements(lambda x: x * 2, return_dtype=pl.Float64)


def _opaque(plan: Plan) -> list[ex.Opaque]:
    return [
        e for node in plan.nodes for expr in node.expressions for e in walk(expr) if isinstance(e, ex.Opaque)
    ]


def test_only_the_hidden_part_is_opaque() -> None:
    plan = read_plan(FRAME.lazy().select(_double("v").sum() + c("k").max()))
    (opaque,) = set(_opaque(plan))
    assert opaque.source.roots == ("v",)
    assert opaque.source.elementwise
    assert not opaque.source.scalar


def test_the_same_expression_is_the_same_source() -> None:
    same = _double("v")
    plan = read_plan(FRAME.lazy().select(a=same + 1, b=same + 2))
    assert len(plan.opaque) == 1


def test_filters_move_past_elementwise_expressions(tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    FRAME.write_parquet(path)
    plan = read_plan(
        pl.scan_parquet(path).with_columns(z=_double("v")).filter(c("k") > 1, c("z") > 4).select("z")
    )
    (scan,) = (n for n in plan.nodes if isinstance(n, nodes.Scan))
    assert set(scan.schema) == {"k", "v"}
    assert scan.predicate is not None


def test_inputs_follow_renames() -> None:
    plan = read_plan(
        FRAME.lazy().select(w="v").with_columns(z=_double("w")).filter(c("z") > 4).select("z").head(1)
    )
    assert to_lazyframe(plan.root).collect()["z"].to_list() == [6.0]


def test_an_opaque_expression_over_another_input() -> None:
    plan = read_plan(FRAME.lazy().select(_double("v").alias("z")))
    node = plan.root
    assert isinstance(node, nodes.Select)
    (named,) = node.exprs
    assert isinstance(named.expr, ex.Opaque)
    moved = named.expr.with_children([ex.Cast(ex.Column("k"), pl.Float64())])
    from cudf_polars.plan.rebuild_expressions import to_expr

    assert FRAME.select(to_expr(moved))["k"].to_list() == [2.0, 4.0, 6.0, 8.0]


def test_map_batches_is_a_node_over_a_read_plan() -> None:
    query = FRAME.lazy().filter(c("k") > 1).map_batches(lambda f: f.head(1)).select("g")
    (opaque,) = (n for n in read_plan(query).nodes if isinstance(n, nodes.OpaqueNode))
    assert opaque.name == "map_batches"
    assert [type(i) for i in opaque.inputs] == [nodes.Filter]


def test_map_batches_runs_over_the_frame_it_is_given() -> None:
    query = FRAME.lazy().map_batches(
        lambda f: f.with_columns(n=pl.lit(len(f))), schema={**FRAME.schema, "n": pl.Int32}
    )
    root = read_plan(query).root
    assert isinstance(root, nodes.OpaqueNode)
    out = root.build([FRAME.lazy().filter(c("k") > 2)])
    assert out.collect(engine="streaming")["n"].to_list() == [2, 2]
    assert out.filter(c("k") > 3).select("n").collect()["n"].to_list() == [2]


def test_sql_inputs_stay_visible() -> None:
    query = pl.SQLContext(f=FRAME.lazy()).execute("select g, sum(v) as s from f group by g")
    assert not [n for n in read_plan(query).nodes if isinstance(n, nodes.OpaqueNode)]


def test_query_without_a_plugin_still_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(LIBRARY_VARIABLE, str(tmp_path / "none.so"))
    query = FRAME.lazy().select(_double("v"))
    plan = read_plan(query)
    assert isinstance(plan.root, nodes.OpaqueNode)
    assert "is missing" in plan.notes[0]
    assert to_lazyframe(plan.root).collect().equals(query.collect())


@pytest.fixture
def _small_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "_SUBSTITUTE_LIMIT", 100)


@pytest.mark.usefixtures("_small_limit")
def test_large_frames_are_not_serialised() -> None:
    query = FRAME.lazy().filter(c("k") > 1).select(_double("v"))
    root = read_plan(query).root
    assert isinstance(root, nodes.OpaqueNode)
    assert to_lazyframe(root).collect(engine="streaming").equals(query.collect())


@pytest.mark.usefixtures("_small_limit")
def test_the_last_resort_runs_over_other_frames() -> None:
    query = FRAME.lazy().filter(c("k") > 1).select(_double("v"))
    root = read_plan(query).root
    assert isinstance(root, nodes.OpaqueNode)
    (scan,) = root.inputs
    other = pl.LazyFrame({"k": [5], "g": ["z"], "v": [50.0]})
    assert to_lazyframe(root, lambda node: other if node is scan else None).collect()["v"].to_list() == [
        100.0
    ]


def _joins_of(query: pl.LazyFrame) -> list[nodes.Join]:
    return [node for node in walk_nodes(read_plan(query).root) if isinstance(node, nodes.Join)]


@pytest.mark.parametrize("validate", ["1:1", "m:1", "1:m"])
@pytest.mark.parametrize(
    ("left_on", "right_on"),
    [(["s", "s"], ["g", "s"]), (["g", "s", "s"], ["g", "g", "s"]), (["g", "s"], ["g", "g"])],
)
def test_validate_is_kept_where_a_column_is_a_key_twice(
    validate: Any, left_on: list[str], right_on: list[str]
) -> None:
    """Polars drops a pair of keys, and compares its columns before the join."""
    t = pl.LazyFrame({"g": ["b", "a"], "s": ["foo", "foo"]})
    (join,) = _joins_of(t.join(t, left_on=left_on, right_on=right_on, validate=validate))
    assert join.validate == validate


def test_a_join_that_is_not_found_beside_a_validated_one() -> None:
    facts = DslFacts(None, {("a", "a"): "1:1", ("b", "b"): "m:m"})
    assert facts.validation_of(["a"], ["a"]) == "1:1"
    assert facts.validation_of(["b"], ["b"]) == "m:m"
    assert facts.validation_of(["c"], ["c"]) is None
    assert DslFacts(None, {("b", "b"): "m:m"}).validation_of(["c"], ["c"]) == "m:m"


def test_validate_is_kept() -> None:
    left, right = FRAME.lazy(), pl.LazyFrame({"k": [1, 1], "w": [1, 2]})
    root = read_plan(left.join(right, on="k", validate="1:1")).root
    assert isinstance(root, nodes.Join)
    assert root.validate == "1:1"
    with pytest.raises(pl.exceptions.ComputeError):
        to_lazyframe(root).collect()


def test_null_on_oob_is_kept() -> None:
    lf = FRAME.lazy()
    assert to_lazyframe(read_plan(lf.select(c("k").get(9, null_on_oob=True))).root).collect()[
        "k"
    ].to_list() == [None]
    with pytest.raises(pl.exceptions.OutOfBoundsError):
        to_lazyframe(read_plan(lf.select(c("k").get(9))).root).collect()


def test_wrong_queries_raise_what_polars_raises() -> None:
    with pytest.raises(pl.exceptions.ColumnNotFoundError):
        read_plan(FRAME.lazy().select("nope"))


def test_other_polars_versions_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "_ADAPTERS", {15: None})
    with pytest.raises(read.UnsupportedPolarsError, match=r"polars>=2\.1"):
        read_plan(FRAME.lazy())


def test_deep_expressions_are_not_too_deep() -> None:
    expr = c("k")
    for n in range(600):
        expr = expr + n
    query = FRAME.lazy().select(expr)
    assert to_lazyframe(read_plan(query).root).collect().equals(query.collect())


def test_streaming_plans_are_read_alike() -> None:
    right = pl.LazyFrame({"w": [2, 3]})
    flags = pl.QueryOptFlags()
    flags._pyoptflags.streaming = True
    root = read_plan(FRAME.lazy().join_where(right, c("k") < c("w")), flags).root
    assert isinstance(root, nodes.Join)
    assert flags._pyoptflags.streaming


def _hidden_step(columns: str) -> pl.LazyFrame:
    """Return a step over two tables that Polars does not show, which gives ``columns``."""
    tables = pl.SQLContext(f=FRAME.lazy().with_columns(more=c("g").cast(pl.Int64)), o=FRAME.lazy())
    return tables.execute(
        f"select {columns} from f left join (select k as a, cast(v as bigint) as b from o) as p on k > a and k < b"
    )


def assert_same(rebuilt: pl.LazyFrame, query: pl.LazyFrame) -> None:
    """Compare the columns that are asked for: of a left join by inequalities, Polars 2.1 gives more now and then."""
    names = query.collect_schema().names()
    assert_frame_equal(rebuilt.collect().select(names), query.collect().select(names), check_row_order=False)


@pytest.mark.parametrize(
    ("query", "used"),
    [
        (_hidden_step("k, g"), {"k", "g"}),
        (_hidden_step("f.*").select("g"), {"k", "g"}),
        (_hidden_step("f.*").filter(c("v") > 1).head(3).select("k"), {"k", "v"}),
        (_hidden_step("f.*").drop("more"), {"k", "g", "v"}),
        (_hidden_step("f.*").select(pl.len()), {"k"}),
        (_hidden_step("f.*").with_row_index().select("index"), {"k"}),
    ],
)
def test_a_hidden_step_reads_no_more_than_it_needs(query: pl.LazyFrame, used: set[str]) -> None:
    plan = read_plan(query)
    (opaque,) = (n for n in plan.nodes if isinstance(n, nodes.OpaqueNode))
    assert [set(i.schema) for i in opaque.inputs] == [used, {"k", "v"}]
    assert_same(to_lazyframe(plan.root), query)


def test_a_hidden_step_that_two_read_is_one() -> None:
    hidden = _hidden_step("f.*").drop("more")
    plan = read_plan(pl.concat([hidden.select("k", w="v").sort("k"), hidden.select("k", w="v").sort("w")]))
    (opaque,) = (n for n in plan.nodes if isinstance(n, nodes.OpaqueNode))
    assert set(opaque.inputs[0].schema) == {"k", "v"}


def test_hidden_steps_over_hidden_steps() -> None:
    tables = pl.SQLContext(f=_hidden_step("f.*"), o=FRAME.lazy())
    query = tables.execute("select k, v from f left join (select k as a from o) as p on k < a")
    plan = read_plan(query.select("k"))
    inner, outer = (n for n in plan.nodes if isinstance(n, nodes.OpaqueNode))
    assert [set(i.schema) for i in outer.inputs] == [{"k"}, {"k"}]
    assert set(inner.inputs[0].schema) == {"k"}
    assert_same(to_lazyframe(plan.root), query.select("k"))


def test_without_projections_a_hidden_step_reads_all() -> None:
    plan = read_plan(_hidden_step("k"), pl.QueryOptFlags(projection_pushdown=False))
    (opaque,) = (n for n in plan.nodes if isinstance(n, nodes.OpaqueNode))
    assert "more" in opaque.inputs[0].schema


@pytest.mark.usefixtures("_small_limit")
def test_a_shipped_query_has_the_frames_that_it_was_read_with() -> None:
    """Of such a query Polars finds equal sub-plans now and then only."""
    doubled = FRAME.lazy().select("k", _double("v"), s=c("k").map_batches(lambda s: s * 2))
    both = pl.concat([doubled.filter(c("k").is_between(2, 3)).head(3), doubled.filter(c("k") > 1)])
    text = "SELECT k + 1 AS k FROM t WHERE s IS NOT NULL UNION ALL SELECT s AS k FROM t"
    query = pl.SQLContext(t=both).execute(text)
    expected = query.collect()
    for _ in range(10):
        shipped = pl.LazyFrame.deserialize(io.BytesIO(query.serialize()))
        root = read_plan(query).root
        assert isinstance(root, nodes.OpaqueNode)
        other = pickle.loads(pickle.dumps(root.build))
        frames = [scan.frame.lazy() for scan in root.inputs if isinstance(scan, nodes.DataFrameScan)]
        assert_frame_equal(other(frames).collect(), expected, check_row_order=False)
        assert_frame_equal(to_lazyframe(read_plan(shipped).root).collect(), expected, check_row_order=False)
