"""Tables in a bucket of S3, and queries of them."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

__all__ = ["S3_ROWS", "parquet_queries", "put_tables"]

S3_ROWS = pl.DataFrame(
    {
        "id": range(900),
        "region": [("north", "south", "east")[i % 3] for i in range(900)],
        "v": [i * 0.5 for i in range(900)],
    }
)


def put_tables(options: Mapping[str, str]) -> None:
    """Write the tables that :func:`parquet_queries` reads."""
    S3_ROWS.lazy().sink_parquet("s3://bucket/one.parquet", storage_options=dict(options), row_group_size=300)
    for number in range(3):
        part = S3_ROWS.slice(300 * number, 300).lazy()
        part.sink_parquet(
            f"s3://bucket/many/{number}.parquet", storage_options=dict(options), row_group_size=150
        )
    for (region,), part in S3_ROWS.partition_by("region", as_dict=True, include_key=False).items():
        path = f"s3://bucket/hive/region={region}/0.parquet"
        part.lazy().sink_parquet(path, storage_options=dict(options), row_group_size=150)


def parquet_queries(options: Mapping[str, str]) -> dict[str, tuple[pl.LazyFrame, bool]]:
    """Return queries of the tables, and whether the order of their rows is promised."""
    given = dict(options)
    one = pl.scan_parquet("s3://bucket/one.parquet", storage_options=given)
    many = pl.scan_parquet("s3://bucket/many/*.parquet", storage_options=given)
    hive = pl.scan_parquet("s3://bucket/hive/", storage_options=given, hive_partitioning=True)
    paths = pl.scan_parquet(
        "s3://bucket/many/*.parquet", storage_options=given, include_file_paths="path", row_index_name="n"
    )
    return {
        "one file": (one, True),
        "files": (many, True),
        "filter": (one.filter(pl.col("id") % 7 == 0).select("id"), True),
        "groups": (many.group_by("region").agg(pl.col("v").sum(), pl.len()), False),
        "rows": (many.select(pl.len()), True),
        "slice": (many.slice(250, 500).select("id", "v"), True),
        "tail": (many.tail(120), True),
        "index and paths": (paths.filter(pl.col("id") % 5 == 0), True),
        "hive": (hive.group_by("region").agg(pl.col("id").max()), False),
        "hive filter": (hive.filter(pl.col("region") == "east").select(pl.col("id").sum()), True),
        "join": (one.join(many, on="id", how="semi").select(pl.col("v").sum()), True),
    }
