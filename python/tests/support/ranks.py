"""Runs Python scripts as ranks of a job, under rrun."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import textwrap
from dataclasses import dataclass
from pathlib import Path

import pytest

__all__ = ["Job", "find_rrun", "find_tool", "run_ranks", "start_ranks"]


@dataclass(frozen=True)
class Job:
    """How a job ended."""

    returncode: int
    stdout: str
    stderr: str

    def check(self) -> Job:
        """Fail the test with the job's output unless it ended with 0."""
        if self.returncode != 0:
            pytest.fail(f"the job ended with {self.returncode}\n{self.stdout}\n{self.stderr}")
        return self


def find_tool(name: str) -> str:
    """Return the path of one of our programs; skip the test when it is not installed."""
    beside = Path(sysconfig.get_path("scripts")) / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed: build and install the package first")
    return found


def find_rrun() -> str:
    """Return the path of rrun; skip the test when it is not installed."""
    return find_tool("rrun")


def start_ranks(
    nranks: int, script: str, *args: str, env: dict[str, str] | None = None, cwd: Path | None = None
) -> subprocess.Popen[str]:
    """Start ``script`` (Python source) on ``nranks`` ranks; the caller waits for the process."""
    command = [find_rrun(), "-n", str(nranks), sys.executable, "-c", textwrap.dedent(script), *args]
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
        env={**os.environ, **(env or {})},
    )


def run_ranks(
    nranks: int,
    script: str,
    *args: str,
    timeout: float = 120,
    env: dict[str, str] | None = None,
    cwd: Path | None = None,
) -> Job:
    """Run ``script`` on ``nranks`` ranks and wait for it; a job that outlasts ``timeout`` seconds fails the test."""
    process = start_ranks(nranks, script, *args, env=env, cwd=cwd)
    try:
        stdout, stderr = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGTERM)
        stdout, stderr = process.communicate(timeout=30)
        pytest.fail(f"the job did not end within {timeout} s\n{stdout}\n{stderr}")
    return Job(process.returncode, stdout, stderr)
