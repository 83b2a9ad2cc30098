"""How many rows and bytes the tables of a plan have, in files and in memory, before anything of it runs."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable

from cudf_polars.lower.estimates import row_width
from cudf_polars.lower.footers import FooterError, Footers, count_rows, row_groups
from cudf_polars.lower.physical import Estimate
from cudf_polars.plan.cloud import is_remote
from cudf_polars.plan.dag import Plan
from cudf_polars.plan.nodes import DataFrameScan, Scan

__all__ = [
    "COMPRESSION",
    "SMALL_FILES",
    "file_sizes",
    "largest_frame",
    "largest_table",
    "own_frames",
    "table_rows",
]

COMPRESSION = 2.0
"""Bytes in memory for each byte of a file, of which nothing else is known."""
SMALL_FILES = 16e6
"""Bytes of files whose footers tell nothing that would change a plan."""


def largest_table(plan: Plan, footers: Footers | None = None) -> float:
    """Return the bytes of memory that the used columns of the largest table in files take, as far as one can know.

    Parameters
    ----------
    footers
        ``None``: Polars counts the rows of files, which costs less where nothing else has to be known of them. Of files
        in a store it does not: their table is endless then.
    """
    tables = (_table_bytes(node, footers) for node in plan.nodes if isinstance(node, Scan))
    return max(tables, default=0.0)


def largest_frame(frames: Iterable[Estimate]) -> Estimate:
    """Return the most rows, and the most bytes, that one of these in-memory frames has."""
    sizes = [Estimate(0.0, 0.0), *frames]
    return Estimate(max(size.rows for size in sizes), max(size.nbytes for size in sizes))


def own_frames(plan: Plan) -> dict[int, Estimate]:
    """Return rows and bytes of this rank's in-memory frames, by the number of their nodes."""
    return {
        number: Estimate(float(node.frame.height), float(node.frame.estimated_size()))
        for number, node in enumerate(plan.nodes)
        if isinstance(node, DataFrameScan)
    }


def table_rows(node: Scan, footers: Footers | None) -> float:
    """Return the rows of a scan's files before its slice and predicate: counted if they are Parquet, else estimated.

    Parameters
    ----------
    footers
        As for :func:`largest_table`.
    """
    if node.kind == "parquet":
        if footers is None and any(map(is_remote, node.paths)):
            return math.inf
        try:
            if footers is None:
                return float(count_rows(node.paths))
            return float(sum(group.rows for group in row_groups(footers, node.paths, node.cloud)))
        except FooterError:
            pass
    return sum(file_sizes(node)) * COMPRESSION / row_width(node.schema)


def _table_bytes(node: Scan, footers: Footers | None) -> float:
    sizes = sum(file_sizes(node)) * COMPRESSION
    if node.kind != "parquet" or (sizes < SMALL_FILES and not any(map(is_remote, node.paths))):
        return sizes
    return table_rows(node, footers) * row_width(node.schema)


def file_sizes(node: Scan) -> list[int]:
    """Return the bytes of each file of a scan; where they are not known, 1 each."""
    if node.file_sizes is not None and len(node.file_sizes) == len(node.paths):
        return list(node.file_sizes)
    try:
        return [os.stat(path).st_size for path in node.paths]
    except OSError:
        # Remote, or a pattern: files count the same.
        return [1] * len(node.paths)
