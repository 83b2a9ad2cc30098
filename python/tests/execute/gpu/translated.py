"""Runs queries as programs in the emulator of libcudf, and compares with Polars."""

from __future__ import annotations

import math
from collections.abc import Sequence

import polars as pl
from polars.testing import assert_frame_equal

from cudf_polars.execute.gpu.translate import translate
from cudf_polars.execute.streams import conform
from cudf_polars.plan.read import read_plan
from support.cudf_emulator import run

__all__ = ["check", "emulated"]


def emulated(query: pl.LazyFrame) -> pl.DataFrame:
    """Return what a query gives as a program; raises UntranslatablePlan if it has none."""
    translated = translate(read_plan(query).root, {})
    rows = run(translated.program, list(translated.frames))
    return conform(rows, translated.program.schema)


def check(query: pl.LazyFrame, *, order: bool = True, rel_tol: float = 1e-9) -> None:
    """Fail if a query as a program gives something else than Polars."""
    assert_frame_equal(
        emulated(query), query.collect(), check_row_order=order, rel_tol=rel_tol, abs_tol=1e-12
    )


def differences(query: pl.LazyFrame, names: Sequence[str]) -> list[str]:
    """Return which columns of a query differ from Polars'."""
    ours, theirs = emulated(query), query.collect()
    return [name for name in names if not same(ours[name], theirs[name])]


def same(a: pl.Series, b: pl.Series, rel_tol: float = 1e-9) -> bool:
    """Whether two columns are equal, floats nearly, and NaN to NaN."""
    if a.dtype != b.dtype or len(a) != len(b):
        return False
    if not a.dtype.is_float():
        return a.equals(b, null_equal=True)
    for x, y in zip(a, b, strict=True):
        if x is None or y is None:
            if x is not y:
                return False
        elif math.isnan(x) or math.isnan(y):
            if not (math.isnan(x) and math.isnan(y)):
                return False
        elif not math.isclose(x, y, rel_tol=rel_tol, abs_tol=1e-12):
            return False
    return True
