"""Scans of files that Polars' views do not show, or not whole, read from the query's serialised form."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from cudf_polars.plan.cloud import CloudAccess, read_access, with_access
from cudf_polars.plan.errors import Unreadable
from cudf_polars.plan.memory_files import MemoryFile
from cudf_polars.plan.nodes import Scan
from cudf_polars.plan.optimized import look
from cudf_polars.plan.polars16.scans import scan_keywords
from cudf_polars.plan.serialized import kind_of

__all__ = ["hidden_scan"]

_KINDS = {"Ipc": "ipc", "NDJson": "ndjson"}
_UNUSUAL = ("schema", "projection", "column_mapping", "default_values", "pre_slice", "deletion_files")


def hidden_scan(form: Any, schema: pl.Schema, files: Mapping[str, MemoryFile]) -> Scan | None:
    """Return a scan of Arrow IPC or NDJSON files, when its options can be given again.

    The views show no scan of IPC, and of NDJSON not how its store is reached. Patterns and folders are resolved here;
    a folder with hive partitions is not read so.

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
    if not paths or not all(isinstance(p, str) for p in paths) or args["hive_options"]["enabled"]:
        return None
    try:
        cloud = read_access(json.dumps(args["cloud_options"]))
        keywords = {} if kind == "Ipc" else scan_keywords(("ndjson", json.dumps(reader["options"])), None)[1]
    except (ValueError, Unreadable):
        return None
    if args.get("glob", True) and any(_may_be_several(p) and p not in files for p in paths):
        paths = _files_of(paths, cloud)
    if not paths or (kind == "NDJson" and any(_is_pattern(p) for p in paths)):
        return None  # not to be found, or a scan of them would take them for patterns
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


def _is_pattern(path: str) -> bool:
    return bool(set("*?[]") & set(path))


def _may_be_several(path: str) -> bool:
    """Whether a path is a pattern or, perhaps, a folder."""
    return _is_pattern(path) or path.endswith("/") or "." not in path.rsplit("/", 1)[-1]


def _files_of(paths: Sequence[str], cloud: CloudAccess | None) -> list[str]:
    """Return the files of patterns and folders, as Polars resolves them; none if it does not, or finds partitions."""
    # The views show the files of a CSV scan. With a schema, none is opened.
    lines = pl.scan_csv(list(paths), schema={"line": pl.String}, has_header=False, credential_provider=None)
    scan = with_access(lines, cloud)
    try:
        files: list[str] = look(
            scan, pl.QueryOptFlags()._pyoptflags, lambda traverser: list(traverser.view_current_node().paths)
        )
    except (pl.exceptions.PolarsError, OSError):
        return []
    return [] if any("=" in file for file in files) else files
