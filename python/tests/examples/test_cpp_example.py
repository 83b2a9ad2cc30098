"""A C++ program finds the library of the installed wheel and runs on it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.ranks import find_rrun

SOURCE = Path(__file__).resolve().parents[3] / "examples" / "cpp"


def _tool(name: str) -> str | None:
    beside = Path(sys.executable).with_name(name)
    return str(beside) if beside.exists() else shutil.which(name)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the examples with ``find_package(rapidsmpf)``."""
    cmake = _tool("cmake")
    if cmake is None or shutil.which("c++") is None:
        pytest.skip("building the example needs cmake and a C++ compiler")
    find_rrun()  # skips where the package is not installed
    command = [sys.executable, "-m", "rapidsmpf", "--cmake-prefix"]
    prefix = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    build = tmp_path_factory.mktemp("cpp-example")
    for step in (
        [cmake, "-S", str(SOURCE), "-B", str(build), f"-DCMAKE_PREFIX_PATH={prefix}"],
        [cmake, "--build", str(build)],
    ):
        done = subprocess.run(step, capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, done.stdout + done.stderr
    return build


@pytest.fixture(scope="module")
def program(programs: Path) -> Path:
    return programs / "shuffle_loopback"


@pytest.mark.parametrize("nranks", [1, 2, 5])
def test_all_rows_reach_their_partitions(program: Path, nranks: int) -> None:
    done = subprocess.run([str(program), str(nranks)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(f"all {nranks * 100_000} rows are in their partitions\n")


def test_a_number_of_ranks_that_is_none_is_refused(program: Path) -> None:
    done = subprocess.run([str(program), "0"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "usage" in done.stderr


@pytest.mark.parametrize("nranks", [1, 2])
def test_a_network_of_actors_counts_all_rows_in_less_than_half_of_their_memory(
    programs: Path, nranks: int
) -> None:
    done = subprocess.run(
        [str(programs / "streaming_query"), str(nranks)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(f"{nranks * 500_000} rows with 500 keys were counted\n")
    held = [
        int(peak) / int(budget)
        for peak, budget in re.findall(r"most (\d+) KiB in memory, of (\d+)", done.stdout)
    ]
    assert len(held) == nranks
    # The budget is a tenth of the rows; tables are packed beside it before they go.
    assert max(held) <= 4
