"""Every shape of query is read, rebuilt, and gives the same answer."""

from __future__ import annotations

from typing import Literal

import polars as pl
import pytest
from plan.compare import assert_same_answer, read_and_rebuild
from plan.plan_catalogue import OPAQUE_NODES, names

from cudf_polars.plan import nodes
from cudf_polars.plan.read import read_plan
from cudf_polars.plan.rebuild import to_lazyframe

pytestmark = pytest.mark.filterwarnings("ignore")

Engine = Literal["in-memory", "streaming"]


@pytest.mark.parametrize("engine", ["in-memory", "streaming"])
@pytest.mark.parametrize("name", names())
def test_rebuilt_query_gives_the_same(queries: dict[str, pl.LazyFrame], name: str, engine: Engine) -> None:
    query = queries[name]
    _, rebuilt = read_and_rebuild(query)
    assert_same_answer(rebuilt, query, engine, ordered=False)


@pytest.mark.parametrize("name", [n for n in names() if "sort" in n or "maintain" in n or "concat_v" in n])
def test_promised_order_is_kept(queries: dict[str, pl.LazyFrame], name: str) -> None:
    query = queries[name]
    _, rebuilt = read_and_rebuild(query)
    assert_same_answer(rebuilt, query, "streaming")


@pytest.mark.parametrize("name", names())
def test_every_node_has_its_schema(queries: dict[str, pl.LazyFrame], name: str) -> None:
    for node in read_plan(queries[name]).nodes:
        assert list(to_lazyframe(node).collect_schema().items()) == list(node.schema.items())


@pytest.mark.parametrize("name", names())
def test_only_what_polars_hides_is_opaque(queries: dict[str, pl.LazyFrame], name: str) -> None:
    found = [n for n in read_plan(queries[name]).nodes if isinstance(n, nodes.OpaqueNode)]
    assert bool(found) == (name in OPAQUE_NODES or name in ("nan_literal", "nested_opaque"))


@pytest.mark.parametrize("name", names())
def test_reading_without_optimisation(queries: dict[str, pl.LazyFrame], name: str) -> None:
    query = queries[name]
    rebuilt = to_lazyframe(read_plan(query, pl.QueryOptFlags.none()).root)
    assert_same_answer(rebuilt, query, "in-memory", ordered=False)


def test_names_are_complete(queries: dict[str, pl.LazyFrame]) -> None:
    assert sorted(queries) == sorted(names())


def test_a_type_that_python_has_no_name_for() -> None:
    """Polars panics when the schema in the middle of such a query is asked for; the query as a whole still runs."""
    frame = pl.LazyFrame({"a": [1, None, 3]})
    query = (
        frame.select(pl.col("a")._row_encode()).select(pl.all()._row_decode(["a"], [pl.Int64])).unnest("a")
    )
    plan, rebuilt = read_and_rebuild(query)
    assert isinstance(plan.root, nodes.OpaqueNode)
    assert_same_answer(rebuilt, query, "streaming")


def _tables_without_columns() -> dict[str, pl.LazyFrame]:
    table, rows, other = pl.LazyFrame({"a": [1, 2, 3]}), pl.LazyFrame(height=3), pl.LazyFrame(height=5)
    return {
        "nothing": pl.concat([table, table.select([])], how="horizontal"),
        "rows": pl.concat([rows, rows.with_columns(b=1), table, pl.LazyFrame(height=3)], how="horizontal"),
        "only_rows": pl.concat([rows, pl.LazyFrame(height=3)], how="horizontal"),
        "same_twice": pl.concat([rows, rows], how="horizontal"),
        "dropped": pl.concat([table.drop("a"), table], how="horizontal"),
        "extended": pl.concat([table, other], how="horizontal_extend"),
        "only_extended": pl.concat([rows, other], how="horizontal_extend").with_columns(b=1),
    }


@pytest.mark.parametrize("name", _tables_without_columns())
def test_tables_without_columns_side_by_side(name: str) -> None:
    query = _tables_without_columns()[name]
    plan, rebuilt = read_and_rebuild(query)
    assert not any(isinstance(node, nodes.OpaqueNode) for node in plan.nodes)
    assert_same_answer(rebuilt, query, "streaming")


def test_tables_without_columns_of_different_heights() -> None:
    query = pl.concat([pl.LazyFrame(height=5), pl.LazyFrame(height=3)], how="horizontal")
    with pytest.raises(pl.exceptions.ShapeError):
        read_and_rebuild(query)[1].collect(engine="streaming")
