"""The pages of docs/ that are tables are what the tables say."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path

import pytest
from rapidsmpf.config import registered_options
from rapidsmpf.statistics import registered_statistics

from cudf_polars.engine.options import StreamingOptions

ROOT = Path(__file__).resolve().parents[3]
PAGES: dict[Path, Callable[[], str]] = runpy.run_path(str(ROOT / "scripts" / "write_pages.py"))["PAGES"]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_the_page_is_up_to_date(path: Path) -> None:
    assert path.read_text() == PAGES[path](), "run: python scripts/write_pages.py"


def test_every_statistic_is_on_the_page() -> None:
    page = (ROOT / "docs" / "statistics.md").read_text()
    assert [info.name for info in registered_statistics() if f"| `{info.name}` |" not in page] == []


def test_every_option_is_on_the_page() -> None:
    page = (ROOT / "docs" / "options.md").read_text()
    names = [info.key for info in registered_options()] + list(StreamingOptions.describe())
    assert [name for name in names if f"| `{name}` |" not in page] == []


def test_the_engines_and_the_library_agree_on_their_options() -> None:
    library = {info.key: info.effective for info in registered_options()}
    engine = {
        name: info.effective
        for name, info in StreamingOptions.describe().items()
        if info.group == "rapidsmpf"
    }
    assert {name: library.get(name) for name in engine} == engine


def test_options_with_an_effect_are_read_somewhere() -> None:
    sources = [
        path.read_text()
        for folder, pattern in (
            ("cpp/src", "*.cpp"),
            ("python/rapidsmpf", "*.pyx"),
            ("python/rapidsmpf", "*.py"),
            ("python/rapidsmpf/include", "*.hpp"),
            ("python/cudf_polars/engine", "gpu_options.py"),
        )
        for path in (ROOT / folder).rglob(pattern)
    ]
    unread = [
        info.key
        for info in registered_options()
        if info.effective and not any(f'"{info.key}"' in text for text in sources)
    ]
    assert unread == []
