"""The installed C++ library: outside programs build on each of its components, and its page compiles."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from rapidsmpf.communicator import COMMUNICATORS

from support.mpi import ENVIRONMENT as MPI_ENVIRONMENT
from support.ranks import find_rrun, find_tool

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "cpp-api.md"


def _run(command: list[str], timeout: float = 240, **environment: str) -> str:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**os.environ, **environment} if environment else None,
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def prefix() -> Path:
    find_rrun()  # skips where the package is not installed
    if shutil.which("c++") is None:
        pytest.skip("building programs needs a C++ compiler")
    return Path(_run([sys.executable, "-m", "rapidsmpf", "--cmake-prefix"]).strip())


@pytest.fixture(scope="module")
def programs(prefix: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the programs of cpp/tests/installed with ``find_package(rapidsmpf)``."""
    build = tmp_path_factory.mktemp("outside")
    cmake = find_tool("cmake")
    options = [f"-DCMAKE_PREFIX_PATH={prefix}"]
    if "mpi" in COMMUNICATORS:
        options.append(f"-DMPI_CXX_COMPILER={find_tool('mpicxx')}")
    _run([cmake, "-S", str(ROOT / "cpp/tests/installed"), "-B", str(build), *options])
    _run([cmake, "--build", str(build)])
    return build


def test_over_ucxx_with_rrun(programs: Path) -> None:
    said = _run([find_rrun(), "-n", "3", str(programs / "over_ucxx")])
    assert sorted(said.splitlines()) == [f"rank {rank} of 3: sum 3, chunks 3" for rank in range(3)]


@pytest.mark.skipif("mpi" not in COMMUNICATORS, reason="built without MPI, or mpi4py is not installed")
def test_over_mpi(programs: Path) -> None:
    said = _run([find_tool("mpirun"), "-n", "2", str(programs / "over_mpi")], **MPI_ENVIRONMENT)
    assert sorted(said.splitlines()) == [f"rank {rank} of 2: sum 1" for rank in range(2)]


def test_with_rmm(programs: Path) -> None:
    if not (programs / "with_rmm").exists():
        pytest.skip("RMM's CMake package needs a CUDA toolkit, and finds none")
    assert _run([str(programs / "with_rmm")]) == "allocated 1048576\nleft 0\n"


def _listed() -> list[str]:
    return re.findall(r"^\| `(rapidsmpf/\S+\.hpp)` \|", PAGE.read_text(), re.MULTILINE)


def test_what_is_installed_is_what_the_page_lists(prefix: Path) -> None:
    include = prefix / "include"
    installed = [str(path.relative_to(include)) for path in (include / "rapidsmpf").rglob("*.hpp")]
    assert sorted(installed) == sorted(_listed())


def test_the_examples_of_the_page_compile(prefix: Path, tmp_path: Path) -> None:
    blocks = re.findall(r"^```cpp\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) > 15
    headers = [name for name in _listed() if "/mpi/" not in name and "rmm_resource" not in name]
    source = [f"#include <{name}>" for name in headers]
    source += [f"#include <{name}>" for name in ("algorithm", "cstring", "functional", "iostream", "thread")]
    for number, block in enumerate(blocks):
        if "COMPONENTS" in block:  # needs headers of others: the programs above are like these
            continue
        if block.startswith("rapidsmpf::streaming::Task<"):
            source.append(block)
            continue
        source.append(
            f"void example_{number}([[maybe_unused]] std::shared_ptr<rapidsmpf::Communicator> const& communicator,\n"
            f"    [[maybe_unused]] rapidsmpf::ArrowStreamOwner stream) {{\n{block}}}"
        )
    file = tmp_path / "examples.cpp"
    file.write_text("\n".join(source) + "\n")
    _run(
        [
            "c++",
            "-std=c++20",
            "-fsyntax-only",
            "-Wall",
            "-Wextra",
            "-Werror",
            f"-I{prefix}/include",
            str(file),
        ]
    )
