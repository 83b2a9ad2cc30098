"""The physical plan of a query, made without running any of it."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import polars as pl

from cudf_polars.execute.bloom_filter import BloomFilter
from cudf_polars.execute.keys import KeySet
from cudf_polars.execute.measured import Size
from cudf_polars.execute.options import ExecutionOptions
from cudf_polars.execute.queries import Query
from cudf_polars.execute.whole_queries import (
    joins_that_grow,
    partition_plan,
    read_sources,
    read_unless_whole,
)
from cudf_polars.lower.explain import explain_physical, explain_whole, in_partitions
from cudf_polars.lower.findings import KeyLimit, KeyShare, LookupKey
from cudf_polars.lower.footers import FileFooters
from cudf_polars.lower.key_ranges import find_key_ranges
from cudf_polars.lower.physical import Materialize
from cudf_polars.lower.planner import AdaptivePlanner
from cudf_polars.lower.table_sizes import own_frames
from cudf_polars.lower.text_cuts import nominal_cuts
from cudf_polars.plan.read import read_plan

__all__ = ["explain_query"]


class _Estimates:
    """What is estimated of rows that are not run."""

    def run_and_measure(self, materialized: Materialize, limit: int | None) -> Size:
        """Return the estimated size."""
        return Size.estimated(materialized, limit)

    measure = run_and_measure

    def find_keys(self, materialized: Materialize, limits: Mapping[str, KeyLimit]) -> Sequence[KeySet]:
        """Return keys of which only the number is estimated; their place is taken by none at all."""
        return [_assumed_keys(materialized, name, limit) for name, limit in limits.items()]

    def can_look_up(self, materialized: Materialize, key: LookupKey) -> bool:
        """Return that no key is known to say where a row is."""
        return False

    def count_hashes(self, materialized: Materialize, hashed: pl.Expr, asked: KeyShare) -> dict[int, int]:
        """Return that no key is known to be frequent."""
        return {}


def _assumed_keys(materialized: Materialize, name: str, limit: KeyLimit) -> KeySet:
    """Return keys of which only the number is estimated; their place is taken by none at all."""
    count = int(materialized.estimate.rows)
    if count <= limit.values:
        return KeySet(count, pl.Series(name, [], dtype=materialized.schema[name]))
    return KeySet(count, bloom_filter=BloomFilter.sized(0) if count <= limit.in_filter else None)


def explain_query(
    query: pl.LazyFrame | Query,
    nranks: int,
    *,
    optimizations: pl.QueryOptFlags | None = None,
    options: ExecutionOptions | None = None,
    on_cpu: bool = True,
) -> str:
    """Return the physical plan of a query on ``nranks`` ranks without running it.

    Parameters
    ----------
    query
        Its in-memory frames are this rank's; those of other ranks are taken to be like them.
    on_cpu
        Whether Polars computes, or GPUs do.

    Notes
    -----
    What a run decides by counted sizes is decided by estimates here, so a run may choose otherwise.
    """
    options = ExecutionOptions() if options is None else options
    flags = pl.QueryOptFlags() if optimizations is None else optimizations
    footers = FileFooters()
    if nranks == 1:
        read = read_unless_whole(query, flags, options, footers, is_streamed=False) if on_cpu else None
        if read is None:
            if isinstance(query, pl.LazyFrame):
                query.collect_schema()  # raises if it is wrong
            return explain_whole()
        plan = read.plan
    else:
        plan = query.plan if isinstance(query, Query) else read_plan(query, flags)
        read_sources(plan, footers)
    sizes = {number: size.scaled(nranks) for number, size in own_frames(plan).items()}
    joins = joins_that_grow(plan, options, nranks, footers, is_streamed=False)
    split = partition_plan(plan, sizes, joins, options, nranks, footers, on_cpu=on_cpu)
    assert split is not None, "there are footers"
    settings = replace(options.settings(nranks, split.count, on_cpu=on_cpu), sample_least=math.inf)
    planner = AdaptivePlanner(
        settings,
        _Estimates(),
        footers=footers,
        text_cuts=functools.partial(nominal_cuts, nranks=nranks),
        key_ranges=find_key_ranges(plan, footers, nranks, split.ranges, split.cached_ranges),
        joined_rows={number: join.rows for number, join in joins.items()},
    )
    physical = explain_physical(planner.plan(plan, sizes))
    where = f"On {nranks} ranks" if nranks > 1 else "On one rank"
    lines = [
        f"{where}, by {'Polars' if on_cpu else 'GPUs'}, as estimated before a run.",
        in_partitions(physical, split.count),
    ]
    if planner.fallbacks:
        lines.append("On one rank: " + "; ".join(dict.fromkeys(planner.fallbacks)))
    return "\n".join(lines)
