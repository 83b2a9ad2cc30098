"""The PDS-H queries are programs as they are, and give Polars' answers."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from execute.gpu.translated import emulated
from polars.testing import assert_frame_equal

from benchmarks.pdsh.queries import QUERIES, Tables


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return where the tables are, made by tpchgen-cli."""
    program = shutil.which("tpchgen-cli")
    if program is None:
        pytest.skip("tpchgen-cli is not on the PATH (pip install tpchgen-cli)")
    folder = tmp_path_factory.mktemp("pdsh")
    command = [program, "parquet", "-s", "0.01", f"--output-dir={folder}"]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    return folder


@pytest.mark.parametrize("floats", [False, True], ids=["decimals", "floats"])
@pytest.mark.parametrize("number", sorted(QUERIES))
def test_answer(folder: Path, number: int, floats: bool) -> None:
    query = QUERIES[number]
    frame = query.build(Tables(folder, floats=floats))
    expected = frame.collect()
    actual = emulated(frame)
    assert actual.schema == expected.schema
    order = list(query.order)
    assert_frame_equal(actual.select(order), expected.select(order), rel_tol=1e-9)
    by = [name for name, dtype in expected.schema.items() if not dtype.is_float()] or expected.columns
    assert_frame_equal(actual.sort(by), expected.sort(by), rel_tol=1e-9)
