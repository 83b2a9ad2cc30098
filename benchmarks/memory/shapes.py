"""Whether memory grows with the rows: many shapes of queries, over a table and over one several times as long.

    python -m benchmarks.memory.shapes --rows 10000000 --times 3 --budget 100MB --ranks 1,2

Both tables are larger than the budget allows to hold, so that a rank should take as much memory for the one as for the
other. Its anonymous and shared memory is sampled every 5 ms, in a process for each run. The exit status is 1 if a rank
takes more than ``--most`` MiB more for the longer table.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl

from benchmarks.environment import write_report
from benchmarks.memory.queries import unordered_keys
from benchmarks.memory.results import run_ranks, tell
from benchmarks.memory.sampler import ANONYMOUS, held, sampled

__all__ = ["SHAPES"]

MIB = 1 << 20
_ROW_GROUP = 125_000
_GROUPS = 100_000
N, K, G, F, V, T = map(pl.col, "ikgfvt")


def make_table(path: Path, rows: int) -> None:
    """Write a table of 40 bytes a row and a text: ``i`` is sorted, ``k`` unique, ``g`` and ``f`` have groups."""
    numbered = unordered_keys(rows).with_row_index("i")
    table = numbered.with_columns(
        N.cast(pl.Int64), g=K % _GROUPS, f=K % 50, v=K * 0.5, t=(K % _GROUPS).cast(pl.String) + "-text"
    )
    table.sink_parquet(path, row_group_size=_ROW_GROUP, compression="snappy", engine="streaming")


Rows = pl.LazyFrame
SHAPES: dict[str, Callable[[Rows, Rows], Rows]] = {
    "few groups": lambda a, _: a.group_by("f").agg(V.sum(), pl.len()),
    "many groups": lambda a, _: a.group_by("g").agg(V.sum(), pl.len()),
    "many groups by text": lambda a, _: a.group_by("t").agg(V.mean()),
    "groups of expressions": lambda a, _: a.group_by(G // 2, F > 10).agg(V.max()),
    "groups of unique keys": lambda a, _: a.group_by("k").agg(V.sum()),
    "distinct values in groups": lambda a, _: a.group_by("f").agg(G.n_unique()),
    "medians of groups": lambda a, _: a.group_by("g").agg(V.median()),
    "first rows of groups": lambda a, _: a.group_by("g", maintain_order=True).agg(V.first()),
    "lists of groups": lambda a, _: a.group_by("g").agg(V),
    "distinct": lambda a, _: a.select("g", "t").unique(),
    "first of each kind": lambda a, _: a.unique("g", keep="first", maintain_order=True),
    "number of distinct values": lambda a, _: a.select(K.n_unique(), T.n_unique()),
    "value counts": lambda a, _: a.select(T.value_counts()),
    "median": lambda a, _: a.select(V.median()),
    "sum over groups": lambda a, _: a.select("k", share=V / V.sum().over("g")),
    "rank over groups": lambda a, _: a.select("k", r=V.rank().over("g")),
    "shift over groups": lambda a, _: a.select("k", s=V.shift(1).over("g", order_by="i")),
    "cumulative sum": lambda a, _: a.select("k", c=V.cum_sum()),
    "difference": lambda a, _: a.select("k", c=V.diff()),
    "row index": lambda a, _: a.with_row_index("n").filter(pl.col("n") % 3 == 0),
    "rolling mean": lambda a, _: a.select("i", m=V.rolling_mean_by("i", window_size="100i")),
    "time windows": lambda a, _: a.set_sorted("i").group_by_dynamic("i", every="1000i").agg(V.sum()),
    "slice": lambda a, _: a.slice(1_000_000, 2_000_000),
    "tail": lambda a, _: a.tail(1_000_000),
    "sort": lambda a, _: a.sort("t", "k"),
    "head of a sort": lambda a, _: a.sort("v").head(1000),
    "top k": lambda a, _: a.top_k(1000, by="v"),
    "filter by an aggregate": lambda a, _: a.filter(V.mean() < V),
    "filter by groups": lambda a, _: a.filter(V.max().over("g") == V),
    "join": lambda a, b: a.join(b, on="k"),
    "join by text": lambda a, b: a.join(b.unique("t"), on="t"),
    "left join of few": lambda a, b: a.join(b.filter(K % 1000 == 0), on="k", how="left"),
    "semi join": lambda a, b: a.join(b.filter(F < 25), on="k", how="semi"),
    "anti join": lambda a, b: a.join(b.filter(F < 25), on="k", how="anti"),
    "full join": lambda a, b: a.join(b, on="k", how="full", coalesce=True),
    "join of groups": lambda a, b: a.join(b.group_by("g").agg(V.sum().alias("s")), on="g"),
    "asof join": lambda a, b: a.set_sorted("i").join_asof(b.select("i", w="v").set_sorted("i"), on="i"),
    "merge of sorted rows": lambda a, b: a.merge_sorted(b, key="i"),
    "concatenation": lambda a, b: pl.concat([a, b]).group_by("g").agg(V.sum()),
    "rows side by side": lambda a, b: pl.concat([a.select("k"), b.select("v")], how="horizontal"),
    "unpivot": lambda a, _: a.unpivot(["k", "g"], index="i"),
    "explode": lambda a, _: a.select("i", pl.concat_list("k", "g").alias("l")).explode("l"),
    "is_in": lambda a, b: a.filter(K.is_in(b.filter(F == 0).select("k").collect()["k"].implode())),
}
"""By name, a function that makes a query of two scans of the table."""


def measure(shape: str, table: Path, folder: Path, budget: str) -> None:
    """Run a query on this rank under a budget and tell what it took."""
    from cudf_polars.engine.spmd import SPMDEngine

    options = {"spill_device_limit": budget, "spill_directory": str(folder / "spill")}
    with SPMDEngine(rapidsmpf_options=options, executor_options={"fallback_mode": "silent"}) as engine:
        pid = os.getpid()
        before = held(pid, ANONYMOUS)
        query = SHAPES[shape](pl.scan_parquet(table), pl.scan_parquet(table))
        with sampled(pid, ANONYMOUS) as peak:
            start = time.perf_counter()
            query.sink_parquet(folder / "output", engine=engine)
            seconds = time.perf_counter() - start
        outcome = engine.last_query
        result = {
            "rank": engine.rank,
            "seconds": seconds,
            "above_bytes": max(0, peak.nbytes - before),
            "fallbacks": list(outcome.fallbacks) if outcome is not None else [],
        }
    tell(folder, result)


def run_once(shape: str, table: Path, folder: Path, ranks: int, budget: str) -> list[dict[str, Any]]:
    """Run :func:`measure` in new processes; return what each says.

    Raises
    ------
    RuntimeError
        If one fails, with the end of what it printed.
    """
    for name in ("output", "spill"):
        shutil.rmtree(folder / name, ignore_errors=True)
    (folder / "spill").mkdir(parents=True)
    command = [sys.executable, "-m", "benchmarks.memory.shapes", "--measure", shape, f"--table={table}"]
    command += [f"--folder={folder}", f"--budget={budget}"]
    return run_ranks(command, ranks, folder, f"{shape} on {ranks} ranks")


def main() -> int:
    """Run what the command line says."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.memory.shapes",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rows", type=int, default=10_000_000, help="of the shorter table")
    parser.add_argument("--times", type=int, default=3, help="how many times as long the longer one is")
    parser.add_argument("--budget", default="100MB")
    parser.add_argument("--ranks", default="1,2")
    parser.add_argument("--shapes", default=",".join(SHAPES))
    parser.add_argument("--most", type=int, default=100, help="MiB that a rank may take more")
    parser.add_argument("--folder", type=Path, help="where the tables, answers and spill files go")
    parser.add_argument("--output", type=Path, help="write a record as JSON")
    parser.add_argument("--measure", choices=list(SHAPES), help=argparse.SUPPRESS)
    parser.add_argument("--table", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure is not None:
        measure(given.measure, given.table, given.folder, given.budget)
        return 0
    runs: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="riverrun-memory-", dir=given.folder) as name:
        folder = Path(name)
        tables = [folder / "short.parquet", folder / "long.parquet"]
        for table, rows in zip(tables, (given.rows, given.rows * given.times), strict=True):
            make_table(table, rows)
        for shape in given.shapes.split(","):
            for ranks in map(int, given.ranks.split(",")):
                run: dict[str, Any] = {"shape": shape, "ranks": ranks}
                runs.append(run)
                try:
                    said = [run_once(shape, table, folder, ranks, given.budget) for table in tables]
                except RuntimeError as error:
                    run["problem"] = str(error)
                    print(f"{shape:26} {ranks} rank(s): {error}", flush=True)
                    continue
                short, long = ([result["above_bytes"] for result in each] for each in said)
                run["above_bytes"] = {"short": short, "long": long}
                run["seconds"] = [max(result["seconds"] for result in each) for each in said]
                run["fallbacks"] = said[0][0]["fallbacks"]
                if max(long) - max(short) > given.most * MIB:
                    run["problem"] = "grows with the rows"
                print(
                    f"{shape:26} {ranks} rank(s): {max(short) / MIB:5.0f} {max(long) / MIB:5.0f} MiB"
                    f" {run['seconds'][0]:5.1f} {run['seconds'][1]:5.1f} s"
                    f"{'; on one rank: ' + '; '.join(run['fallbacks']) if run['fallbacks'] else ''}"
                    f"{'; GROWS' if 'problem' in run else ''}",
                    flush=True,
                )
    if given.output:
        write_report(
            given.output,
            rows=given.rows,
            times=given.times,
            budget=given.budget,
            most_mib=given.most,
            runs=runs,
        )
    return 1 if any("problem" in run for run in runs) else 0


if __name__ == "__main__":
    sys.exit(main())
