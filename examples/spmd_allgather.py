"""Every rank gets the whole result.

rrun -n 2 python examples/spmd_allgather.py
"""

import polars as pl
from _data import sales

from cudf_polars.engine.spmd import (
    SPMDEngine,
    allgather_polars_dataframe,
)
from cudf_polars.streaming.actor_graph.collectives.common import reserve_op_id

with SPMDEngine() as engine:
    result = pl.scan_parquet(sales()).collect(engine=engine)

    with reserve_op_id() as op_id:
        full = allgather_polars_dataframe(
            engine=engine,
            local_df=result,
            op_id=op_id,
        )
    print(f"rank {engine.rank} of {engine.nranks}: {result.height} of {full.height} rows")
