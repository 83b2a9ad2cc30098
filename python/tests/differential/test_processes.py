"""Random queries on ranks that are processes: what processes do not share shows here only."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from support.ranks import find_rrun

SEEDS = 80


def test_answers_of_processes_are_those_of_polars() -> None:
    command = [
        find_rrun(),
        "-n",
        "2",
        sys.executable,
        "-m",
        "differential.processes",
        "--first",
        "5000",
        "--seeds",
        str(SEEDS),
    ]
    folder = Path(__file__).parents[1]
    job = subprocess.run(
        command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=240
    )
    assert f"{SEEDS} cases on 2 processes, 0 differences" in job.stdout, job.stdout + job.stderr
    assert job.returncode == 0, job.stderr
