"""When two answers count as the same."""

from __future__ import annotations

import math

import polars as pl
import pytest

from benchmarks.pdsh.compare import difference

EXPECTED = pl.DataFrame({"k": [1, 2, 2, 3], "s": ["a", "b", "c", None], "x": [0.5, 1.0, 1e9, None]})


def test_equal_answers() -> None:
    assert difference(EXPECTED, EXPECTED.clone(), ["k"]) is None


def test_ties_may_come_in_any_order() -> None:
    assert difference(EXPECTED[[0, 2, 1, 3]], EXPECTED, ["k"]) is None


def test_rows_out_of_order_are_found() -> None:
    assert "sort column 'k'" in (difference(EXPECTED[[1, 0, 2, 3]], EXPECTED, ["k"]) or "")


def test_without_an_order_rows_may_come_as_they_like() -> None:
    assert difference(EXPECTED[[3, 1, 0, 2]], EXPECTED) is None


def test_rows_are_not_mixed_over_ties() -> None:
    swapped = EXPECTED.with_columns(s=pl.Series(["b", "a", "c", None]))
    assert "column 's'" in (difference(swapped, EXPECTED, ["k"]) or "")


@pytest.mark.parametrize(("factor", "equal"), [(1 + 9e-10, True), (1 + 2e-9, False)])
def test_floats_may_differ_by_a_billionth(factor: float, equal: bool) -> None:
    found = difference(EXPECTED.with_columns(pl.col("x") * factor), EXPECTED, ["k"])
    assert (found is None) is equal


def test_floats_that_differ_a_little_do_not_part_a_tie() -> None:
    expected = pl.DataFrame({"x": [2.0, 2.0 * (1 - 1e-16), 1.0], "s": ["a", "b", "c"]})
    ours = pl.DataFrame({"x": [2.0 * (1 + 1e-15), 2.0, 1.0], "s": ["b", "a", "c"]})
    assert difference(ours, expected, ["x"]) is None


@pytest.mark.parametrize("value", [None, math.nan, math.inf, -math.inf])
def test_special_floats_are_equal_to_themselves_only(value: float | None) -> None:
    special = pl.DataFrame({"x": [value]}, schema={"x": pl.Float64})
    assert difference(special, special.clone()) is None
    assert difference(special, pl.DataFrame({"x": [1.0]})) is not None
    assert difference(pl.DataFrame({"x": [1.0]}), special) is not None


def test_types_and_names_count() -> None:
    assert "schema" in (difference(EXPECTED.cast({"k": pl.Int32}), EXPECTED) or "")
    assert "schema" in (difference(EXPECTED.rename({"k": "q"}), EXPECTED) or "")


def test_missing_rows_are_found() -> None:
    assert difference(EXPECTED.head(3), EXPECTED, ["k"]) == "3 rows instead of 4"


def test_a_duplicate_does_not_stand_for_another_row() -> None:
    assert difference(EXPECTED[[0, 1, 1, 3]], EXPECTED, ["k"]) is not None


def test_empty_answers_are_equal() -> None:
    assert difference(EXPECTED.clear(), EXPECTED.clear(), ["k"]) is None
