"""``scripts/polars_suite.py`` finds the tests that an engine of ours loses, and only these."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

TESTS = '''
import os
import polars as pl
import pytest

LF = pl.LazyFrame({"a": [3, 1, 2]})


def test_passes():
    assert LF.select(pl.col("a").sum()).collect().item() == 6


def test_every_way_to_collect():
    query = LF.select(pl.col("a").max())
    assert [frame.item() for frame in pl.collect_all([query, query])] == [3, 3]
    assert query.collect(engine="in-memory", background=True).fetch_blocking().item() == 3


def test_one_rank():
    assert LF.select(pl.col("a").ewm_mean(alpha=1.0)).collect()["a"].to_list() == [3.0, 1.0, 2.0]


def test_runs_elsewhere():
    """Is lost: the user's function runs in a rank."""
    here = os.getpid()
    where = LF.map_batches(lambda df: df.select(a=pl.lit(os.getpid() - here, pl.Int64)))
    assert where.collect().item() == 0


def test_ends_its_rank():
    """Is lost, and those behind it find other ranks."""
    here = os.getpid()
    LF.map_batches(lambda df: df if os.getpid() == here else os._exit(7)).collect()


def test_fails_anyway():
    assert LF.collect().height == 4


def test_sees_the_environment(monkeypatch):
    monkeypatch.setenv("POLARS_SOMETHING", "on")
    seen = LF.map_batches(lambda df: df.select(a=pl.lit(len(os.environ["POLARS_SOMETHING"]), pl.Int64)))
    assert seen.collect().item() == 2
'''

LIST = """
[[lost]]
test = "tests/unit/test_some.py::test_runs_elsewhere"
class = "harness"
reason = "looks at its process"
"""


def _run(folder: Path, expected: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "expected.toml").write_text(expected)
    command = [sys.executable, str(ROOT / "scripts" / "polars_suite.py"), "--tests", str(folder)]
    command += ["--expected", str(folder / "expected.toml"), "--build", str(folder / "build")]
    return subprocess.run(
        [*command, *arguments, "tests/unit"],
        capture_output=True,
        text=True,
        timeout=240,
        cwd=folder,
        env={k: v for k, v in os.environ.items() if k != "POLARS_TESTS"},
    )


@pytest.fixture
def tests(tmp_path: Path) -> Path:
    unit = tmp_path / "py-polars" / "tests" / "unit"
    unit.mkdir(parents=True)
    (unit / "test_some.py").write_text(TESTS)
    (tmp_path / "py-polars" / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    return tmp_path


def test_lost_tests_are_found(tests: Path) -> None:
    done = _run(tests, LIST + LIST.replace("runs_elsewhere", "passes"), "--tiny", "--fallbacks")
    assert done.returncode == 1, done
    assert "Polars' streaming engine: 6 passed, 1 failed" in done.stdout
    assert "this engine: 4 passed, 3 failed" in done.stdout
    assert "2 tests are lost, 1 of them expected" in done.stdout
    assert "NOT EXPECTED: 1\n  tests/unit/test_some.py::test_ends_its_rank (failed)" in done.stdout
    assert (
        "EXPECTED BUT NOT LOST, take them from the list: 1\n  tests/unit/test_some.py::test_passes"
        in done.stdout
    )
    assert "| 1 | SELECT (an expression looks at other rows: ewm_mean) |" in done.stdout

    done = _run(tests, LIST + LIST.replace("runs_elsewhere", "ends_its_rank"), "--tiny")
    assert done.returncode == 0, done
    assert "2 tests are lost, 2 of them expected" in done.stdout
