"""Random queries as programs for libcudf, run by its emulator, give what Polars gives."""

from __future__ import annotations

import contextlib
import os
import random
import warnings
from collections import Counter

import polars as pl
import pytest
from execute.gpu.choices import Choices, from_seed, shortest
from execute.gpu.drawn_plans import Query, queries, query_of
from hypothesis import HealthCheck, given, settings
from polars.testing import assert_frame_equal

from cudf_polars.execute.gpu.translate import UntranslatablePlan, translate
from cudf_polars.plan.read import read_plan
from support.cudf_emulator import ProgramError, run

CASES = int(os.environ.get("CASES", "4000"))
"""Random queries by seed; hypothesis makes a quarter as many more."""

FIRST = int(os.environ.get("FIRST", "0"))
MOST_REFUSED = 0.25


class Outcomes:
    """What became of queries."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.refusals: Counter[str] = Counter()

    def check_refusals(self) -> None:
        """Fail if so many queries have no form that what is compared says little."""
        asked = self.counts["compared"] + self.counts["refused"]
        assert self.counts["refused"] <= MOST_REFUSED * asked, (self.counts, self.refusals.most_common(20))


def check(query: Query, outcomes: Outcomes) -> None:
    """Fail if a query as a program gives something else than Polars."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            expected = query.frame.collect()
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
            outcomes.counts["wrong"] += 1  # an overflow of decimals, types that do not meet
            return
        try:
            translated = translate(read_plan(query.frame).root, {})
        except UntranslatablePlan as refusal:
            outcomes.counts["refused"] += 1
            outcomes.refusals[f"{type(refusal.node).__name__}: {refusal.reason}"] += 1
            return
    chunk_rows = random.Random(expected.height).choice([None, None, 3])
    actual = run(translated.program, translated.frames, chunk_rows=chunk_rows, seed=expected.height)
    outcomes.counts["compared"] += 1
    assert dict(actual.schema) == dict(expected.schema), query.text
    try:
        compare(actual, expected, query)
    except AssertionError as error:
        if _an_engine_gives(actual, query):
            outcomes.counts["engines of Polars disagree"] += (
                1  # var(ddof=0) of a group whose only row is null
            )
            return
        raise AssertionError(f"{error}\n{query.text}\nPolars: {expected}\nprogram: {actual}") from None


def _an_engine_gives(actual: pl.DataFrame, query: Query) -> bool:
    """Whether one of Polars' engines, if not the one that it chose, gives these rows."""
    for engine in ("in-memory", "streaming"):
        with contextlib.suppress(AssertionError, pl.exceptions.PolarsError, pl.exceptions.PanicException):
            compare(actual, query.frame.collect(engine=engine), query)
            return True
    return False


def compare(actual: pl.DataFrame, expected: pl.DataFrame, query: Query) -> None:
    """Fail if frames differ more than Polars promises."""
    if not query.ordered:
        by = list(query.sorted_by)
        assert_frame_equal(actual.select(by), expected.select(by))
        floats = [name for name, dtype in expected.schema.items() if dtype.is_float()]
        rest = [name for name in expected.columns if name not in floats]
        actual, expected = (frame.sort([*rest, *floats]) for frame in (actual, expected))
    assert_frame_equal(
        actual, expected, rel_tol=1e-6 if pl.Float32 in expected.dtypes else 1e-9, abs_tol=1e-9
    )


def _fails(choices: Choices) -> bool:
    try:
        check(query_of(choices), Outcomes())
    except (AssertionError, ProgramError, KeyError, TypeError, ValueError):
        return True
    except pl.exceptions.PolarsError:
        return False
    return False


@pytest.mark.timeout(900)
def test_random_queries() -> None:
    outcomes = Outcomes()
    for seed in range(FIRST, FIRST + CASES):
        choices = from_seed(seed)
        try:
            check(query_of(choices), outcomes)
        except Exception as error:
            smaller = query_of(shortest(choices.made, _fails))
            with pytest.raises(Exception) as simple:  # noqa: PT011 (whatever it is, it is shown)
                check(smaller, Outcomes())
            raise AssertionError(f"seed {seed}\n{simple.value}\n{smaller.text}") from error
    outcomes.check_refusals()


@pytest.mark.timeout(900)
def test_queries_of_hypothesis() -> None:
    outcomes = Outcomes()

    @settings(
        max_examples=CASES // 4,
        deadline=None,
        database=None,
        derandomize=not FIRST,
        suppress_health_check=list(HealthCheck),
    )
    @given(queries())
    def search(query: Query) -> None:
        check(query, outcomes)

    search()
    outcomes.check_refusals()
