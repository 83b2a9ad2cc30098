"""Conformance cases of primitives of numbers, conditions, times and nested values."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import polars as pl

from cudf_polars.execute.gpu.program import CudfType, TypeId
from support.gpu_conformance.build import Case, Scalar, call_case
from support.gpu_conformance.samples import DTYPES, FLOATS, INTEGERS, SIGNED, column, decimals

__all__ = ["number_calls", "other_calls", "time_calls"]

T = TypeId
BOOL, INT16, INT32, STRING, DAYS = (
    CudfType(id) for id in (T.BOOL8, T.INT16, T.INT32, T.STRING, T.TIMESTAMP_DAYS)
)
TIMESTAMPS = (T.TIMESTAMP_DAYS, T.TIMESTAMP_MILLISECONDS, T.TIMESTAMP_MICROSECONDS, T.TIMESTAMP_NANOSECONDS)
DURATIONS = (T.DURATION_MILLISECONDS, T.DURATION_MICROSECONDS, T.DURATION_NANOSECONDS)
COMPARISONS = (
    "equal",
    "not_equal",
    "less",
    "greater",
    "less_equal",
    "greater_equal",
    "null_equals",
    "null_not_equals",
)


def _not_zero(value: Any) -> bool:
    return bool(value != 0)


def _divisor(id: TypeId) -> Callable[[Any], bool]:
    """Return which divisors have a result for all dividends."""
    return _not_zero if id in FLOATS else lambda v: v not in (0, -1)


def _both(
    op: str, id: TypeId, type: CudfType, where: Callable[[Any], bool] = lambda _: True
) -> Iterator[Case]:
    """Yield an operation of two columns, and of a column and a constant on either side."""
    a, b = column(id, 1), column(id, 2, where=where)
    scalar = Scalar(b.drop_nulls().head(1))
    yield call_case(f"{id.name}", op, (a, b), type)
    yield call_case(f"{id.name}, constant right", op, (a, scalar), type)
    yield call_case(f"{id.name}, constant left", op, (Scalar(a.drop_nulls().head(1)), b), type)
    yield call_case(f"{id.name}, empty", op, (a.clear(), b.clear()), type)


def number_calls() -> Iterator[Case]:
    """Yield cases of arithmetic, comparisons, conditions, casts and rounding."""
    yield from _arithmetic()
    yield from _comparisons()
    yield from _decimals()
    yield from _unary()
    yield from _casts()


def _arithmetic() -> Iterator[Case]:
    for id in (*INTEGERS, *FLOATS):
        for op in ("add", "sub", "mul"):
            yield from _both(op, id, CudfType(id))
        for op in ("div", "floor_div", "mod", "pymod"):
            finite = lambda v: v != 0 and not math.isinf(v)  # noqa: E731 (what the remainder by infinity is, is not said)
            where = finite if id in FLOATS and op in ("mod", "pymod", "floor_div") else _divisor(id)
            yield from _both(op, id, CudfType(id), where)
        yield from _both("true_div", id, CudfType(T.FLOAT64), _not_zero)
    for id in INTEGERS:
        for op in ("bitwise_and", "bitwise_or", "bitwise_xor"):
            yield from _both(op, id, CudfType(id))
        bits = int(id.name.lstrip("UINT"))
        by = column(id, 3, values=tuple(range(bits)))
        for op in ("shift_left", "shift_right"):
            yield call_case(id.name, op, (column(id, 1), by), CudfType(id))
        power = column(id, 3, values=(0, 1, 2, 3, 5) + ((-1,) if id in SIGNED else ()))
        yield call_case(id.name, "int_pow", (column(id, 1), power), CudfType(id))
    for id in FLOATS:
        tame = lambda v: abs(v) < 100  # noqa: E731
        yield call_case(id.name, "pow", (column(id, 1, where=tame), column(id, 2, where=tame)), CudfType(id))
        yield from _both("atan2", id, CudfType(id))
    for left, right in ((T.INT32, T.INT64), (T.INT64, T.FLOAT64)):
        a, b = column(left, 1), column(right, 2)
        yield call_case(f"{left.name} and {right.name}", "add", (a, b), CudfType(right))
    for left, right in ((T.INT64, T.UINT64), (T.INT32, T.UINT32), (T.INT8, T.UINT64), (T.FLOAT32, T.INT64)):
        a, b = column(left, 1), column(right, 2)
        for op in ("less", "equal", "greater_equal"):
            yield call_case(f"{left.name} and {right.name}", op, (a, b), BOOL)


def _comparisons() -> Iterator[Case]:
    for id in DTYPES:
        for op in COMPARISONS:
            yield from _both(op, id, BOOL)
    for id in DTYPES:
        if id is T.STRING:
            continue
        for op in ("null_max", "null_min"):
            numbers = lambda v: v == v  # noqa: E731
            a, b = column(id, 1, where=numbers), column(id, 2, where=numbers)
            yield call_case(id.name, op, (a, b), CudfType(id))
    for op in ("null_logical_and", "null_logical_or"):
        yield from _both(op, T.BOOL8, BOOL)


def _decimals() -> Iterator[Case]:
    for wide in (T.DECIMAL64, T.DECIMAL128):
        types = {scale: CudfType(wide, -scale) for scale in (0, 2, 4)}
        for left, right in ((2, 2), (2, 4), (4, 0)):
            a, b = (decimals(left, 1), types[left]), (decimals(right, 2), types[right])
            name = f"{wide.name} {left} and {right}"
            for op in ("add", "sub"):
                yield call_case(name, op, (a, b), CudfType(wide, -max(left, right)))
            yield call_case(name, "mul", (a, b), CudfType(wide, -left - right))
            for op in COMPARISONS:
                yield call_case(name, op, (a, b), BOOL)
        divisor = decimals(2, 3, nulls=0.0).replace(0, 7)
        yield call_case(
            wide.name, "div", ((decimals(4, 1), types[4]), (divisor, types[2])), CudfType(wide, -2)
        )
        for op in ("mod", "pymod"):
            yield call_case(wide.name, op, ((decimals(2, 1), types[2]), (divisor, types[2])), types[2])
        for op in ("null_max", "null_min"):
            yield call_case(wide.name, op, ((decimals(2, 1), types[2]), (decimals(2, 2), types[2])), types[2])
        for mode in ("half_even", "half_up"):
            for places in (0, 1, 2):
                wanted = CudfType(wide, -places)
                yield call_case(
                    f"{wide.name} {mode} {places}",
                    "round_decimal",
                    ((decimals(4, 1), types[4]),),
                    wanted,
                    (places, mode),
                )
            yield call_case(
                f"{wide.name} {mode} negative",
                "round_decimal",
                ((decimals(2, 1), types[2]),),
                CudfType(wide, 1),
                (-1, mode),
                returned=CudfType(wide, 0),
            )
    for op in ("abs", "ceil", "floor"):
        type = CudfType(T.DECIMAL64, -2)
        yield call_case("DECIMAL64", op, ((decimals(2, 1), type),), type)


def _unary() -> Iterator[Case]:
    limits: dict[str, Callable[[float], bool]] = {
        "sin": lambda v: abs(v) < 1e4,
        "cos": lambda v: abs(v) < 1e4,
        "tan": lambda v: abs(v) < 1e4,
        "exp": lambda v: abs(v) < 80,
        "sinh": lambda v: abs(v) < 80,
        "cosh": lambda v: abs(v) < 80,
    }
    functions = "sin cos tan arcsin arccos arctan sinh cosh tanh arcsinh arccosh arctanh"
    functions += " exp log sqrt cbrt ceil floor abs rint"
    for id in FLOATS:
        for op in (*functions.split(), "negate"):
            where = limits.get(op, lambda _: True)
            yield call_case(id.name, op, (column(id, 1, where=where),), CudfType(id))
        for op in ("is_nan", "is_not_nan"):
            yield call_case(id.name, op, (column(id, 1),), BOOL)
        for op in ("nans_to_nulls", "normalize_nans_and_zeros"):
            yield call_case(id.name, op, (column(id, 1),), CudfType(id))
        tame = column(id, 1, where=lambda v: abs(v) < 100)
        for mode in ("half_even", "half_up"):
            yield call_case(f"{id.name} {mode}", "round", (tame,), CudfType(id), (0, mode))
    for id in INTEGERS:
        yield call_case(id.name, "bit_invert", (column(id, 1),), CudfType(id))
        yield call_case(id.name, "bit_count", (column(id, 1),), INT32)
        for mode in ("half_even", "half_up"):
            yield call_case(f"{id.name} {mode}", "round_decimal", (column(id, 1),), CudfType(id), (0, mode))
    for id in SIGNED:
        for op in ("abs", "negate"):
            yield call_case(id.name, op, (column(id, 1),), CudfType(id))
    for id in DURATIONS:
        yield call_case(id.name, "negate", (column(id, 1),), CudfType(id))
    yield call_case("BOOL8", "not", (column(T.BOOL8, 1),), BOOL)
    for id in DTYPES:
        for op in ("is_null", "is_valid"):
            yield call_case(id.name, op, (column(id, 1),), BOOL)
        yield call_case(f"{id.name} without nulls", "is_null", (column(id, 1, nulls=0.0),), BOOL)


def _casts() -> Iterator[Case]:
    for source in (*INTEGERS, T.BOOL8):
        for target in (*INTEGERS, *FLOATS, T.BOOL8):
            if source is not target:
                yield call_case(
                    f"{source.name} to {target.name}", "cast", (column(source, 1),), CudfType(target)
                )
    for source in FLOATS:
        for target in (*INTEGERS, *FLOATS, T.BOOL8):
            low = 0 if target.name.startswith("U") else -100
            where = (lambda v: True) if target in FLOATS else lambda v, low=low: low <= v <= 100
            if target is T.BOOL8:
                where = lambda v: v == v  # noqa: E731
            if source is not target:
                values = column(source, 1, where=where)
                yield call_case(f"{source.name} to {target.name}", "cast", (values,), CudfType(target))
    for source in TIMESTAMPS:
        for target in TIMESTAMPS:
            if source is not target:
                # years that nanoseconds can hold
                values = column(source, 1)
                yield call_case(f"{source.name} to {target.name}", "cast", (values,), CudfType(target))
        whole = CudfType(T.INT32 if source is T.TIMESTAMP_DAYS else T.INT64)
        yield call_case(f"{source.name} to {whole.id.name}", "bit_cast", (column(source, 1),), whole)
    for source in DURATIONS:
        for target in DURATIONS:
            if source is not target:
                yield call_case(
                    f"{source.name} to {target.name}", "cast", (column(source, 1),), CudfType(target)
                )
        yield call_case(source.name, "cast", (column(source, 1),), CudfType(T.INT64))
        yield call_case(f"{source.name} from integers", "cast", (column(T.INT64, 1),), CudfType(source))
        yield call_case(source.name, "bit_cast", (column(source, 1),), CudfType(T.INT64))
    for source, target in ((T.INT64, T.UINT64), (T.UINT32, T.INT32), (T.FLOAT64, T.INT64)):
        numbers = column(source, 1, where=lambda v: v == v)
        yield call_case(f"{source.name} to {target.name}", "bit_cast", (numbers,), CudfType(target))
    bits = column(T.INT32, 1, values=(0, 1, 0x3F80_0000, -0x4080_0000))
    yield call_case("INT32 to FLOAT32", "bit_cast", (bits,), CudfType(T.FLOAT32))
    for wide in (T.DECIMAL64, T.DECIMAL128):
        type = CudfType(wide, -2)
        given = (decimals(2, 1), type)
        for target in (T.INT32, T.INT64, T.FLOAT32, T.FLOAT64):
            yield call_case(f"{wide.name} to {target.name}", "cast", (given,), CudfType(target))
        for other, scale in (
            (T.DECIMAL64, 4),
            (T.DECIMAL128, 4),
            (T.DECIMAL64, 0),
            (T.DECIMAL128, 0),
            (T.DECIMAL128, 1),
        ):
            yield call_case(
                f"{wide.name} to {other.name} of scale {scale}", "cast", (given,), CudfType(other, -scale)
            )
        small = column(T.INT32, 1, where=lambda v: abs(v) < 10**6)
        yield call_case(f"INT32 to {wide.name}", "cast", (small,), type)
        halves = column(T.FLOAT64, 1, where=lambda v: abs(v) < 1000 and v * 8 == round(v * 8))
        yield call_case(f"FLOAT64 to {wide.name}", "cast", (halves,), CudfType(wide, -3))
    yield call_case(
        "DECIMAL64 to INT64", "bit_cast", ((decimals(2, 1), CudfType(T.DECIMAL64, -2)),), CudfType(T.INT64)
    )


def other_calls() -> Iterator[Case]:
    """Yield cases of choices, nulls, sets and nested values."""
    mask = column(T.BOOL8, 9)
    for id in DTYPES:
        type = CudfType(id)
        a, b = column(id, 1), column(id, 2)
        one, two = (Scalar(s.drop_nulls().head(1)) for s in (a, b))
        yield call_case(id.name, "copy_if_else", (mask, a, b), type)
        yield call_case(f"{id.name}, constant then", "copy_if_else", (mask, one, b), type)
        yield call_case(f"{id.name}, constant else", "copy_if_else", (mask, a, two), type)
        yield call_case(f"{id.name}, constants", "copy_if_else", (mask, one, two), type)
        yield call_case(f"{id.name}, constant", "replace_nulls", (a, two), type)
        yield call_case(id.name, "replace_nulls", (a, b), type)
        yield call_case(id.name, "null", (), type)
        some = b.drop_nulls().unique(maintain_order=True).head(4)
        yield call_case(id.name, "contains", (Scalar(some), a), BOOL)
        with_null = pl.concat([some, some.clear(1)])
        yield call_case(f"{id.name}, null in the set", "contains", (Scalar(with_null), a), BOOL)
    for id in FLOATS:
        odd = pl.Series([float("nan"), 0.0, 1.0], dtype=DTYPES[id])
        yield call_case(f"{id.name}, NaN in the set", "contains", (Scalar(odd), column(id, 1)), BOOL)
    for id in (T.INT32, T.FLOAT64, T.TIMESTAMP_DAYS):
        a = column(id, 1, where=lambda v: v == v)
        low, high = a.drop_nulls().sort().gather([8, 30])
        limits = (Scalar(pl.Series([x], dtype=DTYPES[id])) for x in (low, high))
        yield call_case(id.name, "clamp", (a, *limits), CudfType(id))
    yield from _nested()


def _nested() -> Iterator[Case]:
    lists = pl.Series(
        [[1, 2], [], None, [3, None, 1], [None], [-(2**63), -1], [7]] * 3, dtype=pl.List(pl.Int64)
    )
    reals = pl.Series([[0.5, 2.0], [], None, [None, 1.5], [None]] * 3, dtype=pl.List(pl.Float64))
    texts = pl.Series([["a", "b"], [], None, [None, "é"], [""]] * 3, dtype=pl.List(pl.String))
    keys = pl.Series([1, 1, 1, None, 1, -1, 7] * 3, dtype=pl.Int64)
    inner = CudfType(T.INT64)
    for name, values in (("INT64", lists), ("FLOAT64", reals), ("STRING", texts)):
        yield call_case(f"of {name}", "list.length", (values,), INT32)
    yield call_case("column", "list.contains", (lists, keys), BOOL)
    yield call_case("constant", "list.contains", (lists, Scalar(pl.Series([1], dtype=pl.Int64))), BOOL)
    yield call_case("texts", "list.contains", (texts, Scalar(pl.Series(["é"]))), BOOL)
    for index in (0, 1, -1, -2, 5):
        yield call_case(f"{index} of INT64", "list.get", (lists,), inner, (index,))
        yield call_case(f"{index} of STRING", "list.get", (texts,), STRING, (index,))
    for op in ("list.sum", "list.min", "list.max"):
        yield call_case("of INT64", op, (lists,), inner)
        yield call_case("of FLOAT64", op, (reals,), CudfType(T.FLOAT64))
    structs = pl.Series(
        [{"x": 1, "y": "a"}, None, {"x": None, "y": "b"}, {"x": 3, "y": None}] * 3,
        dtype=pl.Struct({"x": pl.Int64, "y": pl.String}),
    )
    yield call_case("0", "struct.field", (structs,), inner, (0,))
    yield call_case("1", "struct.field", (structs,), STRING, (1,))


def time_calls() -> Iterator[Case]:
    """Yield cases of times."""
    parts = "year month day weekday hour minute second millisecond microsecond nanosecond"
    frequencies = "day hour minute second millisecond microsecond nanosecond"
    for id in TIMESTAMPS:
        a = column(id, 1)
        for part in parts.split():
            yield call_case(f"{part} of {id.name}", "dt.component", (a,), INT16, (part,))
        for op in ("dt.day_of_year", "dt.days_in_month", "dt.quarter"):
            yield call_case(id.name, op, (a,), INT16)
        yield call_case(id.name, "dt.last_day_of_month", (a,), DAYS)
        yield call_case(id.name, "dt.is_leap_year", (a,), BOOL)
        for whole in (T.INT16, T.INT32):
            months = column(whole, 3, values=(0, 1, -1, 2, 11, 12, -13, 25))
            yield call_case(f"{id.name} {whole.name}", "dt.add_months", (a, months), CudfType(id))
            one = Scalar(months.drop_nulls().head(1))
            yield call_case(f"{id.name}, constant {whole.name}", "dt.add_months", (a, one), CudfType(id))
        for frequency in frequencies.split():
            yield call_case(f"{frequency} of {id.name}", "dt.floor", (a,), CudfType(id), (frequency,))
    for id in TIMESTAMPS[1:]:
        unit = id.name.split("_")[1]
        duration = TypeId[f"DURATION_{unit}"]
        a, b, d = column(id, 1), column(id, 2), column(duration, 3)
        yield call_case(f"{id.name} and duration", "add", (a, d), CudfType(id))
        yield call_case(f"{id.name} and duration", "sub", (a, d), CudfType(id))
        yield call_case(id.name, "sub", (a, b), CudfType(duration))
        yield call_case(duration.name, "add", (d, d), CudfType(duration))
        yield call_case(duration.name, "sub", (d, column(duration, 4)), CudfType(duration))
        nonzero = column(duration, 5, where=lambda v: v not in (0, -1))
        yield call_case(duration.name, "mod", (d, nonzero), CudfType(duration))
    micro = CudfType(T.DURATION_MICROSECONDS)
    days_as_micros = [(column(T.TIMESTAMP_DAYS, n), CudfType(T.TIMESTAMP_MICROSECONDS)) for n in (1, 2)]
    yield call_case("TIMESTAMP_DAYS as microseconds", "sub", days_as_micros, micro)
    for format in ("%Y-%m-%d", "%Y-%m-%d %H:%M:%S", "%d.%m.%Y %H:%M:%S.%f"):
        for id in TIMESTAMPS:
            yield call_case(f"{id.name} {format}", "str.from_timestamps", (column(id, 1),), STRING, (format,))
    days = pl.Series(["2020-01-02", "1999-12-31", None, "1969-12-31", "2000-02-29"])
    yield call_case("days", "str.to_timestamps", (days,), DAYS, ("%Y-%m-%d",))
    clock = pl.Series(["2020-01-02 03:04:05.678901", None, "1969-12-31 23:59:59.000001"])
    milli = CudfType(T.TIMESTAMP_MILLISECONDS)
    for target in (milli, CudfType(T.TIMESTAMP_MICROSECONDS)):
        yield call_case(target.id.name, "str.to_timestamps", (clock,), target, ("%Y-%m-%d %H:%M:%S.%f",))
    odd = pl.Series(
        ["2020-01-02", "2020-13-02", "2021-02-29", "20-01-02", "", None, "2020-01-02x", " 2020-01-02"]
    )
    yield call_case("days", "str.is_timestamp", (odd,), BOOL, ("%Y-%m-%d",))
