"""Which sources are split over the ranks, by format and store: the table of docs/sources.md, and of the tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["SINKS", "SOURCES", "SinkRow", "SourceRow"]

Store = Literal["file system", "object store", "bytes in the query"]


@dataclass(frozen=True)
class SourceRow:
    """How one format is read from one store on several ranks.

    Attributes
    ----------
    why_not
        Why one rank reads it; empty if all ranks do.
    """

    format: str
    store: Store
    how: str
    why_not: str = ""


@dataclass(frozen=True)
class SinkRow:
    """How one kind of sink writes to one store on several ranks."""

    sink: str
    store: Store
    how: str
    distributed: bool


_STORES: tuple[Store, ...] = ("file system", "object store")

SOURCES: tuple[SourceRow, ...] = (
    *(
        SourceRow(name, store, how, why_not)
        for name, how, why_not in (
            ("Parquet", "row groups", ""),
            ("Parquet, hive partitions", "row groups", ""),
            ("CSV", "ranges of bytes; several files: whole files", ""),
            ("CSV, compressed", "one rank", "it is compressed"),
            ("IPC", "rows", ""),
            ("Delta", "row groups", ""),
            ("NDJSON", "ranges of bytes; several files: whole files", ""),
        )
        for store in _STORES
    ),
    SourceRow("Iceberg", "file system", "row groups"),
    SourceRow("pyarrow dataset", "file system", "row groups; many files: whole files"),
    SourceRow("IO plugin", "file system", "one rank", "an IO plugin has no parts"),
    *(
        SourceRow(name, "bytes in the query", how)
        for name, how in (
            ("Parquet", "row groups"),
            ("CSV", "ranges of bytes; several files: whole files"),
            ("NDJSON", "ranges of bytes; several files: whole files"),
            ("IPC", "rows"),
        )
    ),
)

SINKS: tuple[SinkRow, ...] = (
    *(
        SinkRow(f"sink_{kind}", store, "a file a rank", distributed=True)
        for kind in ("parquet", "ipc", "csv", "ndjson")
        for store in _STORES
    ),
    *(
        SinkRow("sink_* to pl.PartitionBy", store, "the files of its rows by each rank", distributed=True)
        for store in _STORES
    ),
    *(SinkRow("sink_*(lazy=True)", store, "as the eager call", distributed=True) for store in _STORES),
    *(
        SinkRow(name, store, "files of each rank, one commit", distributed=True)
        for name in ("sink_delta", "sink_iceberg")
        for store in _STORES
    ),
)
