"""Programs whose answers libcudf's headers leave open: what a GPU gives says whether a translator might rest on it.

The emulator answers with values that nobody would expect. These are not compared; whoever has a GPU may look at them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import polars as pl

from cudf_polars.execute.gpu.program import Aggregate, CudfType, Group, TypeId
from support.gpu_conformance.build import Case, call_case, group_case, unnamed
from support.gpu_conformance.samples import DTYPES, FLOATS, INTEGERS, SIGNED

__all__ = ["questions"]

T = TypeId
BOOL, STRING, INT64 = CudfType(T.BOOL8), CudfType(T.STRING), CudfType(T.INT64)
ODD = (math.nan, math.inf, -math.inf, 300.0, -300.0, 1e30)


def questions() -> Iterator[Case]:
    """Yield programs of one call or one aggregate."""
    for id in SIGNED:
        least = -(2 ** (int(id.name.removeprefix("INT")) - 1))
        a, b = (pl.Series([value] * 2, dtype=DTYPES[id]) for value in (least, -1))
        for op in ("div", "floor_div", "mod", "pymod"):
            yield call_case(f"of the least {id.name} by -1", op, (a, b), CudfType(id))
    for id in INTEGERS:
        a, b = pl.Series([7, 0], dtype=DTYPES[id]), pl.Series([0, 0], dtype=DTYPES[id])
        for op in ("div", "floor_div", "mod", "pymod"):
            yield call_case(f"of {id.name} by 0", op, (a, b), CudfType(id))
        for source in FLOATS:
            odd = pl.Series(ODD, dtype=DTYPES[source])
            yield call_case(f"{source.name} that does not fit to {id.name}", "cast", (odd,), CudfType(id))
    for id in FLOATS:
        a = pl.Series([math.nan, 1.0, math.nan], dtype=DTYPES[id])
        b = pl.Series([1.0, math.nan, math.nan], dtype=DTYPES[id])
        for op in ("null_max", "null_min"):
            yield call_case(f"of NaN, {id.name}", op, (a, b), CudfType(id))
        infinite = pl.Series([math.inf, -math.inf, math.inf], dtype=DTYPES[id])
        for op in ("mod", "pymod", "floor_div"):
            yield call_case(
                f"by infinity, {id.name}",
                op,
                (pl.Series([1.5, 1.5, -1.5], dtype=DTYPES[id]), infinite),
                CudfType(id),
            )
        frame = unnamed(
            [
                pl.Series([1, 1, 2, 2, 3]),
                pl.Series([math.nan, 1.0, 2.0, math.nan, math.nan], dtype=DTYPES[id]),
            ]
        )
        for kind in ("min", "max"):
            for keys in ((0,), ()):
                group = Group(keys, (Aggregate(kind, 1, CudfType(id)),))
                yield group_case(f"{kind} beside NaN of {id.name} by {keys}", frame, group)
    texts = pl.Series(["ß", "straße", "İ", "ŉ", "ﬁ", "ΑΣ", "ǆ"])
    for op in ("str.upper", "str.lower"):
        yield call_case("of what has several characters", op, (texts,), STRING)
    numbers = pl.Series(
        ["NaN", "inf", "-Infinity", "1e", "1e+", ".", "+", "-", "e5", "1.2.3", "+-1", " 1", "1 "]
    )
    yield call_case("of what is hardly one", "str.is_float", (numbers,), BOOL)
    yield call_case("of what is hardly one", "str.to_floats", (numbers,), CudfType(T.FLOAT64))
    yield call_case("of what is hardly one", "str.is_integer", (numbers,), BOOL)
    yield call_case(
        "of what is hardly one", "str.to_integers", (pl.Series(["", "-", "+", "x", "9" * 20]),), INT64
    )
    lines = pl.Series(["a\n", "a", "\na", "a\nb", "b\na\n", "a\r\n"])
    for pattern in ("a$", "^a", "a.b", "[[:alpha:]]+", "[a-z&&[^b]]", "\\d", "\\bé"):
        yield call_case(
            repr(pattern),
            "str.contains",
            (pl.concat([lines, pl.Series(["٣", "xé", "&", ":"])]),),
            BOOL,
            (pattern,),
        )
