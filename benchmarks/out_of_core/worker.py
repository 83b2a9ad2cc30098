"""One run of one query by one engine, in a process of its own: ``python -m benchmarks.out_of_core.worker``."""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Literal

import polars as pl

from benchmarks.out_of_core.queries import QUERIES, SIX
from benchmarks.pdsh.queries import TABLE_NAMES, Tables

COMPRESSION: Literal["snappy"] = "snappy"
"""Of the files that all engines write; by default each has another, and the difference is up to a third of the time."""


def run_riverrun(tables: Tables, query: str, output: Path, spill: Path) -> dict[str, object]:
    """Run a query on this process's rank; rank 0 returns its explanation."""
    from cudf_polars.engine.spmd import SPMDEngine

    with SPMDEngine(rapidsmpf_options={"spill_directory": str(spill)}) as engine:
        start = time.perf_counter()
        QUERIES[query].lazy(tables).sink_parquet(output, compression=COMPRESSION, engine=engine)
        seconds = time.perf_counter() - start
        outcome = engine.last_query
        explained = outcome.explain() if outcome is not None and engine.rank == 0 else ""
        return {"seconds": seconds, "rank": engine.rank, "explain": explained}


def run_polars(tables: Tables, query: str, output: Path) -> dict[str, object]:
    """Run a query by Polars' streaming engine."""
    start = time.perf_counter()
    QUERIES[query].lazy(tables).sink_parquet(
        output / "part.parquet", compression=COMPRESSION, engine="streaming", mkdir=True
    )
    return {"seconds": time.perf_counter() - start, "rank": 0}


def run_duckdb(tables: Tables, query: str, output: Path, spill: Path, memory: int) -> dict[str, object]:
    """Run a query by DuckDB, told to keep to four fifths of the memory, as its documentation advises."""
    import duckdb

    output.mkdir()
    connection = duckdb.connect(
        config={
            "memory_limit": f"{memory * 8 // 10 >> 20}MiB",
            "temp_directory": str(spill),
            "threads": len(os.sched_getaffinity(0)),
        }
    )
    for name in TABLE_NAMES:
        connection.execute(f"CREATE VIEW {name} AS SELECT * FROM read_parquet('{tables.source(name)}')")
    text = QUERIES[query].sql.format(scale_factor=tables.scale_factor)
    start = time.perf_counter()
    connection.execute(
        f"COPY ({text}) TO '{output}/part.parquet' (FORMAT parquet, COMPRESSION {COMPRESSION})"
    )
    return {"seconds": time.perf_counter() - start, "rank": 0}


def summary(query: str, output: Path, *, in_full: bool) -> list[object]:
    """Return the number of rows and sums to compare answers by, in memory that does not grow with the answer.

    The sums are of each column of numbers, and of a hash of each row for queries whose answers are large, so that
    values that got into another row are found. Floats have no part in it: their last digits may differ. Where the order
    of the rows is part of the answer, a row's hash counts with its position.
    """
    rows = pl.scan_parquet(output / "*.parquet")
    if not in_full:
        return [rows.select(pl.len()).collect().item()]
    columns = sorted(rows.collect_schema().items())
    sums = [pl.col(name).cast(pl.Float64).sum() for name, dtype in columns if dtype.is_numeric()]
    if query in SIX:
        # Engines give integers and decimals of several widths; as a float, each of these values is exact.
        exact = [
            pl.col(name).cast(pl.Float64) if dtype.is_numeric() else pl.col(name)
            for name, dtype in columns
            if not dtype.is_float()
        ]
        # Of 24 bits: with a position modulo 1,021, the sum over 2^29 rows is below 2^63.
        hashed = pl.struct(exact).hash() // (1 << 40)
        if QUERIES[query].is_ordered:
            hashed *= pl.col("position") % 1021 + 1
            rows = rows.with_row_index("position")
        sums.append(hashed.sum().alias("rows' hashes"))
    else:
        sums.extend(pl.col(name).n_unique() for name, dtype in columns if not dtype.is_numeric())
    return list(rows.select(pl.len().alias("rows"), *sums).collect(engine="streaming").row(0))


def main() -> None:
    """Run what the command line says and write the result as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("engine", choices=["riverrun", "polars", "duckdb", "summary", "count"])
    parser.add_argument("query", choices=list(QUERIES))
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--spill", type=Path, required=True)
    parser.add_argument("--told", type=Path, required=True, help="folder for the result, a file a rank")
    parser.add_argument("--memory", type=int, required=True)
    given = parser.parse_args()
    tables = Tables(given.data, floats=False)
    match given.engine:
        case "riverrun":
            result = run_riverrun(tables, given.query, given.output, given.spill)
        case "polars":
            result = run_polars(tables, given.query, given.output)
        case "duckdb":
            result = run_duckdb(tables, given.query, given.output, given.spill, given.memory)
        case _:
            result = {"summary": summary(given.query, given.output, in_full=given.engine == "summary")}
    name = "summary" if "summary" in result else f"rank-{result['rank']}"
    (given.told / f"{name}.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main()
