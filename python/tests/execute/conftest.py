"""Fixtures of the executor's tests: files to scan, and a check that every step makes the schema it declares."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from cudf_polars.execute import queries
from cudf_polars.lower.builder import StreamBuilder


@pytest.fixture(autouse=True)
def _declared_schemas_are_real(monkeypatch: pytest.MonkeyPatch) -> None:
    original = StreamBuilder.local

    def local(self, title, inputs, build, **given):  # type: ignore[no-untyped-def]
        stream = original(self, title, inputs, build, **given)
        if inputs:
            frames = [pl.LazyFrame(schema=dict(item.schema)) for item in inputs]
            real = build(frames, 0).collect_schema()
            assert list(real.items()) == list(stream.schema.items()), title
        return stream

    monkeypatch.setattr(StreamBuilder, "local", local)


@pytest.fixture(autouse=True)
def _plans_are_read_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks that are threads share one lazy frame, which Polars locks while it may wait for the GIL."""
    lock = threading.Lock()
    original = queries.read_plan

    def read_plan(lf: pl.LazyFrame, flags: pl.QueryOptFlags, **how: bool) -> object:
        with lock:
            return original(lf, flags, **how)

    monkeypatch.setattr(queries, "read_plan", read_plan)


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yield a folder of small files: ``big`` has 60 rows in 6 row groups, ``small`` 20 rows."""
    folder = tmp_path_factory.mktemp("files")
    rows = range(60)
    big = pl.DataFrame(
        {
            "a": [i % 7 for i in rows],
            "b": [None if i % 5 == 0 else i / 3 for i in rows],
            "s": [None if i % 11 == 0 else f"s{i % 3}" for i in rows],
            "i": list(rows),
        }
    )
    big.write_parquet(folder / "big.parquet", row_group_size=10)
    big.head(20).write_parquet(folder / "small.parquet")
    big.write_csv(folder / "big.csv")
    for part in range(5):
        big.slice(part * 12, 12).write_csv(folder / f"part{part}.csv")
        big.slice(part * 12, 12).write_ndjson(folder / f"part{part}.ndjson")
    big.write_parquet(folder / "hive", partition_by="a")
    return folder
