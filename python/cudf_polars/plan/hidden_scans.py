"""Scans of files that Polars' views do not show, or not whole, read from the query's serialised form."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import polars as pl

from cudf_polars.plan.cloud import read_access
from cudf_polars.plan.errors import Unreadable
from cudf_polars.plan.memory_files import MemoryFile
from cudf_polars.plan.nodes import Scan
from cudf_polars.plan.polars16.scans import scan_keywords
from cudf_polars.plan.serialized import kind_of

__all__ = ["hidden_scan"]

_KINDS = {"Ipc": "ipc", "NDJson": "ndjson"}
_UNUSUAL = ("schema", "projection", "column_mapping", "default_values", "pre_slice", "deletion_files")


def hidden_scan(form: Any, schema: pl.Schema, files: Mapping[str, MemoryFile]) -> Scan | None:
    """Return a scan of Arrow IPC or NDJSON files that are named one by one, when its options can be given again.

    The views show no scan of IPC, and of NDJSON not how its store is reached.

    Parameters
    ----------
    form
        A node of a query in its JSON form.
    schema
        Its columns.
    files
        By path, the files in memory.
    """
    if kind_of(form) != "Scan" or kind_of(form["Scan"]["scan_type"]) not in _KINDS:
        return None
    value = form["Scan"]
    args, sources = value["unified_scan_args"], value["sources"]
    ((kind, reader),) = value["scan_type"].items()
    paths = [p["inner"] if isinstance(p, dict) else p for p in sources.get("Paths", [])]
    plain = all(isinstance(p, str) and not set("*?[]") & set(p) for p in paths)
    if not paths or not plain or args["hive_options"]["enabled"]:
        return None
    try:
        cloud = read_access(json.dumps(args["cloud_options"]))
        keywords = {} if kind == "Ipc" else scan_keywords(("ndjson", json.dumps(reader["options"])), None)[1]
    except (ValueError, Unreadable):
        return None
    if any((p.endswith("/") or "." not in p.rsplit("/", 1)[-1]) and p not in files for p in paths):
        return None  # a folder, perhaps
    if any(args.get(name) is not None for name in _UNUSUAL):
        return None
    row_index = args["row_index"]
    return Scan(
        kind=_KINDS[kind],
        paths=tuple(paths),
        row_index=None if row_index is None else (row_index["name"], row_index["offset"]),
        include_file_paths=args["include_file_paths"],
        options=keywords,
        cloud=cloud,
        schema=dict(schema),
    )
