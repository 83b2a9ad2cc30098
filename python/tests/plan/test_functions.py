"""The table of functions: options by name, and none that gets lost."""

from __future__ import annotations

import polars as pl
import pytest

from cudf_polars.plan.fingerprint import dump
from cudf_polars.plan.function_calls import Call, named_options, parse_call
from cudf_polars.plan.function_forms import FORMS
from cudf_polars.plan.functions import FUNCTIONS
from cudf_polars.plan.read import read_plan

A, B = pl.col("a"), pl.col("b")


def test_a_line_is_read() -> None:
    line = "window_size -bias weights!None (ddof) () &by -> rolling_std_by"
    options = ("window_size", "-bias", "weights!None", ("ddof",), ())
    assert parse_call("rolling", line) == Call("rolling_std_by", options, ("by",))
    assert parse_call("str.head", "") == Call("str.head")


def test_options_are_passed_by_name() -> None:
    built = Call("str.contains", ("literal", "strict"))([A, B], (True, False))
    assert built.meta.eq(A.str.contains(B, literal=True, strict=False))


def test_inputs_are_passed_by_name() -> None:
    built = Call("shift", (), ("n", "fill_value"))([A, B, pl.lit(0)], ())
    assert built.meta.eq(A.shift(B, fill_value=pl.lit(0)))


def test_functions_of_polars_take_all_inputs() -> None:
    assert Call("pl.coalesce")([A, B], ()).meta.eq(pl.coalesce(A, B))


def test_options_that_are_told_only_are_not_passed() -> None:
    built = Call("ewm_mean", ("alpha", "-bias", "weights!None"))([A], (0.5, True, None))
    assert built.meta.eq(A.ewm_mean(alpha=0.5))


def test_another_value_than_the_only_one_is_refused() -> None:
    with pytest.raises(ValueError, match="weights="):
        Call("rolling_skew", ("weights!None",))([A], ([1.0, 2.0],))


def test_an_unknown_option_is_refused() -> None:
    """A later Polars may add one: the function must not be rebuilt without it."""
    for spec in FUNCTIONS.values():
        known: list[object] = [tuple(None for _ in o) if isinstance(o, tuple) else None for o in spec.options]
        with pytest.raises(ValueError, match=r"zip\(\)"):
            spec.build([A] * 9, (*known, "new"))


def test_every_form_is_in_the_table() -> None:
    assert set(FORMS) <= set(FUNCTIONS)


def test_options_have_their_names_in_groups() -> None:
    options = parse_call("rolling_rank", "window_size weights!None -center (method seed)").options
    found = named_options(options, (3, None, False, ("min", 7)))
    assert found == [("window_size", 3), ("weights", None), ("center", False), ("method", "min"), ("seed", 7)]


def test_dumps_say_what_an_option_is() -> None:
    lf = pl.LazyFrame({"a": ["x"], "b": [1]})
    query = lf.select(A.str.contains("y", literal=True), B.std(ddof=0), r=B.rolling_std(2, ddof=0))
    text = dump(read_plan(query))
    assert "literal=True, strict=False)" in text
    assert "std(col('b'), ddof=0)" in text
    assert "window_size=2" in text
