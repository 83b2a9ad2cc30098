"""The data of the PDS-H tests: scale factor 0.01, made once a session."""

from __future__ import annotations

import pytest

from benchmarks.pdsh.data import ensure
from benchmarks.pdsh.queries import Tables


@pytest.fixture(scope="session")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    """Give the tables at scale factor 0.01."""
    return ensure(0.01, tmp_path_factory.mktemp("pdsh") / "sf0.01")
