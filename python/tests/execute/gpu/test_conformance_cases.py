"""The programs that compare libcudf with its emulator on a GPU: all there is occurs, and answers are defined."""

from __future__ import annotations

import contextlib
import typing
from collections import Counter
from pathlib import Path

import polars as pl
import pytest

from cudf_polars.execute.gpu.primitives import PRIMITIVES
from cudf_polars.execute.gpu.program import (
    Call,
    Distinct,
    FromJoin,
    FromPipeline,
    Group,
    Probe,
    Sink,
    Source,
    Step,
    Value,
)
from support.cudf_emulator import ProgramError, run
from support.gpu_conformance import Case, cases, check, compare, questions, scan_case

CASES = tuple(cases())


def _calls(value: Value) -> list[str]:
    if not isinstance(value, Call):
        return []
    return [value.op, *(op for arg in value.args for op in _calls(arg))]


def test_names_tell_cases_apart() -> None:
    assert [name for name, count in Counter(case.name for case in CASES).items() if count > 1] == []


def test_every_primitive_is_called() -> None:
    called = {op for case in CASES for value in case.program.values() for op in _calls(value)}
    assert called == set(PRIMITIVES)


def test_every_part_of_a_program_occurs(tmp_path: Path) -> None:
    pipelines = [p for case in (*CASES, scan_case(tmp_path)) for p in case.program.pipelines]
    assert {type(p.source) for p in pipelines} >= set(typing.get_args(Source)) - {FromPipeline}
    assert {type(p.sink) for p in pipelines} == set(typing.get_args(Sink))
    assert {type(step) for p in pipelines for step in p.steps} == set(typing.get_args(Step))
    kinds = {step.kind for p in pipelines for step in p.steps if isinstance(step, Probe)}
    assert kinds == {"inner", "left", "semi", "anti"}
    assert {p.source.kind for p in pipelines if isinstance(p.source, FromJoin)} == {"full", "cross"}
    assert {p.sink.keep for p in pipelines if isinstance(p.sink, Distinct)} == {
        "any",
        "first",
        "last",
        "none",
    }


def test_every_aggregate_occurs() -> None:
    sinks = [p.sink for case in CASES for p in case.program.pipelines]
    kinds = {a.kind for sink in sinks if isinstance(sink, Group) for a in sink.aggregates}
    every = (
        "sum min max count_valid count_all mean nunique nunique_valid var std median quantile first last any"
    )
    assert kinds == {*every.split(), "product"}


def test_answers_do_not_depend_on_what_is_undefined() -> None:
    for case in CASES:
        once = run(case.program, case.inputs, seed=0)
        compare(case, run(case.program, case.inputs, chunk_rows=7, seed=1), once)


def test_questions_are_programs() -> None:
    for case in questions():
        with contextlib.suppress(ProgramError):  # what libcudf is asked may be what the emulator refuses
            run(case.program, case.inputs)


def test_a_scan_gives_its_row_groups(tmp_path: Path) -> None:
    case = scan_case(tmp_path)
    rows = run(case.program, case.inputs)
    assert rows.height == 10 + 25 + 60
    check(case, rows)


def test_a_wrong_answer_is_seen() -> None:
    case: Case = next(case for case in CASES if case.name == "str.length")
    with pytest.raises(AssertionError):
        check(case, run(case.program, case.inputs).select((pl.all() + 1).alias("0")))
