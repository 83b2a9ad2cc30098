"""Delta and Iceberg tables on this machine's disk, as other programs leave them."""

from __future__ import annotations

import base64
import json
import os
import struct
from pathlib import Path
from typing import Any

import polars as pl
from polars.testing import assert_frame_equal

__all__ = [
    "ROWS",
    "catalog_of",
    "check_query",
    "make_delta",
    "make_iceberg",
    "remote_catalog_of",
    "table_queries",
]

# Else Polars recommends a package of its own for each table that it reads.
os.environ.setdefault("POLARS_ICEBERG_PLANNER", "pyiceberg")

ROWS = pl.DataFrame(
    {
        "id": range(300),
        "region": ["north", "south", "east"] * 100,
        "v": [float(i % 17) for i in range(300)],
    }
)


def make_delta(folder: Path) -> None:
    """Make tables under ``folder``.

    ``plain`` has two versions, is partitioned by region and has several files. ``evolved`` got a column after its
    first file. ``deleted`` has a deletion vector, so that its file holds rows that the table does not. ``empty`` has no
    files.
    """
    import deltalake

    ROWS.write_delta(folder / "plain", delta_write_options={"partition_by": ["region"]})
    ROWS.with_columns(pl.col("id") + 300).write_delta(folder / "plain", mode="append")
    ROWS.drop("v").write_delta(folder / "evolved")
    ROWS.write_delta(folder / "evolved", mode="append", delta_write_options={"schema_mode": "merge"})
    ROWS.write_delta(folder / "deleted")
    _delete_rows(folder / "deleted", [0, 7, 299])
    deltalake.DeltaTable.create(folder / "empty", deltalake.Schema.from_arrow(ROWS.to_arrow().schema))


def _delete_rows(table: Path, rows: list[int]) -> None:
    """Give the table's only file a deletion vector, as Spark would: delta-rs reads them, and writes none."""
    log = table / "_delta_log"
    actions = [json.loads(line) for line in (log / f"{0:020}.json").read_text().splitlines()]
    (add,) = (action["add"] for action in actions if "add" in action)
    import pyroaring

    bitmap = pyroaring.BitMap64(rows).serialize()
    vector = struct.pack("<I", 1681511377) + bitmap
    padded = vector + b"\0" * (-len(vector) % 4)
    remove = {key: add[key] for key in ("path", "partitionValues", "size") if key in add}
    changes: list[dict[str, Any]] = [
        {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["deletionVectors"],
                      "writerFeatures": ["deletionVectors"]}},
        {"remove": {**remove, "dataChange": True, "deletionTimestamp": 1, "extendedFileMetadata": True}},
        {"add": {**add, "deletionVector": {"storageType": "i", "pathOrInlineDv": _z85(padded),
                                           "sizeInBytes": len(vector), "cardinality": len(rows)}}},
    ]  # fmt: skip
    (log / f"{1:020}.json").write_text("".join(json.dumps(change) + "\n" for change in changes))


def _z85(data: bytes) -> str:
    plain = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
    z85 = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
    return base64.b85encode(data).translate(bytes.maketrans(plain, z85)).decode()


def catalog_of(folder: Path) -> Any:
    """Return the Iceberg catalog in ``folder``."""
    from pyiceberg.catalog.sql import SqlCatalog

    return SqlCatalog("test", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")


def remote_catalog_of(folder: Path, warehouse: str, options: dict[str, str]) -> Any:
    """Return the Iceberg catalog in ``folder`` of tables in a bucket of S3, which is reached as Polars' options say."""
    from pyiceberg.catalog.sql import SqlCatalog

    properties = {
        "s3.endpoint": options["aws_endpoint_url"],
        "s3.access-key-id": options["aws_access_key_id"],
        "s3.secret-access-key": options["aws_secret_access_key"],
        "s3.region": "us-east-1",
    }
    return SqlCatalog("far", uri=f"sqlite:///{folder}/far.db", warehouse=warehouse, **properties)


def make_iceberg(folder: Path) -> None:
    """Make tables in a catalog under ``folder``.

    ``db.t`` has several files, of which the first lacks a column. In ``db.renamed`` a column was renamed, so that the
    first file has it by another name.
    """
    folder.mkdir()
    catalog = catalog_of(folder)
    catalog.create_namespace("db")
    first = ROWS.drop("v").to_arrow()
    table = catalog.create_table("db.t", schema=first.schema)
    table.append(first)
    with table.update_schema() as update:
        update.union_by_name(ROWS.to_arrow().schema)
    table.append(ROWS.with_columns(pl.col("id") + 300).to_arrow())
    table.append(ROWS.with_columns(pl.col("id") + 600).to_arrow())
    first = ROWS.rename({"v": "former"}).to_arrow()
    table = catalog.create_table("db.renamed", schema=first.schema)
    table.append(first)
    with table.update_schema() as update:
        update.rename_column("former", "v")
    table.append(ROWS.with_columns(pl.col("id") + 300).to_arrow())


def table_queries(folder: Path) -> dict[str, pl.LazyFrame]:
    """Return queries of the tables of :func:`make_delta` and :func:`make_iceberg` (in ``iceberg``) by name."""
    import deltalake

    plain = pl.scan_delta(str(folder / "plain"))
    catalog = catalog_of(folder / "iceberg")
    tables = {
        "plain": plain,
        "older": pl.scan_delta(deltalake.DeltaTable(folder / "plain", version=0)),
        "evolved": pl.scan_delta(str(folder / "evolved")),
        "deleted": pl.scan_delta(str(folder / "deleted")),
        "iceberg": pl.scan_iceberg(catalog.load_table("db.t")),
        "renamed": pl.scan_iceberg(catalog.load_table("db.renamed")),
    }
    out = {
        "none": plain.filter(pl.col("region") == "nowhere").group_by("region").agg(pl.col("v").sum()),
        "count of none": plain.filter(pl.col("region") == "nowhere").select(pl.len()),
        "empty": pl.scan_delta(str(folder / "empty")).group_by("region").len(),
    }
    for name, table in tables.items():
        out[f"{name}: rows"] = table.filter(pl.col("v") > 3)
        out[f"{name}: a column"] = table.filter(pl.col("v") > 3, pl.col("region") == "south").select("id")
        out[f"{name}: groups"] = table.group_by("region").agg(pl.col("v").sum(), pl.len())
        right = plain.select("id", w=pl.col("v") * 2)
        out[f"{name}: join"] = table.join(right, on="id", how="left", validate="m:1").select(
            pl.col("w").sum()
        )
    return out


def check_query(name: str, answer: pl.DataFrame, query: pl.LazyFrame, *, ordered: bool = False) -> None:
    """Fail unless ``answer`` has the rows that Polars gives for ``query``; with ``ordered``, in its order."""
    try:
        assert_frame_equal(answer, query.collect(engine="streaming"), check_row_order=ordered)
    except AssertionError as error:
        error.add_note(f"query {name!r}")
        raise
