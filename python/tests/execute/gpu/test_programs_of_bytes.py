"""Programs over Parquet files in memory name them as the operators take names: by plain text."""

from __future__ import annotations

import io
import sys
from types import ModuleType
from typing import Any

import polars as pl
import pytest

from cudf_polars.execute.gpu.native import build_program
from cudf_polars.execute.gpu.translate import translate
from cudf_polars.plan.read import read_plan


class _Builder:
    """Takes what the extension's builder takes: of a class that is derived from ``str`` that one takes nothing."""

    def __init__(self) -> None:
        self.files: list[str] = []

    def scan_file(self, path: str, _: list[int]) -> None:
        assert type(path) is str
        self.files.append(path)

    def __getattr__(self, _: str) -> Any:
        return lambda *_: None


def _summarize_footer(path: str) -> Any:
    assert type(path) is str
    raise OSError


def test_files_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    extension = ModuleType("rapidsmpf.compute")
    vars(extension).update(ProgramBuilder=_Builder, summarize_footer=_summarize_footer)
    monkeypatch.setitem(sys.modules, "rapidsmpf.compute", extension)
    content = io.BytesIO()
    pl.DataFrame({"a": range(9), "b": [0.5] * 9}).write_parquet(content)
    query = (
        pl.scan_parquet([content.getvalue()] * 2).filter(pl.col("a") > 3).group_by("a").agg(pl.col("b").sum())
    )
    plan = read_plan(query)
    built: Any = build_program(translate(plan.root, {}).program)
    assert len(built.files) == 2
