"""What the processes of a run tell the benchmark: each in a file of its own, for what ranks print may run together."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.pdsh.data import tool

__all__ = ["run_ranks", "tell"]

_FOLDER = "results"


def tell(folder: Path, result: Mapping[str, Any]) -> None:
    """Write the result of a process, with its rank under ``rank``, for who waits in :func:`run_ranks`."""
    (folder / _FOLDER / f"{result['rank']}.json").write_text(json.dumps(result))


def run_ranks(
    command: Sequence[str], ranks: int, folder: Path, what: str, environment: Mapping[str, str] | None = None
) -> list[dict[str, Any]]:
    """Run a command on so many ranks, whose processes tell their results in ``folder``; return these by rank.

    Raises
    ------
    RuntimeError
        If a process fails, with the end of what was printed.
    """
    shutil.rmtree(folder / _FOLDER, ignore_errors=True)
    (folder / _FOLDER).mkdir(parents=True)
    launcher = [tool("rrun"), "-n", str(ranks)] if ranks > 1 else []
    done = subprocess.run(
        [*launcher, *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        env=environment,
    )
    told = [json.loads(path.read_text()) for path in (folder / _FOLDER).iterdir()]
    if done.returncode or len(told) != ranks:
        raise RuntimeError(f"{what}: {done.stdout[-1000:]}")
    return sorted(told, key=lambda result: int(result["rank"]))
