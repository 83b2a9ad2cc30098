"""Errors planted into programs are found by random queries: each trap between Polars and libcudf has one."""

from __future__ import annotations

import warnings
from collections import Counter

import polars as pl
import pytest
from execute.gpu.choices import from_seed
from execute.gpu.drawn_plans import query_of
from execute.gpu.planted import ERRORS
from execute.gpu.test_random_plans import compare

from cudf_polars.execute.gpu.translate import UntranslatablePlan, translate
from cudf_polars.plan.read import read_plan
from support.cudf_emulator import ProgramError, run

CASES = 5000


@pytest.mark.timeout(600)
def test_every_error_is_found() -> None:
    found: Counter[str] = Counter()
    places: Counter[str] = Counter()

    for seed in range(CASES):
        query = query_of(from_seed(seed))
        wanted = [name for name in ERRORS if name not in found]
        if not wanted:
            break
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                expected = query.frame.collect()
                translated = translate(read_plan(query.frame).root, {})
            except (pl.exceptions.PolarsError, pl.exceptions.PanicException, UntranslatablePlan):
                continue
        try:
            compare(run(translated.program, translated.frames, seed=1), expected, query)
        except (AssertionError, ProgramError):
            continue  # the other test finds that
        for name in wanted:
            wrong = ERRORS[name](translated.program)
            if wrong == translated.program:
                continue
            places[name] += 1
            try:
                compare(run(wrong, translated.frames, seed=1), expected, query)
            except Exception:  # a wrong answer, or a program that libcudf does not run
                found[name] = places[name]
    missing = {name: places[name] for name in ERRORS if name not in found}
    assert not missing, str(missing)
