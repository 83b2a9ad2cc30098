"""Shuffle and join Dask DataFrames through rapidsmpf, in one line each.

python examples/dask_shuffle.py
"""

import dask.dataframe as dd
import pandas as pd
from distributed import Client, LocalCluster
from rapidsmpf.integrations.dask_dataframe import merge, shuffle


def orders(month: int) -> pd.DataFrame:
    """Make the orders of a month: who bought for how much."""
    customers = [(7 * i + month) % 50 for i in range(1000)]
    return pd.DataFrame({"customer_id": customers, "amount": [float(i % 97) for i in range(1000)]})


def main() -> None:
    """Run on a cluster of two worker processes."""
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster),
    ):
        sales = dd.from_map(orders, range(12))
        names = dd.from_pandas(
            pd.DataFrame({"customer_id": range(50), "name": [f"customer {i}" for i in range(50)]}),
            npartitions=2,
        )

        by_customer = shuffle(sales, on="customer_id", npartitions=4)
        for number, partition in enumerate(by_customer.partitions):
            frame = partition.compute()
            print(f"partition {number} has {len(frame)} orders of {frame.customer_id.nunique()} customers")

        joined = merge(sales, names, on="customer_id")
        best = joined.groupby("name").amount.sum().nlargest(3).compute()
        print(best)


if __name__ == "__main__":
    main()
