"""The PDS-H queries at scale factor 0.01 on 1 to 3 ranks: Polars' answers, without fallbacks."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from execute.compare import ORDINARY, TINY, run
from polars.testing import assert_frame_equal

from benchmarks.pdsh.queries import QUERIES, Tables
from cudf_polars.execute.options import ExecutionOptions


@pytest.fixture(scope="session")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    """Return the tables, made by tpchgen-cli."""
    program = shutil.which("tpchgen-cli")
    if program is None:
        pytest.skip("tpchgen-cli is not on the PATH (pip install tpchgen-cli)")
    folder = tmp_path_factory.mktemp("pdsh")
    subprocess.run(
        [program, "parquet", "-s", "0.01", f"--output-dir={folder}"],
        check=True,
        capture_output=True,
        timeout=120,
    )
    return Tables(Path(folder))


@pytest.mark.parametrize("options", [TINY, ORDINARY], ids=["tiny", "ordinary"])
@pytest.mark.parametrize("nranks", [1, 2, 3])
@pytest.mark.parametrize("number", sorted(QUERIES))
def test_answer(tables: Tables, number: int, nranks: int, options: ExecutionOptions) -> None:
    query = QUERIES[number]
    frame = query.build(tables)
    expected = frame.collect(engine="streaming")
    actual, outcomes = run(frame, nranks, options)
    assert actual.schema == expected.schema
    assert not outcomes[0].fallbacks
    # The sort columns compare in place; rows that tie in them may come in any order.
    order = list(query.order)
    assert_frame_equal(actual.select(order), expected.select(order), rel_tol=1e-9)
    by = [name for name, dtype in expected.schema.items() if not dtype.is_float()] or expected.columns
    assert_frame_equal(actual.sort(by), expected.sort(by), rel_tol=1e-9)
