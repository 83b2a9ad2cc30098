"""Fixtures of the plan's tests: the plugin, and files to scan."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import polars as pl
import pytest
from plan.plan_catalogue import plans, write_files

from cudf_polars.plan.plugin import LIBRARY_VARIABLE, PluginUnavailable, find_library

_SOURCES = Path(__file__).parents[3] / "cpp" / "src"


@pytest.fixture(scope="session", autouse=True)
def _plugin(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Build the plugin when the package is run from its sources."""
    try:
        find_library()
    except PluginUnavailable:
        compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
        if compiler is None:
            pytest.fail("the plugin is not installed, and there is no C++ compiler to build it")
        library = tmp_path_factory.mktemp("plugin") / "_plugin.so"
        subprocess.run(
            [
                compiler,
                "-std=c++20",
                "-O1",
                "-fPIC",
                "-shared",
                "-fvisibility=hidden",
                f"-I{_SOURCES}",
                *map(str, (_SOURCES / "polars_plugin").glob("*.cpp")),
                "-o",
                library,
            ],
            check=True,
        )
        os.environ[LIBRARY_VARIABLE] = str(library)


@pytest.fixture(scope="session")
def queries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, pl.LazyFrame]:
    """Return the catalogue of queries, over files of this session."""
    folder = tmp_path_factory.mktemp("files")
    write_files(folder)
    return plans(folder)
