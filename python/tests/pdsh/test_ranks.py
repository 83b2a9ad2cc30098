"""Running queries on ranks goes on after a query that fails, and says why it did.

A small program stands in for ``rrun``: what is tested is what happens around the processes.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks.pdsh import ranks
from benchmarks.pdsh.queries import Tables
from benchmarks.pdsh.ranks import Run, run_on_ranks

FAKE = """#!{python}
import json, pathlib, signal, sys
def option(name): return sys.argv[sys.argv.index(name) + 1]
out = pathlib.Path(option("--out"))
with (out / "starts").open("a") as file:
    file.write(option("-n") + " " + option("--queries") + " " + str("--with-polars" in sys.argv) + "\\n")
if option("-n") == "9":
    sys.exit("no such transport")
(out / "started").touch()
for query in option("--queries").split(","):
    if query == "3":
        (out / "q3-error-1.txt").write_text("ValueError: three")
        sys.exit(7)
    if query == "5":
        print("the transport broke")
        sys.exit(9)
    if query == "7":
        signal.pause()
    (out / f"q{{query}}.json").write_text(json.dumps({{"query": int(query)}}))
"""


@pytest.fixture
def out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give an output directory, with the stand-in for rrun in place."""
    fake = tmp_path / "rrun"
    fake.write_text(FAKE.format(python=sys.executable))
    fake.chmod(0o755)
    monkeypatch.setattr(ranks, "tool", lambda name: str(fake))
    monkeypatch.setattr(ranks, "_START_SECONDS", 0.0)
    out = tmp_path / "out"
    out.mkdir()
    return out


def run(out: Path, queries: list[int], nranks: int = 2, query_seconds: float = 30.0) -> Run:
    return run_on_ranks(nranks, queries, Tables(out), iterations=1, query_seconds=query_seconds, out=out)


def starts(out: Path) -> list[str]:
    return (out / "starts").read_text().splitlines()


def test_all_queries_run_in_one_job(out: Path) -> None:
    result = run(out, [1, 2])
    assert result.records == {1: {"query": 1}, 2: {"query": 2}}
    assert result.errors == {}
    assert starts(out) == ["2 1,2 False"]


def test_polars_runs_beside_a_single_rank(out: Path) -> None:
    run(out, [1], nranks=1)
    assert starts(out) == ["1 1 True"]


def test_a_failed_query_is_reported_and_the_rest_is_run(out: Path) -> None:
    result = run(out, [1, 3, 4])
    assert list(result.records) == [1, 4]
    assert result.errors == {3: "rank 1: ValueError: three"}
    assert starts(out) == ["2 1,3,4 False", "2 4 False"]


def test_a_job_that_breaks_without_a_word_shows_its_output(out: Path) -> None:
    result = run(out, [5, 6])
    assert result.errors == {5: "rrun ended with status 9:\nthe transport broke"}
    assert list(result.records) == [6]


def test_a_job_that_hangs_is_ended(out: Path) -> None:
    result = run(out, [1, 7], query_seconds=2.0)
    assert list(result.records) == [1]
    assert result.errors == {7: "not finished after 4 s"}


def test_an_engine_that_does_not_start_is_tried_once(out: Path) -> None:
    result = run(out, [1, 2], nranks=9)
    expected = "the engine did not start: rrun ended with status 1:\nno such transport"
    assert result.errors == {1: expected, 2: expected}
    assert starts(out) == ["9 1,2 False"]
