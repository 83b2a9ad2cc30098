"""The same script on one rank and on several; each prints the rows that it holds.

python examples/spmd_group_by.py
rrun -n 4 python examples/spmd_group_by.py
"""

import polars as pl
from _data import sales

from cudf_polars.engine.spmd import SPMDEngine

with SPMDEngine() as engine:
    result = (
        pl.scan_parquet(sales())
        .filter(pl.col("amount") > 100)
        .group_by("customer_id")
        .agg(pl.col("amount").sum())
        .collect(engine=engine)
    )
    print(f"rank {engine.rank} of {engine.nranks}: {result.height} customers")
