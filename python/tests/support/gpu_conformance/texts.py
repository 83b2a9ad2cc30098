"""Conformance cases of primitives of texts."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from cudf_polars.execute.gpu.program import CudfType, TypeId
from support.gpu_conformance.build import Case, Scalar, call_case
from support.gpu_conformance.samples import INTEGERS, TEXTS, column

__all__ = ["text_calls"]

T = TypeId
BOOL, INT32, STRING = (CudfType(id) for id in (T.BOOL8, T.INT32, T.STRING))
_PATTERNS = (
    *(
        "a",
        "^a",
        "a$",
        "ab",
        "a.b?",
        "[ab]+",
        "[^a]",
        "a|b",
        "(ab)+",
        "a{2}",
        "a{1,2}",
        ".",
        ".*",
        "a.*c",
        "^$",
    ),
    *("[0-9]+", "\\d", "\\w+", "\\s", "\\.", "[A-Z]", "[a-zé]+", "x.y", "forest.*green", "é|日", "^(ab|a)c?"),
)


def _scalar(text: str) -> Scalar:
    return Scalar(pl.Series([text]))


def text_calls() -> Iterator[Case]:
    """Yield the cases."""
    a, b = column(T.STRING, 1), column(T.STRING, 2)
    # \s and control characters beside each other are not said to be the same by all
    for op in ("str.length", "str.bytes"):
        yield call_case("", op, (a,), INT32)
    for op in ("str.reverse",):
        yield call_case("", op, (a,), STRING)
    one_to_one = pl.Series([t for t in TEXTS if "ß" not in t])
    for op in ("str.upper", "str.lower"):
        yield call_case("", op, (one_to_one,), STRING)
    yield from _finding(a, b)
    yield from _parts(a)
    yield from _numbers()
    yield call_case("two", "str.concat", (a, b), STRING, ("",))
    yield call_case("three", "str.concat", (a, b, column(T.STRING, 3)), STRING, (", ",))
    yield call_case("empty", "str.concat", (a.clear(), b.clear()), STRING, ("-",))


def _finding(a: pl.Series, b: pl.Series) -> Iterator[Case]:
    for pattern in _PATTERNS:
        yield call_case(repr(pattern), "str.contains", (a,), BOOL, (pattern,))
        yield call_case(repr(pattern), "str.matches", (a,), BOOL, (pattern,))
    for pattern in ("a", "[ab]", "ab|a", "[0-9]+", "\\.", "é"):
        yield call_case(repr(pattern), "str.count", (a,), INT32, (pattern,))
        for count in (-1, 1):
            yield call_case(f"{pattern!r} {count}", "str.replace_re", (a,), STRING, (pattern, "<>", count))
    for pattern, escape in (
        ("a%", ""),
        ("%a%", ""),
        ("_b%", ""),
        ("a/%%", "/"),
        ("%/_c", "/"),
        ("é%", ""),
        ("", ""),
    ):
        yield call_case(repr(pattern), "str.like", (a,), BOOL, (pattern, escape))
    for text in ("a", "b", "é", "ab", "€c"):
        yield call_case(repr(text), "str.find", (a,), INT32, (text,))
        for count in (-1, 1):
            yield call_case(f"{text!r} {count}", "str.replace", (a,), STRING, (text, "<é>", count))
    short = column(T.STRING, 4, values=("", "a", "ab", "é", "b"))
    for op in ("str.has", "str.starts_with", "str.ends_with"):
        for text in ("a", "", "é", "c"):
            yield call_case(f"{text!r}", op, (a, _scalar(text)), BOOL)
        yield call_case("column", op, (a, short), BOOL)
        yield call_case("column, no nulls left", op, (a.fill_null("x"), short), BOOL)


def _parts(a: pl.Series) -> Iterator[Case]:
    for start, stop in ((0, -1), (0, 0), (1, 3), (2, -1), (3, 3), (30, 40), (0, 1)):
        yield call_case(f"{start} to {stop}", "str.slice", (a,), STRING, (start, stop))
    starts = column(T.INT32, 5, values=(0, 1, 2, 9), nulls=0.0)
    stops = column(T.INT32, 6, values=(-1, 0, 1, 3, 20), nulls=0.0)
    yield call_case("", "str.slice_columns", (a, starts, stops), STRING)
    for side in ("both", "left", "right"):
        for characters in ("", "a", " ab", "é"):
            yield call_case(f"{side} {characters!r}", "str.strip", (a,), STRING, (side, characters))
    for width in (0, 3, 6):
        yield call_case(str(width), "str.zfill", (a,), STRING, (width,))
        for side in ("left", "right"):
            yield call_case(f"{width} {side}", "str.pad", (a,), STRING, (width, side, "é"))
    for count in (0, 1, 3):
        yield call_case(str(count), "str.repeat", (a,), STRING, (count,))


def _numbers() -> Iterator[Case]:
    whole = pl.Series(["0", "12", "-3", "+4", "127", "-128", None, "007"])
    odd = pl.Series(
        ["0", "12", "-3", "+4", "", "-", "1.5", " 1", "7z", "128", "99999999999999999999", None, "--1"]
    )
    for id in INTEGERS:
        fits = (
            whole
            if not id.name.startswith("U")
            else whole.filter(~whole.str.starts_with("-").fill_null(False))
        )
        yield call_case(id.name, "str.to_integers", (fits,), CudfType(id))
        yield call_case(id.name, "str.is_integer", (odd,), BOOL, (int(id),))
        yield call_case(id.name, "str.from_integers", (column(id, 1),), STRING)
    yield call_case("any", "str.is_integer", (odd,), BOOL)
    reals = pl.Series(["0", "1.5", "-2.25", "+4", "1e3", "-2.5e-2", ".5", "7.", None])
    for target in (T.FLOAT32, T.FLOAT64):
        yield call_case(target.name, "str.to_floats", (reals,), CudfType(target))
    maybe = pl.Series(["0", "1.5", "-2.25", "+4", "1e3", "", "abc", "1,5", None, "x1"])
    yield call_case("", "str.is_float", (maybe,), BOOL)
    yield call_case("", "str.from_booleans", (column(T.BOOL8, 1),), STRING)
