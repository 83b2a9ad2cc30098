"""Every kind of expression is read, rebuilt, and gives the same answer."""

from __future__ import annotations

from typing import Literal

import polars as pl
import pytest
from plan.compare import assert_same_answer, read_and_rebuild
from plan.expression_catalogue import FRAME, OPAQUE, TEXTS, UNORDERED, evaluate

from cudf_polars.plan import expressions as ex
from cudf_polars.plan import nodes
from cudf_polars.plan.functions import FUNCTIONS
from cudf_polars.plan.properties import walk
from cudf_polars.plan.read import read_plan

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("engine", ["in-memory", "streaming"])
@pytest.mark.parametrize("text", TEXTS)
def test_rebuilt_expression_gives_the_same(text: str, engine: Literal["in-memory", "streaming"]) -> None:
    query = FRAME.lazy().select(evaluate(text))
    _, rebuilt = read_and_rebuild(query)
    if text in UNORDERED:
        query, rebuilt = query.sort(pl.all()), rebuilt.sort(pl.all())
    assert_same_answer(rebuilt, query, engine)


@pytest.mark.parametrize("text", TEXTS)
def test_only_what_polars_hides_is_opaque(text: str) -> None:
    plan = read_plan(FRAME.lazy().select(evaluate(text)))
    assert not [n for n in plan.nodes if isinstance(n, nodes.OpaqueNode)]
    assert bool(plan.opaque) == (text in OPAQUE)


def test_catalogue_has_every_function() -> None:
    used: set[str] = set()
    for text in TEXTS:
        for node in read_plan(FRAME.lazy().select(evaluate(text))).nodes:
            for expr in node.expressions:
                used.update(e.name for e in walk(expr) if isinstance(e, ex.Function))
    # random; and two that Polars 2.1 writes with operators
    assert set(FUNCTIONS) - used <= {"list.sample", "sample", "all_horizontal", "any_horizontal"}


@pytest.mark.parametrize(
    "text", ["c('i').sample(fraction=0.5)", "c('l').list.sample(n=1,with_replacement=True)"]
)
def test_random_expressions_keep_their_schema(text: str) -> None:
    query = FRAME.lazy().select(evaluate(text))
    _, rebuilt = read_and_rebuild(query)
    found, expected = rebuilt.collect(), query.collect()
    assert (found.schema, found.height) == (expected.schema, expected.height)


def test_expressions_in_groups_give_the_same() -> None:
    """In the groups of an aggregation, where rows of a group stand together."""
    compared = 0
    for text in TEXTS:
        query = FRAME.lazy().group_by("g", maintain_order=True).agg(evaluate(text).alias("out"))
        try:
            query.collect(engine="in-memory")
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
            continue  # Polars does not run it in groups
        _, rebuilt = read_and_rebuild(query)
        if text in UNORDERED:
            query, rebuilt = (q.with_columns(pl.col("out").list.len()) for q in (query, rebuilt))
        assert_same_answer(rebuilt, query, "in-memory")
        compared += 1
    assert compared > 600
