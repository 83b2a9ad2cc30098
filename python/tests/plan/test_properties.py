"""What is said of expressions."""

from __future__ import annotations

import polars as pl
import pytest
from plan.expression_catalogue import FRAME, TEXTS, evaluate

from cudf_polars.plan import expressions as ex
from cudf_polars.plan import nodes
from cudf_polars.plan.properties import (
    RowOrder,
    columns,
    depends_on_order,
    is_deterministic,
    is_elementwise,
    is_length_preserving,
    is_scalar,
    is_scalar_aggregation,
    row_order,
    substitute,
    substitute_columns,
)
from cudf_polars.plan.read import read_plan
from cudf_polars.plan.rebuild_expressions import to_expr

pytestmark = pytest.mark.filterwarnings("ignore")


def _read(text: str) -> ex.Expr | None:
    """Return the one expression of a query that is a plain select over the catalogue's frame."""
    try:
        root = read_plan(FRAME.lazy().select(evaluate(text).alias("out"))).root
    except pl.exceptions.DuplicateError:
        return None  # makes several columns
    if not isinstance(root, nodes.Select) or not isinstance(root.child, nodes.DataFrameScan):
        return None
    return root.exprs[0].expr if len(root.exprs) == 1 else None


@pytest.fixture(scope="module")
def catalogue() -> dict[str, ex.Expr]:
    """Return the catalogue's expressions that make one column."""
    return {text: expr for text in TEXTS if (expr := _read(text)) is not None}


def test_elementwise_expressions_do_not_see_other_rows(catalogue: dict[str, ex.Expr]) -> None:
    """Run on the two halves of the rows, an elementwise expression gives the two halves of the result."""
    chosen = {text: expr for text, expr in catalogue.items() if is_elementwise(expr)}
    assert len(chosen) > 300
    wrong = []
    for text, expr in chosen.items():
        out = to_expr(expr).alias("out")
        whole = FRAME.with_columns(out)["out"].to_list()
        halves = [
            v for half in (FRAME.head(2), FRAME.slice(2)) for v in half.with_columns(out)["out"].to_list()
        ]
        if repr(whole) != repr(halves):
            wrong.append(text)
    assert wrong == []


def test_expressions_that_ignore_order_do(catalogue: dict[str, ex.Expr]) -> None:
    """Turned round, the rows give the same value (or the same rows, turned round)."""
    chosen = {
        text: expr
        for text, expr in catalogue.items()
        if columns(expr) and is_deterministic(expr) and not depends_on_order(expr)
    }
    assert len(chosen) > 400
    wrong = []
    for text, expr in chosen.items():
        out = to_expr(expr).alias("out")
        straight = FRAME.select(out)["out"].to_list()
        reverse = FRAME[list(reversed(range(FRAME.height)))].select(out)["out"].to_list()
        if sorted(map(_rounded, straight)) != sorted(map(_rounded, reverse)):
            wrong.append(text)
    assert wrong == []


def test_aligned_rows_move_with_the_input(catalogue: dict[str, ex.Expr]) -> None:
    """Over the rows turned round, an aligned expression gives its values turned round; a fixed one, the same."""
    turned = FRAME[list(reversed(range(FRAME.height)))]
    wrong, seen = [], dict.fromkeys(RowOrder, 0)
    for text, expr in catalogue.items():
        order = row_order(expr)
        seen[order] += 1
        if order not in (RowOrder.ALIGNED, RowOrder.FIXED, RowOrder.SCALAR):
            continue
        out = to_expr(expr).alias("out")
        straight, reverse = (list(map(_rounded, f.select(out)["out"].to_list())) for f in (FRAME, turned))
        if straight != (reverse[::-1] if order is RowOrder.ALIGNED else reverse):
            wrong.append(text)
    assert wrong == []
    assert all(count >= 10 for count in seen.values()), seen


def _rounded(value: object) -> str:
    if isinstance(value, list):
        return str(sorted(map(_rounded, value)))
    return f"{value:.9g}" if isinstance(value, float) else repr(value)


def test_scalars_are_one_row(catalogue: dict[str, ex.Expr]) -> None:
    heights = {
        text: FRAME.select(to_expr(expr).alias("out")).height
        for text, expr in catalogue.items()
        if is_scalar(expr)
    }
    assert len(heights) > 50
    assert {text: n for text, n in heights.items() if n != 1} == {}


def test_length_preserving_expressions_keep_the_length(catalogue: dict[str, ex.Expr]) -> None:
    heights = {
        text: FRAME.select(to_expr(expr).alias("out")).height
        for text, expr in catalogue.items()
        if is_length_preserving(expr)
    }
    assert len(heights) > 300
    assert {text: n for text, n in heights.items() if n != FRAME.height} == {}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("c('i')+1", True),
        ("c('i')-c('i').mean()", False),
        ("c('i').cum_sum()+1", False),
        ("c('i').is_in([1,2])", True),
        ("c('c').cat.len_chars()", True),
        ("c('i').map_batches(lambda s:s+1)", False),
        ("c('i').map_elements(lambda x:x+1,return_dtype=pl.Int64)", True),
        ("c('l').list.eval(pl.element().rank())", True),
        ("c('i').sum().over('g')", False),
        ("pl.fold(pl.lit(0),lambda a,b:a+b,['i','j'])", False),
    ],
)
def test_is_elementwise(text: str, expected: bool) -> None:
    expr = _read(text)
    assert expr is not None
    assert is_elementwise(expr) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("c('i').sum()", True),
        ("(c('i').sum()+c('f').max())/pl.len()", True),
        ("c('i')+c('i').sum()", False),
        ("c('i').quantile([0.3,0.4])", True),
        ("c('i').unique()", False),
        ("c('i').map_batches(lambda s:s.sum(),return_dtype=pl.Int64,returns_scalar=True)", True),
        ("c('i').first()", True),
    ],
)
def test_is_scalar_aggregation(text: str, expected: bool) -> None:
    expr = _read(text)
    assert expr is not None
    assert is_scalar_aggregation(expr) is expected


def test_a_literal_is_no_aggregation() -> None:
    assert not is_scalar_aggregation(ex.Literal(1, dtype=pl.Int64()))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("c('i').sum()", False),
        ("c('i').first()", True),
        ("c('i').sort().first()", False),
        ("c('i').shift(1)", True),
        ("c('i').cum_sum().over('g',order_by='srt')", True),  # rows with equal keys
        ("c('i')+c('i').sort()", True),
        ("c('i').sort()", False),
        ("c('i').filter(c('i')>1)*c('i').filter(c('i')>2)", True),
        ("c('i').sum().over('g')", False),
        ("c('i').sort().over('g')", True),
        ("c('i').unique(maintain_order=True)", True),
    ],
)
def test_depends_on_order(text: str, expected: bool) -> None:
    expr = _read(text)
    assert expr is not None
    assert depends_on_order(expr) is expected


def test_columns_are_named_once_in_order() -> None:
    expr = ex.BinaryOp(
        ex.Operator.ADD, ex.Column("b"), ex.BinaryOp(ex.Operator.MUL, ex.Column("a"), ex.Column("b"))
    )
    assert columns(expr) == ("b", "a")


def test_substitute_columns() -> None:
    expr = ex.Agg("sum", ex.BinaryOp(ex.Operator.ADD, ex.Column("a"), ex.Column("b")))
    assert substitute_columns(expr, {"a": ex.Column("z")}) == ex.Agg(
        "sum", ex.BinaryOp(ex.Operator.ADD, ex.Column("z"), ex.Column("b"))
    )


def test_substitute_takes_the_largest() -> None:
    inner = ex.Agg("sum", ex.Column("a"))
    outer = ex.BinaryOp(ex.Operator.ADD, inner, ex.Column("a"))
    assert substitute(outer, {inner: ex.Column("s"), ex.Column("a"): ex.Column("t")}) == ex.BinaryOp(
        ex.Operator.ADD, ex.Column("s"), ex.Column("t")
    )


def test_what_polars_calls_no_row_wise_is_not(catalogue: dict[str, ex.Expr]) -> None:
    """Polars' own planner knows which functions need more than the row."""
    wrong = []
    for text, expr in catalogue.items():
        if isinstance(expr, ex.Column | ex.Opaque) or not is_elementwise(expr):
            continue
        try:
            separable = evaluate(text).meta.is_row_separable()
        except pl.exceptions.PolarsError:
            continue  # not without its schema
        if not separable:
            wrong.append(text)
    assert wrong == []
