"""Programs by which libcudf is compared with its emulator on a GPU: every primitive, aggregate, sink and join.

What they compute is defined: no case divides by zero or casts what does not fit (a test runs each twice, with different
values for what is undefined). ``check`` compares what a GPU gave with the emulator's answer.
"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl
from polars.testing import assert_frame_equal

from support.cudf_emulator import run
from support.gpu_conformance.build import Case
from support.gpu_conformance.calls import number_calls, other_calls, time_calls
from support.gpu_conformance.operators import group_cases, join_cases, order_cases, scan_case
from support.gpu_conformance.questions import questions
from support.gpu_conformance.texts import text_calls

__all__ = ["Case", "cases", "check", "compare", "questions", "scan_case"]


def cases() -> Iterator[Case]:
    """Yield all cases that need no files."""
    yield from number_calls()
    yield from other_calls()
    yield from time_calls()
    yield from text_calls()
    yield from group_cases()
    yield from order_cases()
    yield from join_cases()


def check(case: Case, actual: pl.DataFrame) -> None:
    """Compare what a program gave with what the emulator gives.

    Raises
    ------
    AssertionError
        If they differ: in values (floats by 1e-9, Float32 by 1e-6), types, or the order of rows where one is promised.
    """
    compare(case, actual, run(case.program, case.inputs))


def compare(case: Case, actual: pl.DataFrame, expected: pl.DataFrame) -> None:
    """Compare two answers to a case; see :func:`check`."""
    if not case.ordered:
        floats = [name for name, dtype in expected.schema.items() if dtype.is_float()]
        by = [name for name in expected.columns if name not in floats] + floats
        actual, expected = actual.sort(by), expected.sort(by)
    narrow = any(dtype == pl.Float32 for dtype in expected.dtypes)
    assert_frame_equal(actual, expected, rel_tol=1e-6 if narrow else 1e-9, abs_tol=1e-12)
