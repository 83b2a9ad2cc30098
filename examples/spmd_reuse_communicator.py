"""Several engines after each other on one communicator, made once.

rrun -n 2 python examples/spmd_reuse_communicator.py
"""

import polars as pl
from rapidsmpf import bootstrap
from rapidsmpf.progress_thread import ProgressThread

from cudf_polars.engine.spmd import SPMDEngine

# Bootstrap once.
comm = bootstrap.create_ucxx_comm(progress_thread=ProgressThread())

# A frame in memory is this rank's own part of the data.
df1 = pl.DataFrame({"rank": [comm.rank] * 3, "value": [1, 2, 3]})
df2 = df1.with_columns(pl.col("value") * 10)

# Reuse across multiple engine lifetimes, no re-bootstrap between them.
with SPMDEngine(comm=comm) as engine:
    result1 = df1.lazy().collect(engine=engine)

with SPMDEngine(comm=comm) as engine:
    result2 = df2.lazy().select(pl.col("value").sum()).collect(engine=engine)

print(f"rank {comm.rank} of {comm.nranks}: {result1.height} rows, then {result2.height}")
