"""Run a Polars query on a Dask cluster: the script is the client, and gets the whole answer.

python examples/dask_engine.py                       # on a cluster of its own, on this machine
python examples/dask_engine.py sales tcp://host:8786 # on one that is running
"""

import sys
from contextlib import ExitStack

import polars as pl
from _data import sales

from cudf_polars.engine.dask import DaskEngine


def main() -> None:
    """Run the query of the quickstart."""
    with ExitStack() as stack:
        if len(sys.argv) > 2:
            from distributed import Client

            client = stack.enter_context(Client(sys.argv[2]))
            engine = stack.enter_context(DaskEngine(dask_client=client))
        else:
            engine = stack.enter_context(DaskEngine(n_workers=2))
        print(f"cluster has {engine.nranks} workers")
        for info in engine.gather_cluster_info():
            print(f"hostname={info['hostname']}, pid={info['pid']}")
        answer = (
            pl.scan_parquet(sales())
            .filter(pl.col("amount") > 100)
            .group_by("region")
            .agg(pl.col("amount").sum(), customers=pl.col("customer_id").n_unique())
            .sort("region")
            .collect(engine=engine)
        )
        print(answer)


if __name__ == "__main__":
    main()
