"""An engine with options of its own.

rrun -n 2 python examples/spmd_options.py
"""

import polars as pl
from _data import sales

from cudf_polars import SPMDEngine, StreamingOptions

opts = StreamingOptions(num_streaming_threads=8, fallback_mode="silent")

with SPMDEngine.from_options(opts) as engine:
    result = pl.scan_parquet(sales()).collect(engine=engine)
    print(f"rank {engine.rank} of {engine.nranks}: {result.height} rows")
