"""Polars reads less ahead where a rank has little memory; what the user has set stays."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from cudf_polars.engine.read_ahead import LITTLE_MEMORY, VARIABLES, read_ahead_within
from cudf_polars.engine.spmd import SPMDEngine

ROW_GROUPS = VARIABLES[0]


@pytest.fixture(autouse=True)
def _not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def _in_force() -> list[str | None]:
    return [os.environ.get(name) for name in VARIABLES]


def test_the_least_budget_of_the_ranks_of_a_process_is_in_force() -> None:
    first, second = read_ahead_within(64 << 20), read_ahead_within(32 << 20)
    with read_ahead_within(LITTLE_MEMORY):
        assert _in_force() == [None, None]
    with first:
        assert _in_force() == ["2048", "2048"]
        with second, read_ahead_within(64 << 20):
            assert _in_force() == ["1024", "1024"]
        assert _in_force() == ["2048", "2048"]
    assert _in_force() == [None, None]


def test_what_the_user_has_set_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ROW_GROUPS, "77")
    with read_ahead_within(64 << 20):
        assert _in_force() == ["77", "2048"]
    assert _in_force() == ["77", None]


def test_an_engine_sets_it_while_it_is_open() -> None:
    with SPMDEngine():
        assert _in_force() == [None, None]
    with SPMDEngine(rapidsmpf_options={"spill_device_limit": "100MB"}):
        assert _in_force() != [None, None]
    assert _in_force() == [None, None]


_SLOW_READER = """
import sys, time
import polars as pl

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

def read(batch):
    global most, batches
    time.sleep(0.2)
    most, batches = max(most, resident()), batches + 1
    return batches == 4

batches = 0

pl.DataFrame({"a": [1]}).lazy().filter(pl.col("a") > 0).collect(engine="streaming")  # starts its threads
before = most = resident()
pl.scan_parquet(sys.argv[1]).sink_batches(read)
print(most - before)
"""


def test_polars_heeds_it(tmp_path: Path) -> None:
    """The variables are no documented interface: a release of Polars that calls them otherwise fails here."""
    number = pl.int_range(1_500_000)
    text = pl.concat_str(number.hash(seed) for seed in range(6)).alias("text")
    path = tmp_path / "rows.parquet"
    pl.select(text).write_parquet(path, row_group_size=100_000, compression="uncompressed", statistics=False)

    def held(budget: str) -> int:
        command = [sys.executable, "-c", _SLOW_READER, str(path)]
        settings = {"POLARS_ROW_GROUP_PREFETCH_SIZE": "32", "POLARS_MAX_THREADS": "2", ROW_GROUPS: budget}
        run = subprocess.run(
            command, env=os.environ | settings, check=True, capture_output=True, text=True, timeout=60
        )
        return int(run.stdout)

    much, little = held("1000000"), held("2048")
    assert much - little > 20 << 20, f"{little} and {much} bytes"
