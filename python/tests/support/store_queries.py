"""Tables in a bucket of an object store, and queries of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

__all__ = [
    "STORE_ROWS",
    "cloud_queries",
    "parquet_queries",
    "put_tables",
    "put_texts",
    "queries_for_engines",
    "text_queries",
    "write_by_engine",
]

STORE_ROWS = pl.DataFrame(
    {
        "id": range(900),
        "region": [("north", "south", "east")[i % 3] for i in range(900)],
        "v": [i * 0.5 for i in range(900)],
    }
)


def put_tables(options: Mapping[str, str], base: str = "s3://bucket") -> None:
    """Write the tables that :func:`parquet_queries` reads."""
    STORE_ROWS.lazy().sink_parquet(f"{base}/one.parquet", storage_options=dict(options), row_group_size=300)
    for number in range(3):
        part = STORE_ROWS.slice(300 * number, 300).lazy()
        part.sink_parquet(f"{base}/many/{number}.parquet", storage_options=dict(options), row_group_size=150)
    for (region,), part in STORE_ROWS.partition_by("region", as_dict=True, include_key=False).items():
        path = f"{base}/hive/region={region}/0.parquet"
        part.lazy().sink_parquet(path, storage_options=dict(options), row_group_size=150)


def parquet_queries(
    options: Mapping[str, str], base: str = "s3://bucket"
) -> dict[str, tuple[pl.LazyFrame, bool]]:
    """Return queries of the tables, and whether the order of their rows is promised."""
    given = dict(options)
    one = pl.scan_parquet(f"{base}/one.parquet", storage_options=given)
    many = pl.scan_parquet(f"{base}/many/*.parquet", storage_options=given)
    hive = pl.scan_parquet(f"{base}/hive/", storage_options=given, hive_partitioning=True)
    paths = pl.scan_parquet(
        f"{base}/many/*.parquet", storage_options=given, include_file_paths="path", row_index_name="n"
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


def cloud_queries(
    base: str, place: dict[str, str], options: dict[str, str], credentials: dict[str, str]
) -> dict[str, pl.LazyFrame]:
    """Return queries of ``rows.csv`` and ``rows.parquet`` of a store, by keys and by a credential provider.

    Parameters
    ----------
    base, place, options, credentials
        A store's ``access``.
    """

    def provider() -> tuple[dict[str, str], None]:
        return credentials, None

    return {
        f"{kind} by {how}": scan(f"{base}/rows.{kind}", **access).group_by("region").agg(pl.col("id").sum())
        for kind, scan in (("csv", pl.scan_csv), ("parquet", pl.scan_parquet))
        for how, access in (
            ("keys", {"storage_options": options}),
            ("provider", {"storage_options": place, "credential_provider": provider}),
        )
    }


def put_texts(options: Mapping[str, str], base: str) -> None:
    """Write the files that :func:`text_queries` and :func:`cloud_queries` read."""
    given = {"storage_options": dict(options)}
    STORE_ROWS.lazy().sink_parquet(f"{base}/rows.parquet", row_group_size=150, **given)
    for kind in _TEXTS:
        sink = getattr(pl.LazyFrame, f"sink_{kind}")
        sink(STORE_ROWS.lazy(), f"{base}/rows.{kind}", **given)
        for number in range(2):
            sink(STORE_ROWS.slice(450 * number, 450).lazy(), f"{base}/{kind}/{number} of 2.{kind}", **given)


_TEXTS = ("csv", "ndjson", "ipc")


def text_queries(options: Mapping[str, str], base: str) -> dict[str, pl.LazyFrame]:
    """Return queries of files that are no Parquet; of each, the order of the rows is promised."""
    given = {"storage_options": dict(options)}
    found = {}
    for kind in _TEXTS:
        scan = getattr(pl, f"scan_{kind}")
        one = scan(f"{base}/rows.{kind}", **given)
        many = scan(
            [f"{base}/{kind}/{number} of 2.{kind}" for number in range(2)], row_index_name="n", **given
        )
        found |= {
            f"{kind}: one file": one,
            f"{kind}: pattern": scan(f"{base}/{kind}/* of 2.{kind}", **given),
            f"{kind}: files": many,
            f"{kind}: filter": one.filter(pl.col("id") % 7 == 0).select("region", "v"),
            f"{kind}: groups": many.group_by("region").agg(pl.col("n").sum()).sort("region"),
            f"{kind}: tail": many.tail(100),
        }
    return found


def queries_for_engines(
    base: str, place: dict[str, str], options: dict[str, str], credentials: dict[str, str]
) -> dict[str, tuple[pl.LazyFrame, bool]]:
    """Return some of all these queries, and whether the order of their rows is promised.

    Parameters
    ----------
    base, place, options, credentials
        A store's ``access``.
    """
    tables = parquet_queries(options, base)
    texts = text_queries(options, base)
    return {
        **{name: tables[name] for name in ("one file", "groups", "hive filter", "index and paths")},
        **{name: (texts[name], True) for name in ("csv: one file", "ndjson: files", "ipc: one file")},
        "provider": (cloud_queries(base, place, options, credentials)["csv by provider"], False),
    }


def write_by_engine(
    engine: Any, folder: str, base: str, _: dict[str, str], options: dict[str, str], __: dict[str, str]
) -> None:
    """Let an engine write a table by every sink, to a folder of its name, and by most of them twice."""
    given = {"storage_options": options, "engine": engine}
    rows = pl.scan_parquet(f"{base}/one.parquet", storage_options=options)
    for kind in ("parquet", "ipc", "csv", "ndjson"):
        for _time in range(2):  # the second in the place of the first
            getattr(rows, f"sink_{kind}")(f"{base}/{folder}/{kind}", **given)
    rows.sink_parquet(pl.PartitionBy(f"{base}/{folder}/parts", key="region"), **given)
    for mode in ("error", "append"):
        rows.sink_delta(f"{base}/{folder}/delta", mode=mode, **given)
