"""One rank: writes a table to partitions: ``python -m benchmarks.partition_by.worker TABLE KEYS FOLDER``."""

from __future__ import annotations

import json
import sys
import time

import polars as pl


def main() -> None:
    """Write and print how long it took."""
    from cudf_polars.engine.spmd import SPMDEngine

    table, keys, folder = sys.argv[1:]
    with SPMDEngine() as engine:
        query = pl.scan_parquet(table)
        start = time.perf_counter()
        query.sink_parquet(pl.PartitionBy(folder, key=keys.split(",")), mkdir=True, engine=engine)
        print("RESULT " + json.dumps(time.perf_counter() - start), flush=True)


if __name__ == "__main__":
    main()
