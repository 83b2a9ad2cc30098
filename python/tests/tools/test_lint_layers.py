"""scripts/lint_layers.py finds what breaks the map of rooms, in a copy of this tree that a test breaks on purpose."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy what the linter reads."""
    copy = tmp_path_factory.mktemp("tree")
    for folder in ("cpp", "python/rapidsmpf", "python/cudf_polars", "examples/cpp"):
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    (copy / "docs").mkdir()
    for file in ("CONTRIBUTING.md", "docs/cpp-api.md"):
        shutil.copy(ROOT / file, copy / file)
    return copy


def lint(tree: Path, *arguments: str) -> tuple[int, list[str]]:
    command = [sys.executable, str(ROOT / "scripts/lint_layers.py"), "--root", str(tree), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout.splitlines()


def test_this_tree_keeps_to_its_map() -> None:
    assert lint(ROOT) == (0, [])


def test_counts() -> None:
    status, lines = lint(ROOT, "--count")
    assert status == 0
    counts = [int(line.split(": ")[1].split()[0]) for line in lines]
    assert [line.split(":")[0] for line in lines] == [
        "installed headers",
        "arrows in memory",
        "arrows in table",
    ]
    assert all(0 < count <= most for count, most in zip(counts, (70, 25, 30), strict=True))


@pytest.mark.parametrize(
    ("file", "line", "complaint"),
    [
        # a room above
        (
            "cpp/src/memory/budget.cpp",
            "#include <rapidsmpf/coll/shuffler.hpp>",
            "memory does not rest on coll",
        ),
        (
            "cpp/include/rapidsmpf/core/error.hpp",
            "#include <rapidsmpf/device/device.hpp>",
            "core does not rest on device",
        ),
        # a room beside
        (
            "cpp/src/table/concat.cpp",
            "#include <rapidsmpf/exchange/settings.hpp>",
            "table does not rest on exchange",
        ),
        # another room's own headers
        (
            "cpp/src/coll/barrier.cpp",
            '#include "exchange/wire.hpp"',
            "wire.hpp is private to the room exchange",
        ),
        (
            "cpp/tests/coll/steps.hpp",
            '#include "exchange/wire.hpp"',
            "wire.hpp is private to the room exchange",
        ),
        (
            "python/rapidsmpf/include/rapidsmpf_python/gil.hpp",
            '#include "memory/budget.hpp"',
            "budget.hpp is private to the room memory",
        ),
        # what is not installed, out of what is
        (
            "cpp/include/rapidsmpf/coll/barrier.hpp",
            "#include <rapidsmpf/exchange/detail/operation.hpp>",
            "an installed header includes detail/operation.hpp, which is not installed",
        ),
        (
            "examples/cpp/shuffle_loopback.cpp",
            "#include <rapidsmpf/core/detail/host_name.hpp>",
            "detail/host_name.hpp is not installed",
        ),
        # what is not there
        (
            "cpp/src/coll/barrier.cpp",
            "#include <rapidsmpf/coll/no_such.hpp>",
            "there is no header cpp/include/rapidsmpf/coll/no_such.hpp",
        ),
        (
            "cpp/src/memory/spill/arbiter.cpp",
            '#include "arbiter.hpp"',
            '"arbiter.hpp" is not a path from cpp/src, "<room>/<file>"',
        ),
        # Python
        (
            "python/cudf_polars/plan/nodes.py",
            "import cudf_polars.lower.builder",
            "cudf_polars.plan does not rest on cudf_polars.lower",
        ),
        (
            "python/cudf_polars/lower/rows.py",
            "def f():\n    from cudf_polars import streaming",
            "cudf_polars.lower does not rest on cudf_polars.streaming",
        ),
        (
            "python/rapidsmpf/coll/_values.py",
            "import dask",
            "dask may be imported by rapidsmpf.integrations and cudf_polars.engine only",
        ),
        (
            "python/rapidsmpf/shuffler.pyx",
            "from cudf_polars.engine import core",
            "rapidsmpf does not rest on cudf_polars.engine",
        ),
    ],
)
def test_a_broken_layer_is_found(tree: Path, file: str, line: str, complaint: str) -> None:
    path = tree / file
    text = path.read_text()
    number = len(text.splitlines()) + line.count("\n") + 1
    path.write_text(f"{text}{line}\n")
    try:
        status, lines = lint(tree)
    finally:
        path.write_text(text)
    assert status == 1
    assert f"{file}:{number}: {complaint}" in lines


def test_a_header_that_becomes_public_is_counted_and_has_to_be_listed(tree: Path) -> None:
    header = tree / "cpp/include/rapidsmpf/core/one_more.hpp"
    header.write_text("#pragma once\n")
    try:
        status, lines = lint(tree)
    finally:
        header.unlink()
    assert status == 1
    assert "docs/cpp-api.md:1: rapidsmpf/core/one_more.hpp is installed and not listed" in lines


def test_a_build_that_says_otherwise_is_found(tree: Path) -> None:
    path = tree / "cpp/CMakeLists.txt"
    text = path.read_text()
    path.write_text(text.replace("rapidsmpf_room(table DEPENDS memory", "rapidsmpf_room(table DEPENDS coll"))
    try:
        status, lines = lint(tree)
    finally:
        path.write_text(text)
    assert status == 1
    assert any("table is built on ['coll']" in line for line in lines)
