"""The ranks of a query decide together which scans are split by the values of a key."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from cudf_polars.lower.footers import Footers
from cudf_polars.lower.key_ranges import KeyRange, find_key_ranges
from cudf_polars.plan.dag import Plan
from cudf_polars.plan.nodes import Scan

__all__ = ["agree_on_key_ranges"]


def agree_on_key_ranges(
    plan: Plan,
    footers: Footers,
    allgather: Callable[[bytes], list[bytes]],
    nranks: int,
    partitions: int,
    cached_partitions: int,
) -> dict[int, KeyRange]:
    """Return, by number of the node, which scans are split by values; all ranks call this for the same plan.

    They have seen that their files are the same; but of files in stores, they have not compared the bounds, nor need
    they have kept the same footers.
    """
    if nranks * partitions == 1 or not any(
        isinstance(node, Scan) and node.kind == "parquet" for node in plan.nodes
    ):
        return {}  # spares queries of frames in memory a collective
    found = find_key_ranges(plan, footers, nranks, partitions, cached_partitions)
    digests = allgather(hashlib.sha256(repr(sorted(found.items())).encode()).digest())
    return found if all(digest == digests[0] for digest in digests) else {}
