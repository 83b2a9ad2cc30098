"""The benchmark program: what it runs, prints, and how it ends."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from benchmarks.pdsh.__main__ import examine, fell_back, parse_queries, render
from benchmarks.pdsh.data import ensure
from benchmarks.pdsh.queries import QUERIES, Tables
from benchmarks.pdsh.ranks import POLARS, Run
from support.ranks import find_rrun

ROOT = Path(__file__).resolve().parents[3]


def test_query_numbers_are_lists_and_ranges() -> None:
    assert parse_queries("1,3-5,3") == [1, 3, 4, 5]
    assert parse_queries("all") == list(range(1, 23))


@pytest.mark.parametrize("text", ["", "x", "0", "5-3", "23", "1,,2"])
def test_wrong_query_numbers_are_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        parse_queries(text)


def test_an_incomplete_data_directory_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "orders.parquet").touch()
    with pytest.raises(ValueError, match=r"not a complete PDS-H data set"):
        ensure(0.01, tmp_path)


def recorded(run: Run, query: int, answer: pl.DataFrame, fallbacks: list[str]) -> None:
    """Put into ``run`` what a worker would have left."""
    answer.write_parquet(run.out / f"q{query}.parquet")
    seconds = [4.0, 5.0, 4.0] if run.engine == POLARS else [2.0, 1.0, 3.0]
    run.records[query] = {"seconds": seconds, "rows": answer.height, "fallbacks": fallbacks}


@pytest.fixture
def runs(tmp_path: Path, tables: Tables) -> list[Run]:
    """Runs of Polars and on 1 and 2 ranks: q6 right on all, q1 wrong and with a fallback on 2, q4 failed on 2."""
    made = []
    for engine, nranks in ((POLARS, 1), ("spmd", 1), ("spmd", 2)):
        out = tmp_path / f"{engine}-{nranks}"
        out.mkdir()
        made.append(Run(nranks, out, engine=engine))
    for number in (1, 4, 6):
        answer = QUERIES[number].build(tables).collect(engine="streaming")
        for run in made[: 3 if number == 6 else 2]:
            recorded(run, number, answer, [])
    recorded(made[2], 1, QUERIES[1].build(tables).collect().reverse(), ["gathers a sort"])
    made[2].errors[4] = "rank 1: it broke"
    return made


def test_results_say_what_differs_failed_and_fell_back(runs: list[Run]) -> None:
    results: list[dict[str, Any]] = [examine(number, runs[1:], runs[0]) for number in (1, 4, 6)]
    problems = [[run["problem"] for run in result["ours"].values()] for result in results]
    assert problems[0][0] is None
    assert "the answer differs: in the sort column 'l_returnflag'" in problems[0][1]
    assert problems[1] == [None, "rank 1: it broke"]
    assert problems[2] == [None, None]
    assert fell_back(results) == [1]


def test_table_has_medians_ratio_and_totals(runs: list[Run]) -> None:
    results = [examine(number, runs[1:], runs[0]) for number in (1, 4, 6)]
    lines = [[cell.strip() for cell in line.split("|")] for line in render(results, [1, 2]).splitlines()]
    assert lines[0] == [
        *("query", "ours 1 rank s", "ours 2 ranks s", "Polars streaming s"),
        *("ratio", "rows", "fell back", "answer"),
    ]
    assert lines[2] == ["q1", "2.000", "2.000", "4.000", "0.50", "4", "on 2", "WRONG"]
    assert lines[3] == ["q4", "2.000", "", "4.000", "0.50", "5", "no", "WRONG"]
    assert lines[4] == ["q6", "2.000", "2.000", "4.000", "0.50", "1", "no", "equal"]
    # The totals are over what every run finished.
    assert lines[6] == ["total", "4.000", "4.000", "8.000", "0.500", "", "1 of 3", "1 of 3"]
    assert lines[7] == ["total ratio", "0.500", "0.500", "1.000", "", "", "", ""]


def test_a_query_that_polars_fails_is_not_compared_and_not_in_the_totals(runs: list[Run]) -> None:
    runs[0].fail(6, "python was killed by SIGKILL")
    results = [examine(number, runs[1:], runs[0]) for number in (1, 6)]
    assert results[1]["rows"] == 1
    assert results[1]["polars_problem"] == "python was killed by SIGKILL"
    lines = [[cell.strip() for cell in line.split("|")] for line in render(results, [1, 2]).splitlines()]
    assert lines[3] == ["q6", "2.000", "2.000", "", "", "1", "no", "WRONG"]
    assert lines[5][:5] == ["total", "2.000", "2.000", "4.000", "0.500"]


def test_ratios_are_of_the_first_run_where_there_is_none_on_one_rank(runs: list[Run]) -> None:
    runs[0].records[6]["seconds"] = [1.0, 1.0, 1.0]
    lines = render([examine(6, runs[2:], runs[0])], [2]).splitlines()
    assert [cell.strip() for cell in lines[2].split("|")][:4] == ["q6", "2.000", "1.000", "2.00"]


def run_benchmark(tables: Tables, *arguments: str) -> subprocess.CompletedProcess[str]:
    find_rrun()
    command = [sys.executable, "-m", "benchmarks.pdsh", "--data", str(tables.directory), *arguments]
    return subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
    )


def test_all_queries_on_one_and_two_ranks_equal_polars(tables: Tables, tmp_path: Path) -> None:
    output = tmp_path / "results.json"
    done = run_benchmark(tables, "--ranks", "1,2", "--iterations", "1", "--output", str(output))
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(output.read_text())
    assert [result["query"] for result in report["queries"]] == list(QUERIES)
    assert all(set(result["ours"]) == {"1", "2"} for result in report["queries"])
    assert report["in_turns"] == ["Polars streaming", "1", "2"]
    assert report["totals"]["queries"] == 22
    assert set(report["totals"]["ratio_to_polars"]) == {"1", "2"}
    assert report["versions"]["polars"] == pl.__version__


def test_more_fallbacks_than_allowed_end_with_an_error(tables: Tables) -> None:
    done = run_benchmark(
        tables, "--ranks", "1", "--queries", "6", "--iterations", "1", "--max-fallbacks", "-1"
    )
    assert done.returncode == 1
    assert "at most -1 may" in done.stderr
