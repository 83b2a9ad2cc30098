"""A rank, or the launcher, comes to a bad end in the middle of a query: the others are told, and nothing is left."""

from __future__ import annotations

import re
import signal

import polars as pl
import pytest

from support.leftovers import Places
from support.ranks import run_ranks, start_ranks

SCRIPT = """
import os, signal, sys, time

begin = time.monotonic()
import polars as pl
from cudf_polars.engine.spmd import SPMDEngine
from rapidsmpf.error import RankFailedError

path, victim, how = sys.argv[1], int(sys.argv[2]), sys.argv[3]

def say(line):
    os.write(1, f"{line}\\n".encode())  # at once: ranks share a pipe

def end(column):
    if rank == victim:
        say(f"ends {time.monotonic()}")
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        while True:
            time.sleep(1000)
    return column

t = pl.scan_parquet(path)
with SPMDEngine() as engine:
    rank = engine.rank  # the function takes no engine along: that cannot be serialised
    # A whole query first: the next one finds everything in use.
    t.group_by("k").agg(pl.sum("v")).collect(engine=engine)
    say(f"pid {os.getpid()} {time.monotonic() - begin}")
    # The victim ends where it makes its rows; the others wait for them.
    rows = t.with_columns(pl.col("v").map_batches(end, return_dtype=pl.Float64, is_elementwise=True))
    try:
        rows.group_by("s").agg(pl.sum("v")).sort("s").collect(engine=engine)
        say("no failure")
    except RankFailedError as error:
        assert error.rank == victim and error.pid > 0 and error.host, error
        say(f"raised {time.monotonic()}")
        try:
            t.group_by("k").agg(pl.sum("v")).collect(engine=engine)
        except RankFailedError:
            say("again")
"""


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("table") / "t.parquet"
    rows = 30_000
    pl.DataFrame(
        {
            "k": [i % 97 for i in range(rows)],
            "v": [float(i) for i in range(rows)],
            "s": [f"text number {i}" for i in range(rows)],
        }
    ).write_parquet(path, row_group_size=1000)
    return path


def said(text: str, word: str) -> list[list[str]]:
    return [line.split()[1:] for line in text.splitlines() if line.split()[:1] == [word]]


# Nearly everything is spilled.
SPILLING = {"RAPIDSMPF_SPILL_DEVICE_LIMIT": "1 MiB"}


@pytest.mark.parametrize("victim", [0, 1, 2])
def test_rank_is_killed_in_the_middle_of_a_query(victim, table, tmp_path):
    places = Places(tmp_path)
    job = run_ranks(3, SCRIPT, str(table), str(victim), "kill", env=places.env | SPILLING)
    text = job.stdout + job.stderr
    assert job.returncode == 128 + signal.SIGKILL, text
    assert re.search(rf"rank {victim} .*SIGKILL", job.stderr), text

    started = said(job.stdout, "pid")
    # On a machine where it takes seconds to begin, the news may take long as well.
    allowed = max(5.0, *(5 * float(words[1]) for words in started))
    ((ended,),) = said(job.stdout, "ends")
    raised = [float(words[0]) for words in said(job.stdout, "raised")]
    assert len(raised) == 2, text
    assert max(raised) - float(ended) < allowed
    assert len(said(job.stdout, "again")) == 2, text
    places.check({int(words[0]) for words in started})


def test_rrun_is_killed_in_the_middle_of_a_query(table, tmp_path):
    places = Places(tmp_path)
    rrun = start_ranks(3, SCRIPT, str(table), "1", "wait", env=places.env | SPILLING)
    assert rrun.stdout is not None
    lines = []
    while len(lines) < 4:  # three processes, and the one that keeps the others waiting
        line = rrun.stdout.readline()
        assert line, (lines, rrun.communicate())
        lines.append(line)
    rrun.kill()
    rest, _ = rrun.communicate(timeout=60)  # its output ends with the last rank
    pids = {int(words[0]) for words in said("".join(lines) + rest, "pid")}
    assert len(pids) == 3, lines
    places.check(pids)


MISMATCH = """
import os
import polars as pl
from cudf_polars.engine.spmd import SPMDEngine

rows = pl.LazyFrame({"k": [1, 2, 3], "v": [1, 2, 3]})
with SPMDEngine() as engine:
    query = rows.group_by("k").agg(pl.sum("v")) if engine.rank == 0 else rows.filter(pl.col("k") > 3)
    try:
        query.collect(engine=engine)
    except Exception as error:
        os.write(1, f"{type(error).__name__}\\n".encode())
        raise
"""


def test_different_queries_are_a_mismatch_on_every_rank_although_the_first_to_see_it_ends_at_once():
    job = run_ranks(3, MISMATCH)
    assert job.returncode != 0
    assert job.stdout.splitlines() == ["QueryMismatchError"] * 3, job.stderr
