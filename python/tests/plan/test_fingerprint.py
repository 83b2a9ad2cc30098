"""Fingerprints are equal for the same query on every rank, and tell different queries apart."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from plan.plan_catalogue import names

from cudf_polars.plan.fingerprint import dump, fingerprint, first_difference
from cudf_polars.plan.read import read_plan

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("name", names())
def test_reading_twice_gives_the_same(queries: dict[str, pl.LazyFrame], name: str) -> None:
    assert dump(read_plan(queries[name])) == dump(read_plan(queries[name]))


def test_different_queries_differ(queries: dict[str, pl.LazyFrame]) -> None:
    texts: dict[str, str] = {}
    for name, query in queries.items():
        if name.startswith(("join_", "group_", "unique_", "sort_")):
            text = dump(read_plan(query))
            assert text not in texts, (name, texts.get(text))
            texts[text] = name


@pytest.mark.parametrize("heights", [(0, 0, 0), (100_000, 3, 10), (3, 100_000, 0), (1, 1, 1)])
def test_frames_count_by_schema_only(heights: tuple[int, int, int]) -> None:
    def query(sizes: tuple[int, int, int]) -> pl.LazyFrame:
        a, b, c = (
            pl.LazyFrame({"k": pl.int_range(n, eager=True), name: pl.int_range(n, eager=True)})
            for n, name in zip(sizes, "xyz", strict=True)
        )
        return a.join(b, on="k").join(c, on="k").filter(pl.col("z") > 1).group_by("y").agg(pl.col("x").sum())

    assert fingerprint(read_plan(query(heights))) == fingerprint(read_plan(query((10, 10, 10))))


def test_literals_count() -> None:
    lf = pl.LazyFrame({"a": [1]})
    one, two = (fingerprint(read_plan(lf.filter(pl.col("a") > n))) for n in (1, 2))
    assert one != two


def test_long_series_literals_count_by_content() -> None:
    lf = pl.LazyFrame({"a": [1]})
    one, two = (dump(read_plan(lf.filter(pl.col("a").is_in(list(range(n, n + 100)))))) for n in (1, 2))
    assert one != two


_SCRIPT = """
import sys, warnings
warnings.simplefilter("ignore")
from pathlib import Path
from plan.plan_catalogue import plans
from cudf_polars.plan.fingerprint import fingerprint
from cudf_polars.plan.read import read_plan
for name, query in sorted(plans(Path(sys.argv[1])).items()):
    print(name, fingerprint(read_plan(query)).hex())
"""


def test_processes_agree(tmp_path: Path) -> None:
    """Ranks are processes of their own, with their own addresses and hash seeds."""
    from plan.plan_catalogue import write_files

    write_files(tmp_path)
    path = ":".join(p for p in sys.path if p)
    outputs = [
        subprocess.run(
            [sys.executable, "-c", _SCRIPT, str(tmp_path)],
            env={"PYTHONPATH": path, "PYTHONHASHSEED": str(seed), **_plugin()},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in (1, 2)
    ]
    assert outputs[0].count("\n") == len(names())
    assert outputs[0] == outputs[1]


def _plugin() -> dict[str, str]:
    from cudf_polars.plan.plugin import LIBRARY_VARIABLE, find_library

    return {LIBRARY_VARIABLE: str(find_library())}


def test_first_difference_shows_both_lines() -> None:
    text = first_difference("a\n  b\n  c", "a\n  b\n  d")
    assert "line 3" in text
    assert "'b'" in text
    assert "one rank: c" in text
    assert "another:  d" in text


def test_first_difference_of_a_shorter_plan() -> None:
    assert "(end of the plan)" in first_difference("a\nb", "a")


def test_no_difference_is_empty() -> None:
    assert first_difference("a\nb", "a\nb") == ""
