"""Starts the ranks of each candidate and collects the records that they write."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.pdsh.data import tool

Record = dict[str, Any]

_ROOT = Path(__file__).resolve().parents[2]
_SECONDS = 900.0

# Of Open MPI: more ranks than cores, as root, without binding each to a core, nothing but the loopback interface.
_MPI_ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_btl_tcp_if_include": "lo",
    "PRTE_MCA_hwloc_default_binding_policy": "none",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}


class Failed(Exception):
    """A candidate did not run; says why."""


def transports(program: Path) -> list[str]:
    """List the ways in which payloads travel that the C++ program can be told to take."""
    done = subprocess.run([program, "transports"], capture_output=True, text=True, check=True)
    return done.stdout.split()


def of_transport(transport: str) -> dict[str, str]:
    """Give the environment that makes payloads travel so."""
    return {"RAPIDSMPF_PEER_MEMORY": "auto" if transport == "peer_memory" else "off"}


def rrun(nranks: int, command: Sequence[str | Path], environment: Mapping[str, str]) -> list[Record]:
    """Run a program of ours as ranks; it takes ``--output``.

    Raises
    ------
    Failed
        If it fails or takes very long.
    """
    return _run([tool("rrun"), "-n", str(nranks), *command], environment)


def mpirun(nranks: int, command: Sequence[str]) -> list[Record]:
    """Run a program as ranks of MPI; it takes ``--output``. Raises ``Failed``."""
    return _run([tool("mpirun"), "-n", str(nranks), *command], _MPI_ENVIRONMENT)


def alone(command: Sequence[str]) -> list[Record]:
    """Run a program that prints its record as its last line. Raises ``Failed``."""
    done = _finish(command, {})
    return [json.loads(done.stdout.strip().splitlines()[-1])]


def python(module: str, *arguments: str) -> list[str]:
    """Give the command of one of the modules beside this one."""
    return [sys.executable, "-m", f"benchmarks.shuffle.{module}", *arguments]


def _run(command: Sequence[str | Path], environment: Mapping[str, str]) -> list[Record]:
    with tempfile.TemporaryDirectory(prefix="shuffle-") as scratch:
        output = Path(scratch) / "records.jsonl"
        _finish([*command, "--output", output], environment)
        return [json.loads(line) for line in output.read_text().splitlines()]


def _finish(
    command: Sequence[str | Path], environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")]))
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **environment, "PYTHONPATH": path},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Failed(f"not finished after {_SECONDS:.0f} s") from None
    if done.returncode != 0:
        tail = "\n".join((done.stdout + done.stderr).strip().splitlines()[-8:])
        raise Failed(f"ended with status {done.returncode}: {tail}")
    return done
