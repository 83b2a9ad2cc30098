"""scripts/count_tests.py adds up what the test programs report."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "count_tests.py"

CTEST = """<testsuite tests="4">
<testcase name="a" classname="a" status="run"/>
<testcase name="b" classname="b" status="fail"><failure message=""/></testcase>
<testcase name="c" classname="c" status="notrun"><skipped message="x"/></testcase>
<testcase name="d" classname="d" status="run"/></testsuite>"""
PYTEST = """<testsuites><testsuite><testcase name="e" classname="m"/>
<testcase name="f" classname="m"><error message="set-up"/></testcase>
<testcase name="g" classname="m"><skipped message="no"/></testcase></testsuite></testsuites>"""
GOOD = """<testsuite><testcase name="a" classname="a"/></testsuite>"""


def run(*paths: Path) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *map(str, paths)], capture_output=True, text=True, timeout=60
    )
    return done.returncode, done.stdout


def test_sums_over_both_dialects(tmp_path: Path) -> None:
    (tmp_path / "c.xml").write_text(CTEST)
    (tmp_path / "p.xml").write_text(PYTEST)
    assert run(tmp_path / "c.xml", tmp_path / "p.xml") == (1, "3 passed, 2 failed, 2 skipped\n")


def test_all_passed(tmp_path: Path) -> None:
    (tmp_path / "g.xml").write_text(GOOD)
    assert run(tmp_path / "g.xml") == (0, "1 passed, 0 failed\n")


def test_a_step_without_results_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "g.xml").write_text(GOOD)
    (tmp_path / "half.xml").write_text("<testsuite><testca")
    result = run(tmp_path / "g.xml", tmp_path / "half.xml", tmp_path / "missing.xml")
    assert result == (1, "1 passed, 2 failed\n")


def test_nothing_at_all_is_not_a_success() -> None:
    assert run() == (1, "0 passed, 0 failed\n")
