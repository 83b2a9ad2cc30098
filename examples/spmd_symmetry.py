"""All ranks must run the same queries in the same order; ranks that do not are told so.

rrun -n 2 python examples/spmd_symmetry.py
"""

import polars as pl
from _data import sales

from cudf_polars.engine.spmd import SPMDEngine
from cudf_polars.execute.errors import QueryMismatchError

# Right: every rank runs the same query.
with SPMDEngine() as engine:
    result = (
        pl.scan_parquet(sales()).group_by("customer_id").agg(pl.col("amount").sum()).collect(engine=engine)
    )
    print(f"rank {engine.rank} of {engine.nranks}: {result.height} customers")

# Wrong: rank 0 asks for a group-by that the others never see. Nobody waits for ever: all ranks get an
# error that shows where the plans part. (On a single rank there is nobody to disagree with.)
with SPMDEngine() as engine:
    df = pl.scan_parquet(sales())
    if engine.rank == 0:  # don't do this
        df = df.group_by("customer_id").agg(pl.col("amount").sum())
    try:
        df.collect(engine=engine)
    except QueryMismatchError as error:
        print(f"rank {engine.rank}: QueryMismatchError: {error}")
