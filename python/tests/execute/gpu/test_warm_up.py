"""The queries that a GPU runs before the first one of the user's."""

from __future__ import annotations

import tempfile
from pathlib import Path

import polars as pl
import pytest
from differential.devices import open_device
from execute.gpu.translated import check

from cudf_polars.execute.gpu.warm_up import queries, warm_up


def test_they_run_as_programs_and_are_right(tmp_path: Path) -> None:
    device = open_device("emulated")
    assert device is not None
    for query in queries(tmp_path):
        assert query.collect().height > 0
        check(query, order=False)
        device.collect(query, pl.QueryOptFlags())
    assert not device.take_host_steps()


class Broken:
    """A device whose queries fail after what they could not do was noted."""

    def __init__(self) -> None:
        self.steps = ["a step"]

    def collect(self, fragment: pl.LazyFrame, optimizations: pl.QueryOptFlags) -> pl.DataFrame:
        raise RuntimeError("no kernel image is available")

    def take_host_steps(self) -> list[str]:
        steps, self.steps = self.steps, []
        return steps


def test_failures_are_left_to_the_users_queries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    device = Broken()
    warm_up(device)  # type: ignore[arg-type]
    assert device.steps == []
    assert list(tmp_path.iterdir()) == []
