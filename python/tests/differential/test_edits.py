"""Tests of the edits by which a comparison asks Polars what a difference comes of."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from cudf_polars.execute.options import ExecutionOptions
from differential.cases import Case
from differential.compare import Kind, Reference, judge
from differential.edits import named_expressions
from differential.ranks import RankEnd
from differential.relation import ANY_ORDER, Line, State
from differential.tables import Table


def _case(frame: pl.DataFrame, *texts: str) -> Case:
    table = Table(name="t0", kind="frame", frame=frame, cuts=(0, frame.height), options={})
    lines = [Line("t0", (), "t0_rows.lazy()", _keep)]
    lines += [Line(f"q{number}", (), text, _keep) for number, text in enumerate(texts)]
    state = State(ANY_ORDER, frozenset())
    return Case(0, [table], lines, state, 1, shipped=False, loopback=False, options=ExecutionOptions())


def _keep(*_: object) -> State:
    return State(ANY_ORDER, frozenset())


def _judged(case: Case, answer: pl.DataFrame, folder: Path) -> Kind | None:
    found = judge(case, Reference(case, folder), [RankEnd(frame=answer)])
    return None if found is None else found.kind


def test_an_error_in_a_column_that_nobody_reads_is_none_of_the_query(tmp_path: Path) -> None:
    frame = pl.DataFrame({"k": [2, 1], "b": [True, False]})
    case = _case(
        frame,
        "t0.select(c('k'), (pl.lit(dt.timedelta(1)) == c('b')).alias('z'))",
        "q0.sort('z').merge_sorted(q0.sort('z'), 'z').select(c('k').sum())",
    )
    assert list(named_expressions(case.lines)) == [(1, "z")]
    assert isinstance(Reference(case, tmp_path).answer("streaming").error, pl.exceptions.PolarsError)
    assert _judged(case, pl.DataFrame({"k": [6]}), tmp_path) is None
    assert _judged(case, pl.DataFrame({"k": [7]}), tmp_path) == Kind.WE_ANSWER


def test_an_error_in_a_column_of_the_answer_is_one_of_the_query(tmp_path: Path) -> None:
    case = _case(pl.DataFrame({"b": [True]}), "t0.select((pl.lit(dt.timedelta(1)) == c('b')).alias('z'))")
    answer = pl.DataFrame({"z": [False]})
    assert _judged(case, answer, tmp_path) == Kind.WE_ANSWER


def test_a_standard_deviation_has_the_digits_of_its_values(tmp_path: Path) -> None:
    values = [2.0**32, 2.0**32 + 1.5, 2.0**32 + 4]
    exact = pl.Series(values).std()
    assert isinstance(exact, float)
    near = _case(pl.DataFrame({"x": values}), "t0.select(c('x').std().alias('z'))")
    assert _judged(near, pl.DataFrame({"z": [exact + 1e-6]}), tmp_path) is None
    assert _judged(near, pl.DataFrame({"z": [exact + 1e-4]}), tmp_path) is not None
    small = _case(pl.DataFrame({"x": [0.0, 1.5, 4.0]}), "t0.select(c('x').std().alias('z'))")
    assert _judged(small, pl.DataFrame({"z": [exact + 1e-6]}), tmp_path) == Kind.ROWS


def test_an_error_in_rows_that_a_filter_leaves_out_is_none_of_the_query(tmp_path: Path) -> None:
    frame = pl.DataFrame({"k": ["x"], "b": [True]})
    case = _case(
        frame,
        "t0.with_columns((c('k').cast(pl.Int64)).alias('z'), (c('b').sum()).alias('n')).filter(~c('b'))",
    )
    answer = pl.DataFrame(
        {"k": [], "b": [], "z": [], "n": []},
        schema={"k": pl.String, "b": pl.Boolean, "z": pl.Int64, "n": pl.get_index_type()},
    )
    assert isinstance(Reference(case, tmp_path).answer("streaming").error, pl.exceptions.PolarsError)
    assert _judged(case, answer, tmp_path) is None
    assert _judged(case, answer.clear(1), tmp_path) == Kind.WE_ANSWER
