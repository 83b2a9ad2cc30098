"""Tables of PDS-H for the tests of programs."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def pdsh_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the tables at scale factor 0.01, made by tpchgen-cli."""
    program = shutil.which("tpchgen-cli")
    if program is None:
        pytest.skip("tpchgen-cli is not on the PATH (pip install tpchgen-cli)")
    folder = tmp_path_factory.mktemp("pdsh")
    subprocess.run(
        [program, "parquet", "-s", "0.01", f"--output-dir={folder}"],
        check=True,
        capture_output=True,
        timeout=120,
    )
    return Path(folder)
