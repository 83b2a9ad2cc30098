"""Every function that the translator has a form for gives what Polars gives, in the emulator of libcudf."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl
import pytest
from execute.gpu.random_frames import random_frame
from execute.gpu.translated import emulated, same
from hypothesis import given, settings
from hypothesis import strategies as st

from cudf_polars.execute.gpu.translate.coverage import TRANSLATED
from cudf_polars.plan import expressions as ex
from cudf_polars.plan.properties import walk
from cudf_polars.plan.read import read_plan

c = pl.col
SMALL = c("f").clip(-20.0, 20.0)
UNIT = c("f").clip(-1.0, 1.0)

ROW_WISE: dict[str, pl.Expr] = {
    # --- numbers
    "sqrt": c("f").sqrt(),
    "sqrt of integers": c("i32").sqrt(),
    "sqrt of Float32": c("f32").sqrt(),
    "cbrt": c("f").cbrt(),
    "exp": SMALL.exp(),
    "log": c("f").log(),
    "log10": c("f").log(10),
    "sin": SMALL.sin(),
    "cos": SMALL.cos(),
    "tan": SMALL.tan(),
    "cot": SMALL.cot(),
    "arcsin": UNIT.arcsin(),
    "arccos": UNIT.arccos(),
    "arctan": c("f").arctan(),
    "sinh": SMALL.sinh(),
    "cosh": SMALL.cosh(),
    "tanh": SMALL.tanh(),
    "arcsinh": SMALL.arcsinh(),
    "arccosh": c("f").arccosh(),
    "arctanh": UNIT.arctanh(),
    "degrees": c("f").degrees(),
    "radians": c("f").radians(),
    "sign": c("f").sign(),
    "sign of integers": c("i8").sign(),
    "sign of unsigned": c("u8").sign(),
    "floor": c("f").floor(),
    "floor of integers": c("i16").floor(),
    "ceil": c("f").ceil(),
    "round": c("f").round(),
    "round of Float32": c("f32").round(),
    "round of decimals": c("n").round(2),
    "round of decimals to whole": c("m").round(),
    "truncate": c("f").truncate(),
    "abs": c("f").abs(),
    "abs of integers": c("i8").abs(),
    "abs of decimals": c("m").abs(),
    "negate": -c("i8"),
    "negate floats": -c("f"),
    "square": c("i32").pow(2),
    "cube": c("i64").pow(3),
    "power": c("f").pow(0.5),
    "power of integers": c("small").pow(0.5),
    "atan2": pl.arctan2(c("f"), c("g")),
    "is_nan": c("f").is_nan(),
    "is_nan of integers": c("i8").is_nan(),
    "is_not_nan": c("f").is_not_nan(),
    "is_finite": c("f").is_finite(),
    "is_finite of integers": c("i8").is_finite(),
    "is_infinite": c("f").is_infinite(),
    "bitwise_count_ones": c("i32").bitwise_count_ones(),
    "bitwise_count_zeros": c("u8").bitwise_count_zeros(),
    "reinterpret": c("i64").reinterpret(signed=False),
    "sum_horizontal": pl.sum_horizontal("i64", "small"),
    "sum_horizontal of floats": pl.sum_horizontal("f", "small"),
    "mean_horizontal": pl.mean_horizontal("f", "g"),
    # --- logic
    "is_null": c("f").is_null(),
    "is_not_null": c("s").is_not_null(),
    "not_": ~c("b"),
    "not_ of integers": ~c("i8"),
    "and": c("b") & c("q"),
    "or": c("b") | c("q"),
    "xor": c("b") ^ c("q"),
    "bits and": c("i8") & 5,
    "fill_null": c("i64").fill_null(7),
    "fill_null of texts": c("s").fill_null(c("t")),
    "fill_null of decimals": c("m").fill_null(0),
    "fill_nan": c("f").fill_nan(1.5),
    "coalesce": pl.coalesce("i64", "small", pl.lit(3)),
    "clip": c("i64").clip(-3, 5),
    "clip floats": c("f").clip(-1.5, None),
    "clip by columns": c("f").clip(c("g"), 2.5),
    "is_between": c("f").is_between(-1.0, c("g")),
    "is_between left": c("d").is_between(c("e"), pl.date(2001, 1, 1), closed="left"),
    "is_between none": c("s").is_between(pl.lit("a"), pl.lit("b"), closed="none"),
    "is_in": c("i64").is_in([1, 2, 3, None]),
    "is_in one": c("s").is_in(["a"]),
    "is_in texts": c("s").is_in(["a", "é", "MED BOX"]),
    "is_in none": c("i64").is_in(pl.Series([], dtype=pl.Int64)),
    "is_in floats": c("f").is_in([0.0, float("nan"), 1.0]),
    "is_in with nulls": c("i64").is_in([1, None], nulls_equal=True),
    "is_in with nulls without null": c("i64").is_in([1, 2], nulls_equal=True),
    "any_horizontal": pl.any_horizontal("b", "q", c("i8") > 1),
    "all_horizontal": pl.all_horizontal("b", "q", c("i8") > 1),
    "min_horizontal": pl.min_horizontal("i64", "small"),
    "max_horizontal": pl.max_horizontal("d", "e"),
    "min_horizontal of floats": pl.min_horizontal("f", "g"),
    "max_horizontal of floats": pl.max_horizontal("f", "g"),
    "replace": c("small").replace([1, None, 2], [10, 20, None]),
    "replace_strict": c("small").replace_strict([1, 2], ["one", "two"], default="many"),
    "replace_strict of texts": c("s").replace_strict(["a", "b"], [1, 2], default=None),
    "to_physical": c("d").to_physical(),
    "to_physical of datetimes": c("us").to_physical(),
    "set_sorted": c("i64").set_sorted(),
    # --- texts
    "len_chars": c("s").str.len_chars(),
    "len_bytes": c("s").str.len_bytes(),
    "contains literal": c("s").str.contains("X", literal=True),
    "contains special": c("s").str.contains("%", literal=True),
    "contains column": c("s").str.contains(c("t"), literal=True),
    "contains pattern": c("s").str.contains("f.*gr"),
    "contains class": c("s").str.contains("^[a-cX]+"),
    "contains any": c("s").str.contains("a|é|[0-9]{2}"),
    "contains escaped": c("s").str.contains(r"\+7"),
    "contains_any": c("s").str.contains_any(["a", "X"]),
    "starts_with": c("s").str.starts_with("a"),
    "starts_with column": c("s").str.starts_with(c("t")),
    "ends_with": c("s").str.ends_with("X"),
    "count_matches": c("s").str.count_matches("X"),
    "count_matches literal": c("s").str.count_matches("b", literal=True),
    "count_matches pattern": c("s").str.count_matches("[a-z]+"),
    "slice": c("s").str.slice(1, 3),
    "slice to the end": c("s").str.slice(1),
    "slice from the end": c("s").str.slice(-3, 2),
    "slice far from the end": c("s").str.slice(-9, 7),
    "head": c("s").str.head(2),
    "head but": c("s").str.head(-2),
    "tail": c("s").str.tail(2),
    "tail but": c("s").str.tail(-2),
    "strip_chars": c("s").str.strip_chars(),
    "strip_chars of": c("s").str.strip_chars("ax"),
    "strip_chars_start": c("s").str.strip_chars_start(),
    "strip_chars_end": c("s").str.strip_chars_end("Xc"),
    "strip_prefix": c("s").str.strip_prefix("a"),
    "strip_suffix": c("s").str.strip_suffix("c"),
    "replace first": c("s").str.replace("X", "é"),
    "replace all": c("s").str.replace_all("X", "", literal=True),
    "replace pattern": c("s").str.replace_all("[0-9]", "#"),
    "zfill": c("s").str.zfill(4),
    "pad_start": c("s").str.pad_start(4, "é"),
    "pad_end": c("s").str.pad_end(4),
    "concat_str": pl.concat_str("s", pl.lit("-"), "t"),
    "concat_str separated": pl.concat_str("s", "t", separator="é"),
    "concat": c("s") + c("t"),
    "format": pl.format("{}:{}", "s", "i8"),
    # --- dates
    **{
        f"{name} of {column}": getattr(c(column).dt, name)()
        for name in (
            "year",
            "month",
            "day",
            "weekday",
            "ordinal_day",
            "quarter",
            "is_leap_year",
            "days_in_month",
            "week",
            "iso_year",
            "century",
            "millennium",
            "month_start",
            "month_end",
        )
        for column in ("d", "us", "ms")
    },
    **{
        f"{name} of {column}": getattr(c(column).dt, name)()
        for name in ("hour", "minute", "second", "millisecond", "microsecond", "nanosecond", "date")
        for column in ("us", "ms", "ns", "utc")
    },
    **{
        f"truncate to {every} of {column}": c(column).dt.truncate(every)
        for every in ("1d", "1w", "1mo", "1y")
        for column in ("d", "us")
    },
    "truncate to hours": c("us").dt.truncate("3h"),
    "truncate to seconds": c("ns").dt.truncate("90s"),
    **{
        f"offset_by {by} of {column}": c(column).dt.offset_by(by)
        for by in ("1d", "-2w", "1mo", "1q", "1y")
        for column in ("d", "us")
    },
    "offset_by hours": c("us").dt.offset_by("5h"),
    "timestamp": c("us").dt.timestamp("ms"),
    "timestamp finer": c("ms").dt.timestamp("us"),
    "epoch": c("us").dt.epoch("s"),
    "cast_time_unit": c("us").dt.cast_time_unit("ms"),
    "cast_time_unit finer": c("ms").dt.cast_time_unit("us"),
    "cast_time_unit of spans": c("span").dt.cast_time_unit("ms"),
    "convert_time_zone": c("utc").dt.convert_time_zone("Asia/Tokyo"),
    "replace_time_zone": c("us").dt.replace_time_zone("UTC"),
    **{
        f"total_{unit}": getattr(c("span").dt, f"total_{unit}")()
        for unit in ("days", "hours", "minutes", "seconds", "milliseconds", "microseconds", "nanoseconds")
    },
    "dates apart": c("d") - c("e"),
    "times apart": c("us") - c("vs"),
    "later": c("us") + c("span"),
    "earlier": c("us") - c("span"),
    "day later": c("d") + c("span"),
    "spans": c("span") - c("span") * 2,
    # --- lists and structs
    "list.len": c("l").list.len(),
    "list.get": c("l").list.get(1, null_on_oob=True),
    "list.get last": c("l").list.get(-1, null_on_oob=True),
    "list.contains": c("l").list.contains(2),
    "list.min": c("l").list.min(),
    "list.max": c("l").list.max(),
    "field": c("st").struct.field("y"),
}

_NUMBERS = ("i8", "i32", "i64", "u8", "u64", "f", "f32", "small", "m")
AGGREGATES: dict[str, pl.Expr] = {
    **{
        f"{name} of {column}": getattr(c(column), name)()
        for name in (
            "sum",
            "mean",
            "min",
            "max",
            "median",
            "std",
            "var",
            "n_unique",
            "count",
            "len",
            "null_count",
            "has_nulls",
        )
        for column in _NUMBERS
        if not (column == "m" and name in ("std", "var", "median"))
        and not (
            column in ("i64", "u64") and name in ("mean", "std", "var")
        )  # sums of floats that cancel out
    },
    **{
        f"{name} of {column}": getattr(c(column), name)()
        for name in ("min", "max", "n_unique", "count", "first", "last")
        for column in ("b", "s", "d", "us", "span", "m")
    },
    "sum of booleans": c("b").sum(),
    "sum of spans": c("span").sum(),
    "mean of booleans": c("b").mean(),
    "var with ddof 0": c("small").var(ddof=0),
    "std with ddof 2": c("small").std(ddof=2),
    "rows": pl.len(),
    "any": c("b").any(),
    "all": c("b").all(),
    "product": c("small").product(),
    "product of floats": c("f").clip(-2.0, 2.0).product(),
    "is_empty": c("small").is_empty(),
    **{
        f"quantile {kind}": c("small").quantile(0.3, kind)  # type: ignore[arg-type]
        for kind in ("linear", "lower", "higher", "midpoint")
    },
    "filtered sum": c("small").filter(c("b")).sum(),
    "filtered mean": c("f").filter(c("i8") > 0).mean(),
    "filtered count": c("s").filter(c("b")).count(),
    "filtered len": c("s").filter(c("b")).len(),
    "filtered min": c("f").filter(c("b")).min(),
    "of an expression": (c("small") * 2 + 1).sum(),
    "expression of several": c("small").sum() / c("small").count() + c("f").max(),
    "decimals": (c("m") * c("n")).sum(),
}


def _names() -> Iterator[str]:
    frame = random_frame(0)
    for expr in (*ROW_WISE.values(), *AGGREGATES.values()):
        root = read_plan(frame.lazy().select(x=expr)).root
        yield from (e.name for e in _expressions(root) if isinstance(e, ex.Function))


def _expressions(root: object) -> Iterator[ex.Expr]:
    from cudf_polars.plan.dag import walk_nodes
    from cudf_polars.plan.nodes import Node

    assert isinstance(root, Node)
    for node in walk_nodes(root):
        for expr in node.expressions:
            yield from walk(expr)


def test_every_function_that_is_translated_is_tested() -> None:
    simplified = {"any_horizontal", "all_horizontal"}  # Polars' optimiser makes operators of them
    assert sorted(TRANSLATED - set(_names())) == sorted(simplified)


@pytest.mark.parametrize("name", ROW_WISE)
@settings(max_examples=12)
@given(seed=st.integers(0, 2**32))
def test_row_wise(name: str, seed: int) -> None:
    query = random_frame(seed).lazy().select(x=ROW_WISE[name])
    _check(query)


@pytest.mark.parametrize("name", AGGREGATES)
@settings(max_examples=12)
@given(seed=st.integers(0, 2**32))
def test_of_all_rows(name: str, seed: int) -> None:
    _check(random_frame(seed).lazy().select(x=AGGREGATES[name]))


@pytest.mark.parametrize("name", AGGREGATES)
@settings(max_examples=12)
@given(seed=st.integers(0, 2**32))
def test_of_groups(name: str, seed: int) -> None:
    _check(random_frame(seed).lazy().group_by("key").agg(x=AGGREGATES[name]).sort("key"))


@pytest.mark.parametrize("name", [name for name in AGGREGATES if "first" not in name and "last" not in name])
@settings(max_examples=4)
@given(seed=st.integers(0, 2**32))
def test_of_groups_beside_rows(name: str, seed: int) -> None:
    _check(random_frame(seed).lazy().select("row", x=AGGREGATES[name].over("key")))


def _check(query: pl.LazyFrame) -> None:
    expected = query.collect()
    actual = emulated(query)
    tolerance = 1e-5 if isinstance(expected["x"].dtype, pl.Float32) else 1e-9
    assert actual.columns == expected.columns
    assert same(actual["x"], expected["x"], tolerance), (actual["x"].to_list(), expected["x"].to_list())
