"""scripts/fuzz.py, with programs in place of fuzzers that end in every way in which one can."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
# Writes a seed when it is asked for seeds, as fuzzers do; then ends as one.
PROGRAM = """#!/bin/sh
if [ -n "$RAPIDSMPF_FUZZ_SEEDS" ]; then echo seed > "$RAPIDSMPF_FUZZ_SEEDS/seed-0"; exit 0; fi
{end}
"""
QUIET = "echo 'stat::number_of_executed_units: 4711'"
FINDING = "echo '==1==ERROR: AddressSanitizer: heap-buffer-overflow on address 0x1'; exit 77"


def run_fuzzers(folder: Path, ends: dict[str, str]) -> tuple[int, str, dict[str, str]]:
    """Return the exit status, the output, and of each fuzzer what was found, empty if nothing was."""
    programs = folder / "fuzzers"
    programs.mkdir()
    for name, end in ends.items():
        program = programs / f"{name}_fuzzer"
        program.write_text(PROGRAM.format(end=end))
        program.chmod(0o700)
    (folder / "fuzzers.txt").write_text("".join(f"{name}\n" for name in ends))
    junit = folder / "fuzz.xml"
    command = [
        sys.executable,
        str(ROOT / "scripts" / "fuzz.py"),
        str(folder),
        "--seconds",
        "1",
        "--junit",
        str(junit),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    cases = ElementTree.parse(junit).getroot().iter("testcase")
    found = {case.get("name", ""): "".join(failure.text or "" for failure in case) for case in cases}
    return done.returncode, done.stdout, found


def test_nothing_found_and_the_planted_overflow_found_is_success(tmp_path):
    status, output, found = run_fuzzers(tmp_path, {"frames": QUIET, "planted_overflow": FINDING})
    assert (status, found) == (0, {"frames": "", "planted_overflow": ""})
    assert "frames: 4,711 inputs" in output


@pytest.mark.parametrize(
    ("end", "said"),
    [
        (FINDING, "heap-buffer-overflow"),
        ("echo 'x.cpp:1:2: runtime error: signed integer overflow'; exit 1", "signed integer overflow"),
        ("kill -SEGV $$", "exit status -11"),
        ("echo 'Done, with no word of how many inputs'", "Done"),
    ],
)
def test_a_finding_is_a_failure(tmp_path, end, said):
    status, _, found = run_fuzzers(tmp_path, {"frames": end, "other": QUIET})
    assert status == 1
    assert said in found["frames"]
    assert not found["other"]


@pytest.mark.parametrize("end", [QUIET, "echo 'ERROR: libFuzzer: out-of-memory'; exit 71"])
def test_a_planted_overflow_that_is_not_found_is_a_failure(tmp_path, end):
    status, _, found = run_fuzzers(tmp_path, {"planted_overflow": end})
    assert status == 1
    assert "was not found" in found["planted_overflow"]
