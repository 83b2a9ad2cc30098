"""Sinks of every kind, with ranks that are threads of one process: what a process does that is killed meanwhile."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

# What each trial would import, if it were not there when the process is forked.
import deltalake
import obstore.store  # noqa: F401
import polars as pl
import polars.io.iceberg
import pyarrow.dataset  # noqa: F401
import pyiceberg.avro.decoder_fast
import pyiceberg.catalog.noop
import pyiceberg.catalog.sql
import pyiceberg.io.pyarrow
import pyiceberg.table  # noqa: F401
import rich.console
import rich.table  # noqa: F401
import sqlalchemy.dialects.sqlite  # noqa: F401

from cudf_polars.engine.options import StreamingOptions
from cudf_polars.engine.spmd import SPMDEngine
from cudf_polars.lower import FallbackWarning
from support.cluster import on_ranks
from support.tables import catalog_of, remote_catalog_of

__all__ = ["NEW", "OLD", "sink"]

OLD = pl.DataFrame({"k": [1, 2, 3, 3], "v": [0, 1, 2, 3]})
NEW = pl.DataFrame({"k": [1, 2, 2, 4, 4, 4], "v": [10, 11, 12, 13, 14, 15]})


def _by_key(args: Any) -> str:
    return f"{args.partition_keys.item()}-{args.index_in_partition}.parquet"


def _write(
    kind: str, rows: pl.LazyFrame, target: str, folder: Path, options: dict[str, str], engine: SPMDEngine
) -> None:
    given: dict[str, Any] = {"storage_options": options} if options else {}
    match kind:
        case "file":
            rows.sink_parquet(f"{target}.parquet", engine=engine, **given)
        case "parts":
            rows.sink_parquet(target, engine=engine, **given)
        case "partitions":
            rows.sink_parquet(pl.PartitionBy(target, key="k"), engine=engine, **given)
        case "named partitions":
            by_key = pl.PartitionBy(target, key="k", file_path_provider=_by_key)
            rows.sink_parquet(by_key, engine=engine, **given)
        case "append to delta" | "overwrite delta":
            rows.sink_delta(target, mode=kind.split(" ")[0], engine=engine, **given)
        case "append to iceberg" | "overwrite iceberg":
            far = f"{target}/{folder.name}"
            catalog = remote_catalog_of(folder, far, options) if options else catalog_of(folder)
            rows.sink_iceberg("db.t", mode=kind.split(" ")[0], catalog=catalog, engine=engine, **given)


def sink(folder: str, kind: str, nranks: int, which: str, base: str, options: dict[str, str]) -> None:
    """Write rows by a sink.

    Parameters
    ----------
    folder
        What the ranks work in, if they write to no store.
    kind
        Of sink.
    nranks
        Number of ranks.
    which
        ``"old"`` or ``"new"``, rows.
    base
        The URL of a folder in a store; empty for ``folder``.
    options
        How the store is reached.
    """
    frame = {"old": OLD, "new": NEW}[which]
    target = f"{base or folder}/out"
    warnings.simplefilter("error", FallbackWarning)
    os.environ["AWS_EC2_METADATA_DISABLED"] = "true"

    def work(comm: Any) -> None:
        how = StreamingOptions(sink_to_directory=False) if kind == "file" else StreamingOptions()
        with SPMDEngine.from_options(how, comm=comm) as engine:
            rows = frame[engine.rank :: nranks].lazy()
            _write(kind, rows, target, Path(folder), options, engine)

    on_ranks(nranks, work)


_ = deltalake
