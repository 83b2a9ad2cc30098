"""The emulator does what libcudf's headers say, above all where Polars does something else."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import polars as pl
import pytest

from cudf_polars.execute.gpu.program import (
    Aggregate,
    Build,
    Column,
    Constant,
    CudfType,
    Distinct,
    FromPipeline,
    Group,
    Hold,
    Pipeline,
    Probe,
    Project,
    RowRange,
    Sort,
    SortKey,
    TypeId,
)
from support.cudf_emulator import ProgramError, run
from support.cudf_emulator.checks import library
from support.gpu_conformance import Case
from support.gpu_conformance.build import Scalar, call_case, program, sink_case, source, unnamed

T = TypeId
NAN, INF = float("nan"), float("inf")
BOOL, STRING, DAYS = CudfType(T.BOOL8), CudfType(T.STRING), CudfType(T.TIMESTAMP_DAYS)
INT8, INT16, INT32, INT64, UINT64 = map(CudfType, (T.INT8, T.INT16, T.INT32, T.INT64, T.UINT64))
FLOAT64 = CudfType(T.FLOAT64)
UNDEFINED = "not the same"


def floats(*values: float | None) -> pl.Series:
    return pl.Series(values, dtype=pl.Float64)


def ints(*values: int | None, dtype: type[pl.DataType] = pl.Int64) -> pl.Series:
    return pl.Series(values, dtype=dtype)


def texts(*values: str | None) -> pl.Series:
    return pl.Series(values, dtype=pl.String)


def decimals(scale: int, *values: str | None) -> pl.Series:
    return pl.Series([None if v is None else Decimal(v) for v in values], dtype=pl.Decimal(38, scale))


def answer(case: Case, seed: int = 0) -> list[Any]:
    """Return the first column that a case gives."""
    return run(case.program, case.inputs, seed=seed).to_series().to_list()


def call(op: str, args: Sequence[Any], type: CudfType, *options: int | float | str) -> list[Any]:
    """Return what a primitive gives; ``UNDEFINED`` where libcudf does not say what."""
    case = call_case("", op, args, type, options)
    one, other = answer(case, 0), answer(case, 1)
    return [a if repr(a) == repr(b) else UNDEFINED for a, b in zip(one, other, strict=True)]


def same(a: Sequence[Any], b: Sequence[Any]) -> bool:
    return repr(list(a)) == repr(list(b))


# --- comparisons and conditions ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        ("equal", [False, False, True, True, None]),
        ("not_equal", [True, True, False, False, None]),
        ("less", [False, False, False, False, None]),
        ("greater", [False, False, False, False, None]),
        ("less_equal", [False, False, True, True, None]),
        ("null_equals", [False, False, True, True, False]),
        ("null_not_equals", [True, True, False, False, True]),
    ],
)
def test_comparisons_of_nan_are_those_of_ieee(op: str, expected: list[bool | None]) -> None:
    a, b = floats(NAN, NAN, 0.0, 1.0, None), floats(NAN, 1.0, -0.0, 1.0, 1.0)
    assert call(op, (a, b), BOOL) == expected


def test_null_safe_comparisons_of_two_nulls() -> None:
    assert call("null_equals", (ints(None, 1), ints(None, None)), BOOL) == [True, False]
    assert call("null_not_equals", (ints(None, 1), ints(None, None)), BOOL) == [False, True]


def test_signed_and_unsigned_meet_in_their_common_type() -> None:
    assert call("less", (ints(-1), ints(2**64 - 1, dtype=pl.UInt64)), BOOL) == [False]
    assert call("equal", (ints(-1), ints(2**64 - 1, dtype=pl.UInt64)), BOOL) == [True]


def test_logic_is_that_of_kleene() -> None:
    a = pl.Series([True, True, True, False, False, None])
    b = pl.Series([True, False, None, None, False, None])
    assert call("null_logical_and", (a, b), BOOL) == [True, False, None, False, False, None]
    assert call("null_logical_or", (a, b), BOOL) == [True, True, True, None, False, None]
    assert call("not", (b,), BOOL) == [False, True, None, None, True, None]


def test_extremes_of_two_take_the_one_that_is_there() -> None:
    a, b = ints(1, None, 5, None), ints(2, 3, None, None)
    assert call("null_max", (a, b), INT64) == [2, 3, 5, None]
    assert call("null_min", (a, b), INT64) == [1, 3, 5, None]
    assert call("null_max", (floats(NAN, 1.0), floats(1.0, 2.0)), FLOAT64) == [UNDEFINED, 2.0]


def test_a_null_mask_takes_the_other_branch() -> None:
    mask = pl.Series([True, False, None])
    assert call("copy_if_else", (mask, ints(1, 1, 1), ints(2, 2, None)), INT64) == [1, 2, None]


def test_nan_is_not_null() -> None:
    a = floats(NAN, None, 1.0, -0.0)
    assert call("is_nan", (a,), BOOL) == [True, False, False, False]
    assert call("is_not_nan", (a,), BOOL) == [False, True, True, True]
    assert call("is_null", (a,), BOOL) == [False, True, False, False]
    assert call("nans_to_nulls", (a,), FLOAT64) == [None, None, 1.0, -0.0]
    assert same(call("normalize_nans_and_zeros", (a,), FLOAT64), [NAN, None, 1.0, 0.0])


def test_contains_gives_null_for_null_whatever_the_set_has() -> None:
    for haystack in (ints(1, 2), ints(1, 2, None)):
        assert call("contains", (Scalar(haystack), ints(1, None, 3)), BOOL) == [True, None, False]
    odd = call("contains", (Scalar(floats(NAN, 0.0)), floats(NAN, -0.0, 1.0, None)), BOOL)
    assert odd == [True, True, False, None]


# --- arithmetic ----------------------------------------------------------------------


def test_integers_wrap() -> None:
    top = ints(2**63 - 1)
    assert call("add", (top, ints(1)), INT64) == [-(2**63)]
    assert call("negate", (ints(-128, dtype=pl.Int8),), INT8) == [-128]
    assert call("mul", (ints(16, dtype=pl.Int8), ints(16, dtype=pl.Int8)), INT8) == [0]


def test_division_by_zero_is_undefined_for_integers() -> None:
    for op in ("div", "floor_div", "mod", "pymod"):
        assert call(op, (ints(7, 7, None), ints(0, 7, 0)), INT64)[::2] == [UNDEFINED, None]
    assert same(call("div", (floats(1.0, -1.0, 0.0), floats(0.0, 0.0, 0.0)), FLOAT64), [INF, -INF, NAN])


@pytest.mark.parametrize(
    ("op", "expected"),
    [("div", [-3, -3, 3]), ("floor_div", [-4, -4, 3]), ("mod", [-1, 1, -1]), ("pymod", [1, -1, -1])],
)
def test_quotients_of_negative_numbers(op: str, expected: list[int]) -> None:
    assert call(op, (ints(-7, 7, -7), ints(2, -2, -2)), INT64) == expected


def test_true_division_is_of_floats() -> None:
    assert call("true_div", (ints(7), ints(2)), FLOAT64) == [3.5]
    with pytest.raises(ProgramError):
        call("div", (ints(7), ints(2)), FLOAT64)


def test_powers_of_integers_by_negative_ones_are_zero() -> None:
    assert call("int_pow", (ints(3, 2), ints(-1, 10)), INT64) == [0, 1024]


# --- casts ----------------------------------------------------------------------


def test_casts_that_do_not_fit() -> None:
    assert call("cast", (ints(300, -1),), INT8) == [44, -1]
    assert call("cast", (ints(-1),), UINT64) == [2**64 - 1]
    assert call("cast", (floats(1.9, -1.9, 300.0, NAN, INF, None),), INT8) == [1, -1, *[UNDEFINED] * 3, None]
    assert call("cast", (floats(2.0**63, -(2.0**63)),), INT64) == [UNDEFINED, -(2**63)]


def test_times_are_floored() -> None:
    before = pl.Series([dt.datetime(1969, 12, 31, 23, 59, 59)], dtype=pl.Datetime("us"))
    assert call("cast", (before,), DAYS) == [dt.date(1969, 12, 31)]


def test_a_bit_cast_keeps_bits() -> None:
    assert call("bit_cast", (ints(-1),), UINT64) == [2**64 - 1]
    assert call("bit_cast", ((decimals(2, "1.25"), CudfType(T.DECIMAL64, -2)),), INT64) == [125]
    with pytest.raises(ProgramError):
        call("bit_cast", (ints(1),), INT32)


# --- decimals ----------------------------------------------------------------------


def test_products_of_decimals_are_exact() -> None:
    a = decimals(2, "1.15", "-0.01")
    assert call("mul", (a, a), CudfType(T.DECIMAL128, -4)) == [Decimal("1.3225"), Decimal("0.0001")]
    with pytest.raises(ProgramError):
        call("mul", (a, a), CudfType(T.DECIMAL128, -2))


def test_digits_of_decimals_are_cut_off() -> None:
    a = decimals(2, "1.99", "-1.99")
    assert call("cast", (a,), CudfType(T.DECIMAL128, 0)) == [Decimal(1), Decimal(-1)]
    assert call("cast", (a,), INT64) == [1, -1]
    quotient = call(
        "div", (decimals(2, "2.00", "-2.00"), decimals(2, "0.03", "0.03")), CudfType(T.DECIMAL128, 0)
    )
    assert quotient == [Decimal(66), Decimal(-66)]


def test_decimals_round_half_to_even_or_away_from_zero() -> None:
    a = decimals(3, "0.005", "0.015", "-0.025", "0.0251")
    even = [Decimal(x) for x in ("0.00", "0.02", "-0.02", "0.03")]
    away = [Decimal(x) for x in ("0.01", "0.02", "-0.03", "0.03")]
    assert (
        call(
            "round_decimal",
            (decimals(4, "0.005", "0.015", "-0.025", "0.0251"),),
            CudfType(T.DECIMAL128, -2),
            2,
            "half_even",
        )
        == even
    )
    assert call("round_decimal", (a,), CudfType(T.DECIMAL128, -2), 2, "half_up") == away


def test_decimals_of_64_bits_wrap() -> None:
    big = (decimals(0, str(2**62)), CudfType(T.DECIMAL64, 0))
    assert call("add", (big, big), CudfType(T.DECIMAL64, 0)) == [Decimal(-(2**63))]


def test_decimals_of_different_width_do_not_meet() -> None:
    narrow = (decimals(2, "1.00"), CudfType(T.DECIMAL64, -2))
    with pytest.raises(ProgramError):
        call("add", (narrow, decimals(2, "1.00")), CudfType(T.DECIMAL128, -2))


@pytest.mark.skipif(library() is None, reason="pylibcudf says which types libcudf takes; it is not installed")
def test_types_that_libcudf_does_not_take_are_errors() -> None:
    with pytest.raises(ProgramError):
        call("mul", ((decimals(2, "1.00"), CudfType(T.DECIMAL64, -2)), floats(1.0)), FLOAT64)
    with pytest.raises(ProgramError):
        call("cast", (texts("1"),), INT64)
    with pytest.raises(ProgramError):
        call("add", (texts("a"), texts("b")), STRING)
    with pytest.raises(ProgramError):
        call("str.contains", (texts("a"),), BOOL, "(?P<a>b)")


# --- texts ----------------------------------------------------------------------


def test_positions_of_texts_are_in_characters() -> None:
    a = texts("äb€", "日本", "", None)
    assert call("str.length", (a,), INT32) == [3, 2, 0, None]
    assert call("str.bytes", (a,), INT32) == [6, 6, 0, None]
    assert call("str.slice", (a,), STRING, 1, 2) == ["b", "本", "", None]
    assert call("str.slice", (a,), STRING, 1, -1) == ["b€", "本", "", None]
    assert call("str.find", (a,), INT32, "€") == [2, -1, -1, None]


def test_a_case_has_one_character_for_one() -> None:
    assert call("str.upper", (texts("aé", "ß", "straße"),), STRING) == ["AÉ", UNDEFINED, UNDEFINED]
    assert call("str.lower", (texts("AÉ", "İ"),), STRING) == ["aé", UNDEFINED]


def test_null_targets() -> None:
    a, target = texts("ab", "ab", None, None), texts("a", None, "a", None)
    assert call("str.has", (a, target), BOOL) == [True, None, None, None]
    assert call("str.starts_with", (a, target), BOOL) == [True, None, None, None]
    assert call("str.concat", (a, target), STRING, "-") == ["ab-a", None, None, None]


def test_strip_knows_the_white_space_of_ascii() -> None:
    assert call("str.strip", (texts(" \t a\u00a0", "\x01b"),), STRING, "both", "") == ["a\u00a0", "b"]


def test_integers_in_texts_are_read_loosely() -> None:
    a = texts("12", "+7", "-3", "1.0", " 1", "", "300")
    assert call("str.is_integer", (a,), BOOL) == [True, True, True, False, False, False, True]
    assert call("str.is_integer", (a,), BOOL, int(T.INT8))[-1] is False
    assert call("str.to_integers", (a,), INT8) == [12, 7, -3, 1, UNDEFINED, UNDEFINED, UNDEFINED]


# --- times ----------------------------------------------------------------------


def test_parts_of_times_are_int16() -> None:
    a = pl.Series(
        [dt.datetime(2024, 2, 29, 13, 4, 5, 678_901), dt.datetime(1969, 12, 31)], dtype=pl.Datetime("us")
    )
    said = {
        "year": [2024, 1969],
        "weekday": [4, 3],
        "hour": [13, 0],
        "millisecond": [678, 0],
        "microsecond": [901, 0],
        "nanosecond": [0, 0],
    }
    for part, expected in said.items():
        assert call("dt.component", (a,), INT16, part) == expected
    with pytest.raises(ProgramError):
        call("dt.component", (a,), INT32, "year")
    assert call("dt.last_day_of_month", (a,), DAYS) == [dt.date(2024, 2, 29), dt.date(1969, 12, 31)]


def test_months_end_where_the_month_does() -> None:
    a = pl.Series([dt.date(2020, 1, 31), dt.date(2020, 3, 31)])
    assert call("dt.add_months", (a, ints(1, -1, dtype=pl.Int32)), DAYS) == [dt.date(2020, 2, 29)] * 2


def test_differences_of_days_are_days() -> None:
    a = pl.Series([dt.date(2020, 1, 31)])
    case = call_case("", "sub", (a, a), CudfType(T.DURATION_DAYS), returned=CudfType(T.DURATION_MILLISECONDS))
    assert answer(case) == [dt.timedelta(0)]
    with pytest.raises(ProgramError):
        call("sub", (a, a), CudfType(T.DURATION_MICROSECONDS))


# --- aggregates ----------------------------------------------------------------------


def aggregate(kind: str, values: pl.Series, type: CudfType, *options: int | float | str) -> list[Any]:
    """Return what an aggregate of all rows gives."""
    frame = unnamed([values])
    group = Group((), (Aggregate(kind, 0, type, options),))
    case = sink_case("", frame, group, [type], ordered=True)
    one, other = answer(case, 0), answer(case, 1)
    return [a if repr(a) == repr(b) else UNDEFINED for a, b in zip(one, other, strict=True)]


def test_aggregates_of_nothing_are_null_and_counts_zero() -> None:
    for values in (ints(), ints(None, None)):
        for kind in ("sum", "min", "max", "product", "any"):
            assert aggregate(kind, values, INT64) == [None]
        assert aggregate("mean", values, FLOAT64) == [None]
        assert aggregate("count_valid", values, INT64) == [0]
        assert aggregate("nunique_valid", values, INT64) == [0]
    assert aggregate("count_all", ints(None, None), INT64) == [2]
    assert aggregate("nunique", ints(None, None, 1), INT64) == [2]


def test_sums_of_integers_have_64_bits_and_become_what_is_wanted() -> None:
    values = ints(2**31 - 1, 1, dtype=pl.Int32)
    assert aggregate("sum", values, INT64) == [2**31]
    assert aggregate("sum", values, INT32) == [-(2**31)]


def test_extremes_beside_nan_are_undefined() -> None:
    assert aggregate("max", floats(1.0, NAN), FLOAT64) == [UNDEFINED]
    assert aggregate("min", floats(1.0, None, 2.0), FLOAT64) == [1.0]


def test_spread_of_one_row() -> None:
    assert aggregate("std", floats(3.0), FLOAT64, 1) == [None]
    assert aggregate("std", floats(3.0), FLOAT64, 0) == [0.0]


@pytest.mark.parametrize(
    ("way", "expected"),
    [("linear", 2.5), ("lower", 2.0), ("higher", 3.0), ("midpoint", 2.5), ("nearest", 3.0)],
)
def test_quantiles(way: str, expected: float) -> None:
    assert aggregate("quantile", ints(4, 1, None, 3, 2), FLOAT64, 0.5, way) == [expected]


def test_null_nan_and_zeros_are_groups() -> None:
    frame = unnamed([floats(NAN, None, 0.0, NAN, -0.0, None), ints(1, 2, 3, 4, 5, 6)])
    group = Group((0,), (Aggregate("count_all", 0, INT64), Aggregate("sum", 1, INT64)))
    case = sink_case("", frame, group, [FLOAT64, INT64, INT64], ordered=False)
    rows = run(case.program, case.inputs).rows()
    assert Counter(map(repr, rows)) == Counter(map(repr, [(NAN, 2, 5), (None, 2, 8), (0.0, 2, 8)]))


# --- orders ----------------------------------------------------------------------


def orders(case: Case) -> set[tuple[Any, ...]]:
    """Return in which orders the rows may come."""
    return {tuple(run(case.program, case.inputs, seed=seed).to_series(-1).to_list()) for seed in range(8)}


def test_what_has_no_order_comes_in_any() -> None:
    frame = unnamed([ints(*range(5)), ints(*range(5))])
    types = [INT64, INT64]
    group = [Group((0,), (Aggregate("any", 1, INT64),), in_order) for in_order in (False, True)]
    for loose, strict in (
        (Hold(), Hold(True)),
        (Distinct((0,)), Distinct((0,), in_order=True)),
        (group[0], group[1]),
    ):
        assert len(orders(sink_case("", frame, loose, types, ordered=False))) > 1
        assert orders(sink_case("", frame, strict, types, ordered=True)) == {(0, 1, 2, 3, 4)}


def test_ties_of_a_sort_come_in_any_order_unless_it_is_stable() -> None:
    frame = unnamed([ints(0, 0, 0, 0), ints(*range(4))])
    types = [INT64, INT64]
    assert len(orders(sink_case("", frame, Sort((SortKey(0),)), types, ordered=False))) > 1
    stable = Sort((SortKey(0),), stable=True)
    assert orders(sink_case("", frame, stable, types, ordered=True)) == {(0, 1, 2, 3)}


def test_nan_is_the_greatest_and_nulls_come_where_they_are_wanted() -> None:
    frame = unnamed([floats(NAN, None, 1.0, INF)])
    for descending, nulls_first, expected in (
        (False, True, [None, 1.0, INF, NAN]),
        (False, False, [1.0, INF, NAN, None]),
        (True, True, [None, NAN, INF, 1.0]),
        (True, False, [NAN, INF, 1.0, None]),
    ):
        sort = Sort((SortKey(0, descending, nulls_first),))
        assert same(answer(sink_case("", frame, sort, ordered=True)), expected)


def test_ranges_of_rows_are_cut_at_the_ends() -> None:
    frame = unnamed([ints(*range(5))])
    for offset, length, expected in (
        (-2, None, [3, 4]),
        (-7, 4, [0, 1]),
        (4, 9, [4]),
        (9, 1, []),
        (1, 2, [1, 2]),
    ):
        assert answer(sink_case("", frame, Hold(True, RowRange(offset, length)), ordered=True)) == expected


def test_distinct_keeps_what_it_is_told() -> None:
    frame = unnamed([ints(1, None, 1, None, 2), ints(*range(5))])
    types = [INT64, INT64]
    for keep, expected in (("first", {(0, 1, 4)}), ("last", {(2, 3, 4)}), ("none", {(4,)})):
        assert orders(sink_case("", frame, Distinct((0,), keep, True), types, ordered=True)) == expected
    assert len(orders(sink_case("", frame, Distinct((0,), "any", True), types, ordered=True))) > 1


# --- joins ----------------------------------------------------------------------


def joined(kind: str, *, nulls_equal: bool, key: pl.Series, other: pl.Series) -> list[tuple[Any, ...]]:
    """Return the rows of a join of two columns, sorted."""
    left, right = unnamed([key]), unnamed([other])
    type = source(left).types[0]
    payload = (0,) if kind in ("inner", "left") else ()
    built = Pipeline(source(right, 1), (), Build((0,), nulls_equal), (type,))
    probed = Pipeline(source(left), (Probe(0, kind, (0,), payload),), Hold(), (type,) * (1 + len(payload)))
    rows = run(program([built, probed]), (left, right)).rows()
    return sorted(rows, key=repr)


def test_nulls_match_only_if_they_are_equal() -> None:
    a, b = ints(1, None), ints(None, 1, 1)
    assert joined("inner", nulls_equal=False, key=a, other=b) == [(1, 1), (1, 1)]
    assert joined("inner", nulls_equal=True, key=a, other=b) == [(1, 1), (1, 1), (None, None)]
    assert joined("left", nulls_equal=False, key=a, other=b) == [(1, 1), (1, 1), (None, None)]
    assert joined("anti", nulls_equal=False, key=a, other=b) == [(None,)]
    assert joined("semi", nulls_equal=True, key=a, other=b) == [(1,), (None,)]


def test_nans_match_and_so_do_zeros() -> None:
    rows = joined("inner", nulls_equal=False, key=floats(NAN, 0.0, 1.0), other=floats(-0.0, NAN))
    assert same(rows, [(0.0, -0.0), (NAN, NAN)])


def test_a_probe_gives_rows_in_any_order() -> None:
    left, right = unnamed([ints(*range(5))]), unnamed([ints(*range(5))])
    built = Pipeline(source(right, 1), (), Build((0,)), (INT64,))
    probed = Pipeline(source(left), (Probe(0, "inner", (0,)),), Hold(True), (INT64,))
    case = Case("", program([built, probed]), (left, right), False)
    assert len(orders(case)) > 1


# --- programs ----------------------------------------------------------------------


def test_chunks_give_what_the_whole_gives() -> None:
    frame = unnamed([ints(3, 1, 2, 1, 3), floats(1.0, 2.0, 3.0, 4.0, 5.0)])
    group = Group((0,), (Aggregate("sum", 1, FLOAT64),), in_order=True)
    case = sink_case("", frame, group, [INT64, FLOAT64], ordered=True)
    for chunk_rows in (None, 1, 2):
        assert run(case.program, case.inputs, chunk_rows=chunk_rows).rows() == [(3, 6.0), (1, 6.0), (2, 3.0)]


def test_places_and_types_are_checked() -> None:
    frame = unnamed([ints(1)])
    given = source(frame)
    one = Pipeline(given, (), Hold(), (INT64,))
    wrong = [
        [Pipeline(given, (Project((Column(1, INT64),)),), Hold(), (INT64,))],
        [Pipeline(given, (Project((Column(0, INT32),)),), Hold(), (INT32,))],
        [Pipeline(given, (Project((Constant(0, INT64),)),), Hold(), (INT64,))],
        [Pipeline(given, (), Hold(), (INT32,))],
        [Pipeline(given, (), Sort((SortKey(3),)), (INT64,))],
        [Pipeline(FromPipeline(0), (), Hold(), (INT64,))],
        [one, Pipeline(given, (Probe(0, "inner", (0,)),), Hold(), (INT64,))],
    ]
    for pipelines in wrong:
        with pytest.raises(ProgramError):
            run(program(pipelines), (frame,))
    assert run(program([one]), (frame,)).rows() == [(1,)]
