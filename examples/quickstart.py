"""The example of the README: one query, run by every rank on its part of the files.

rrun -n 2 python examples/quickstart.py
"""

import polars as pl
from _data import sales

from cudf_polars import SPMDEngine

with SPMDEngine() as engine:
    query = (
        pl.scan_parquet(sales())
        .filter(pl.col("amount") > 100)
        .group_by("region")
        .agg(pl.col("amount").sum(), customers=pl.col("customer_id").n_unique())
        .sort("region")
    )
    part = query.collect(engine=engine)  # this rank's rows
    answer = engine.gather(part)  # the rows of all ranks, in rank order

    print(f"rank {engine.rank} of {engine.nranks} holds {part.height} of {answer.height} rows")
    if engine.rank == 0:
        print(answer)
