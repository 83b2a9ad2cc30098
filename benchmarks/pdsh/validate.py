"""Checks the queries themselves: Polars' answer to each against DuckDB's answer to the SQL text.

python -m benchmarks.pdsh.validate --scale 1
"""

from __future__ import annotations

import argparse
from pathlib import Path

import polars as pl
import polars.selectors as cs

from benchmarks.pdsh.compare import difference
from benchmarks.pdsh.data import ensure
from benchmarks.pdsh.queries import QUERIES, Query, Tables
from benchmarks.pdsh.sql import duckdb_answer


def check(query: Query, tables: Tables) -> str | None:
    """Describe how Polars' answer differs from the SQL answer; None where it does not."""
    answer = query.build(tables).collect(engine="streaming")
    # SQL and Polars choose different widths for counts and years.
    answer = answer.with_columns(cs.integer().cast(pl.Int64))
    return difference(answer, duckdb_answer(query.number, tables), query.order)


def main() -> int:
    """Check all queries; the exit status is 1 if one differs."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pdsh.validate", description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="scale factor (default 1)")
    parser.add_argument("--data", type=Path, help="directory of the tables, made if missing")
    arguments = parser.parse_args()
    tables = ensure(arguments.scale, arguments.data, floats=True)
    failed = 0
    for query in QUERIES.values():
        found = check(query, tables)
        failed += found is not None
        print(f"{query.name:>4}  {'equal' if found is None else found}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
