"""The PDS-H queries as programs for libcudf, run by the emulator: Polars' answers, and nothing left to Polars."""

from __future__ import annotations

from pathlib import Path

import pytest
from polars.testing import assert_frame_equal

from benchmarks.pdsh.queries import QUERIES, Tables
from cudf_polars.execute.gpu.translate import translate
from cudf_polars.plan.read import read_plan
from support.cudf_emulator import run


@pytest.mark.parametrize("chunk_rows", [None, 1000], ids=["whole", "chunks"])
@pytest.mark.parametrize("floats", [False, True], ids=["decimals", "floats"])
@pytest.mark.parametrize("number", sorted(QUERIES))
def test_answer(pdsh_folder: Path, number: int, floats: bool, chunk_rows: int | None) -> None:
    query = QUERIES[number]
    frame = query.build(Tables(pdsh_folder, floats=floats))
    translated = translate(read_plan(frame).root, {})
    actual = run(translated.program, translated.frames, chunk_rows=chunk_rows, seed=number)
    expected = frame.collect(engine="streaming")
    assert actual.schema == expected.schema
    # The sort columns compare in place; rows that tie in them may come in any order.
    order = list(query.order)
    assert_frame_equal(actual.select(order), expected.select(order), rel_tol=1e-9)
    by = [name for name, dtype in expected.schema.items() if not dtype.is_float()] or expected.columns
    assert_frame_equal(actual.sort(by), expected.sort(by), rel_tol=1e-9)
