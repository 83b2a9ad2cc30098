"""Jobs that take turns: who has ended is not waited for, by either side."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.pdsh.turns import Job, JobFailed, JobNotStarted

ROOT = Path(__file__).resolve().parents[3]

WORKER = """
import os, sys
from benchmarks.pdsh.turns import take_turns
def run(query, timed):
    if query == 3:
        raise ValueError("three")
    return {"query": query, "timed": timed}
take_turns(int(sys.argv[sys.argv.index("--port") + 1]), 0, run, pid=os.getpid())
"""

BENCHMARK = """
import os, sys
from pathlib import Path
from benchmarks.pdsh.turns import Job
with Job(sys.argv[2:], 1, environment=os.environ, log=Path(sys.argv[1])) as job:
    job.start()
    print(job.about[0]["pid"], flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def environment() -> dict[str, str]:
    """Give the environment of a process that imports the benchmark."""
    return {**os.environ, "PYTHONPATH": str(ROOT)}


@pytest.fixture
def job(tmp_path: Path, environment: dict[str, str]) -> Iterator[Job]:
    """Give a job of one process, which has started."""
    command = [sys.executable, "-c", WORKER]
    with Job(command, 1, environment=environment, log=tmp_path / "log.txt") as job:
        job.start()
        yield job


def test_a_process_runs_what_it_is_asked_for_and_ends_with_the_turns(job: Job) -> None:
    assert job.turn(1, timed=False, seconds=30.0) == [{"query": 1, "timed": False}]
    assert job.turn(2, timed=True, seconds=30.0) == [{"query": 2, "timed": True}]
    assert job.end() == 0
    assert not job.runs


def test_an_error_is_told_and_ends_the_process(job: Job) -> None:
    with pytest.raises(JobFailed, match=r"(?s)^rank 0: Traceback .*ValueError: three$"):
        job.turn(3, timed=False, seconds=30.0)
    assert not job.runs


def test_a_process_that_is_killed_while_it_waits_fails_at_its_turn_and_may_start_again(job: Job) -> None:
    os.kill(job.about[0]["pid"], signal.SIGKILL)
    with pytest.raises(JobFailed, match=r"was killed by SIGKILL$"):
        job.turn(1, timed=False, seconds=30.0)
    assert not job.runs
    job.start()
    assert job.turn(1, timed=True, seconds=30.0) == [{"query": 1, "timed": True}]


def test_a_process_that_stands_still_is_ended(job: Job) -> None:
    os.kill(job.about[0]["pid"], signal.SIGSTOP)
    with pytest.raises(JobFailed, match=r"^not finished after 0 s$"):
        job.turn(1, timed=False, seconds=0.1)
    with pytest.raises(ProcessLookupError):
        os.kill(job.about[0]["pid"], 0)


def test_a_process_that_ends_before_its_first_turn_says_why(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    job = Job([sys.executable, "-c", "exit('no')"], 1, environment=environment, log=tmp_path / "log.txt")
    with pytest.raises(JobNotStarted, match=r"ended with status 1:\nno$"):
        job.start()
    assert not job.runs


def test_processes_end_with_a_benchmark_that_is_killed(tmp_path: Path, environment: dict[str, str]) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", BENCHMARK, str(tmp_path / "log.txt"), sys.executable, "-c", WORKER],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as benchmark:
        assert benchmark.stdout is not None
        worker = os.pidfd_open(int(benchmark.stdout.readline()))
        try:
            benchmark.kill()
            assert select.select([worker], [], [], 30.0)[0], "the process lives on"
        finally:
            os.close(worker)
