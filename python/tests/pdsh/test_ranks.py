"""Runs take turns, go on after a query that fails, and say why it did.

A small program stands in for ``rrun`` and all of its ranks: what is tested is what happens around the processes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.pdsh import ranks
from benchmarks.pdsh.queries import Tables
from benchmarks.pdsh.ranks import POLARS, Run, run_in_turns

FAKE = """#!{python}
import json, pathlib, signal, socket, sys
def option(name): return sys.argv[sys.argv.index(name) + 1]
def note(text):
    with pathlib.Path(option("--out")).with_name("turns").open("a") as file:
        file.write(option("-n") + " " + text + "\\n")
note("starts")
if option("-n") == "9":
    sys.exit("no such transport")
channels = [socket.create_connection(("127.0.0.1", int(option("--port")))) for _ in range(int(option("-n")))]
streams = [channel.makefile("rb") for channel in channels]
def say(rank, message): channels[rank].sendall(json.dumps(message).encode() + b"\\n")
for rank in range(len(channels)):
    say(rank, {{"rank": rank}})
while all(lines := [stream.readline() for stream in streams]):
    asked = json.loads(lines[0])
    note(str(asked["query"]) + (" timed" if asked["timed"] else ""))
    if asked["query"] == 3:
        say(len(channels) - 1, {{"error": "ValueError: three\\n"}})
        sys.exit(7)
    if asked["query"] == 5:
        print("the transport broke")
        sys.exit(9)
    if asked["query"] == 7 and asked["timed"]:
        signal.pause()
    for rank in range(len(channels)):
        say(rank, {{"seconds": rank + 0.5}} if asked["timed"] else {{"rows": 4, "fallbacks": []}})
"""

RECORD = {"seconds": [1.5], "rows": 4, "fallbacks": []}
"""What two ranks of the stand-in give of a query, with one timed iteration: the seconds are the slower rank's."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a folder for the runs' own, with the stand-in for rrun in place."""
    fake = tmp_path / "rrun"
    fake.write_text(FAKE.format(python=sys.executable))
    fake.chmod(0o755)
    monkeypatch.setattr(ranks, "tool", lambda name: str(fake))
    return tmp_path


def take_turns(
    folder: Path, queries: list[int], *nranks: int, iterations: int = 1, query_seconds: float = 30.0
) -> list[Run]:
    runs = [Run(n, folder / str(n)) for n in nranks]
    for run in runs:
        run.out.mkdir()
    run_in_turns(runs, queries, Tables(folder), iterations=iterations, query_seconds=query_seconds)
    return runs


def turns(folder: Path) -> list[str]:
    return (folder / "turns").read_text().splitlines()


def test_runs_take_turns_by_query_and_iteration(folder: Path) -> None:
    runs = take_turns(folder, [1, 2], 1, 2, iterations=2)
    assert turns(folder) == [
        *("1 starts", "1 1", "2 starts", "2 1", "2 1 timed", "1 1 timed", "1 1 timed", "2 1 timed"),
        *("1 2", "2 2", "2 2 timed", "1 2 timed", "1 2 timed", "2 2 timed"),
    ]
    assert [list(run.records) for run in runs] == [[1, 2], [1, 2]]
    assert runs[1].records[2]["seconds"] == [1.5, 1.5]


def test_a_failed_query_is_reported_and_the_rest_is_run(folder: Path) -> None:
    (run,) = take_turns(folder, [1, 3, 4], 2)
    assert run.records == {1: RECORD, 4: RECORD}
    assert run.errors == {3: "rank 1: ValueError: three"}
    assert turns(folder) == ["2 starts", "2 1", "2 1 timed", "2 3", "2 starts", "2 4", "2 4 timed"]


def test_the_failure_of_one_does_not_keep_the_others(folder: Path, tables: Tables) -> None:
    runs = [Run(1, folder / "polars", engine=POLARS), Run(2, folder / "2")]
    for run in runs:
        run.out.mkdir()
    run_in_turns(runs, [5, 6], tables, iterations=1, query_seconds=30.0)
    assert list(runs[0].records) == [5, 6]
    assert runs[0].answer(6).height == 1
    assert list(runs[1].records) == [6]


def test_a_job_that_breaks_without_a_word_shows_its_output(folder: Path) -> None:
    (run,) = take_turns(folder, [5, 6], 2)
    assert run.errors == {5: "rrun ended with status 9:\nthe transport broke"}
    assert list(run.records) == [6]


def test_a_job_that_hangs_is_ended_and_what_it_gave_does_not_count(folder: Path) -> None:
    (run,) = take_turns(folder, [1, 7, 2], 2, query_seconds=2.0)
    assert list(run.records) == [1, 2]
    assert run.errors == {7: "not finished after 2 s"}


def test_an_engine_that_does_not_start_is_tried_once(folder: Path) -> None:
    one, nine = take_turns(folder, [1, 2], 1, 9)
    expected = "the engine did not start: rrun ended with status 1:\nno such transport"
    assert nine.errors == {1: expected, 2: expected}
    assert turns(folder).count("9 starts") == 1
    assert list(one.records) == [1, 2]


def test_the_threads_of_ranks_are_not_those_of_polars(
    tmp_path: Path, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("POLARS_MAX_THREADS", raising=False)
    command = [sys.executable, "-c", "import polars; print(polars.thread_pool_size())"]
    expected = int(subprocess.run(command, check=True, capture_output=True, timeout=60).stdout)
    monkeypatch.setenv("POLARS_MAX_THREADS", str(expected + 1))
    run = Run(1, tmp_path, engine=POLARS)
    run_in_turns([run], [6], tables, iterations=1, query_seconds=60.0)
    assert run.errors == {}
    assert run.threads == expected
    assert os.environ["POLARS_MAX_THREADS"] == str(expected + 1)


def test_runs_of_one_kind_are_added_up() -> None:
    first = Run(2, Path(), records={1: {"seconds": [1.0]}, 2: {"seconds": [2.0]}}, errors={3: "three"})
    later = Run(
        2, Path(), records={1: {"seconds": [4.0]}, 3: {"seconds": [3.0]}}, errors={2: "two", 4: "four"}
    )
    first.extend(later)
    assert first.records == {1: {"seconds": [1.0, 4.0]}}
    assert first.errors == {2: "two", 3: "three", 4: "four"}
