"""Equality, hashing and rewriting of expressions."""

from __future__ import annotations

import dataclasses

import polars as pl
import pytest

from cudf_polars.plan import expressions as ex


def _int(value: int) -> ex.Literal:
    return ex.Literal(value, dtype=pl.Int64())


def test_equal_expressions_hash_alike() -> None:
    def make() -> ex.Expr:
        return ex.BinaryOp(ex.Operator.ADD, ex.Column("a"), _int(1), dtype=pl.Int64())

    assert make() == make()
    assert hash(make()) == hash(make())


def test_dtype_annotation_is_no_part_of_equality() -> None:
    assert ex.Column("a", dtype=pl.Int64()) == ex.Column("a")


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (ex.Literal(1, dtype=pl.Int64()), ex.Literal(1, dtype=pl.Int32())),
        (ex.Literal(1, dtype=pl.Int64()), ex.Literal(True, dtype=pl.Int64())),
        (ex.Literal(0.0, dtype=pl.Float64()), ex.Literal(-0.0, dtype=pl.Float64())),
        (ex.Column("a"), ex.Column("b")),
        (ex.Agg("std", ex.Column("a"), (0,)), ex.Agg("std", ex.Column("a"), (1,))),
    ],
)
def test_different_expressions_differ(a: ex.Expr, b: ex.Expr) -> None:
    assert a != b


def test_nan_literals_are_equal() -> None:
    first, second = (ex.Literal(float("nan"), dtype=pl.Float64()) for _ in range(2))
    assert first == second
    assert hash(first) == hash(second)


def test_series_literals_compare_by_content() -> None:
    one, same, other = (ex.FrozenSeries(pl.Series(v)) for v in ([1, None], [1, None], [2, None]))
    assert one == same
    assert hash(one) == hash(same)
    assert one != other


def test_series_literals_compare_types() -> None:
    assert ex.FrozenSeries(pl.Series([1])) != ex.FrozenSeries(pl.Series([1], dtype=pl.Int8))


def test_expressions_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        ex.Column("a").name = "b"  # type: ignore[misc]


def test_children_are_in_order() -> None:
    window = ex.Window(
        ex.Column("x"), (ex.Column("p"), ex.Column("q")), ex.Column("o"), False, False, "group_to_rows"
    )
    assert [c.name for c in window.children if isinstance(c, ex.Column)] == ["x", "p", "q", "o"]


def test_with_children_keeps_the_rest() -> None:
    window = ex.Window(ex.Column("x"), (ex.Column("p"),), None, True, False, "explode")
    assert window.with_children([ex.Column("y"), ex.Column("r")]) == ex.Window(
        ex.Column("y"), (ex.Column("r"),), None, True, False, "explode"
    )


def test_with_children_keeps_field_names() -> None:
    struct = ex.StructEval(ex.Column("s"), (ex.NamedExpr("f", ex.Column("x")),))
    changed = struct.with_children([ex.Column("s"), ex.Column("y")])
    assert changed.fields == (ex.NamedExpr("f", ex.Column("y")),)


def test_with_the_same_children_is_the_same_object() -> None:
    expr = ex.BinaryOp(ex.Operator.ADD, ex.Column("a"), _int(1))
    assert expr.with_children(expr.children) is expr


def test_with_a_wrong_number_of_children_fails() -> None:
    with pytest.raises(ValueError, match="2 children, got 1"):
        ex.BinaryOp(ex.Operator.ADD, ex.Column("a"), _int(1)).with_children([_int(1)])
