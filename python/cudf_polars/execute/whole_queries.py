"""Whether one rank gives a query to Polars as it is, and else how the rows of each rank are split.

Both follow from the largest table that a query reads, and of one rank from the largest result of its joins as well: a
query of Polars that has outgrown the memory cannot be ended. Several ranks count what the steps of theirs give, and
divide those that outgrow it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import polars as pl

from cudf_polars.execute.options import GROUPS_AT_ONCE, ExecutionOptions
from cudf_polars.execute.partitions import PartitionPlan
from cudf_polars.execute.queries import Query, read_query
from cudf_polars.execute.read_ahead import stores_may_be_read
from cudf_polars.lower.footers import FileFooters, Footers
from cudf_polars.lower.join_growth import GrowingJoin, growing_joins
from cudf_polars.lower.physical import Estimate
from cudf_polars.lower.table_sizes import largest_frame, largest_table, own_frames
from cudf_polars.plan.cloud import is_remote
from cudf_polars.plan.dag import Plan
from cudf_polars.plan.generated_names import GENERATED
from cudf_polars.plan.nodes import Scan
from cudf_polars.plan.read import UnsupportedPolarsError, read_plan
from cudf_polars.plan.rebuild import to_lazyframe

__all__ = [
    "check_names",
    "joins_that_grow",
    "partition_plan",
    "read_sources",
    "read_unless_whole",
    "whole_query",
]

_OWN_NAMES = "__rr_"
"""How the names of columns begin that steps of a query add for themselves."""


def read_unless_whole(
    query: pl.LazyFrame | Query,
    optimizations: pl.QueryOptFlags,
    options: ExecutionOptions,
    footers: FileFooters,
    *,
    is_streamed: bool,
) -> Query | None:
    """Read a query that one rank runs in partitions, and its footers; ``None`` if Polars is to run it as it is.

    Parameters
    ----------
    is_streamed
        Whether the rows of the query are written while they are made, not kept.
    """
    if not options.may_partition:
        return None
    try:
        # The first check is cheap: the plan is read without what only a rebuild needs, and Polars counts the rows of
        # the files, which is faster than reading all of their footers.
        plan = (
            query.plan if isinstance(query, Query) else read_plan(query, optimizations, to_be_rebuilt=False)
        )
        _tell_of_stores(plan)
        if _is_small(plan, options, None, is_streamed=is_streamed):
            return None
        asked = query if isinstance(query, Query) else read_query(query, optimizations)
    except (pl.exceptions.PolarsError, UnsupportedPolarsError):
        stores_may_be_read()
        return None  # Polars runs it, or says what is wrong
    plan = asked.plan
    read_sources(plan, footers)
    if _own_name(plan) is not None or _is_small(plan, options, footers, is_streamed=is_streamed):
        return None
    return asked


def whole_query(query: pl.LazyFrame | Query) -> pl.LazyFrame:
    """Return the query as Polars can run it: the user's own lazy frame, or the plan that was read."""
    return to_lazyframe(query.plan.root) if isinstance(query, Query) else query


def partition_plan(
    plan: Plan,
    frames: Mapping[int, Estimate],
    joins: Mapping[int, GrowingJoin],
    options: ExecutionOptions,
    nranks: int,
    footers: Footers | None,
    *,
    on_cpu: bool = True,
) -> PartitionPlan | None:
    """Return how each rank splits its rows; ``None`` if that cannot be said without footers.

    Parameters
    ----------
    frames
        By number of the node, rows and bytes of in-memory frames over all ranks.
    joins
        The joins that grow, likewise.
    """
    frame = largest_frame(frames.values())
    kept = max((join.nbytes for join in joins.values() if join.is_kept), default=0.0)
    nbytes = max(largest_table(plan, footers), frame.nbytes, kept)
    if not math.isfinite(nbytes):
        return None
    return options.plan_of(nbytes, nranks, frame_rows=frame.rows, on_cpu=on_cpu)


def joins_that_grow(
    plan: Plan, options: ExecutionOptions, nranks: int, footers: Footers, *, is_streamed: bool
) -> dict[int, GrowingJoin]:
    """Return, by number of the node, what is expected of joins whose rows ranks had rather share.

    In-memory frames of other ranks are taken to be like those of this one.

    Parameters
    ----------
    is_streamed
        Whether the rows of the query are written while they are made, not kept.
    """
    frames = {number: own.scaled(nranks) for number, own in own_frames(plan).items()}
    worth = min(options.whole_bytes * nranks, options.shared_bytes)
    return growing_joins(plan, footers, frames, worth, is_streamed=is_streamed, groups_at_once=GROUPS_AT_ONCE)


def _is_small(plan: Plan, options: ExecutionOptions, footers: Footers | None, *, is_streamed: bool) -> bool:
    """Whether what a query reads and joins fits one rank's memory."""
    frames = own_frames(plan)
    split = partition_plan(plan, frames, {}, options, 1, footers)
    if split is None or split.count > 1:
        return False
    worth = options.whole_bytes
    joins = growing_joins(
        plan, footers, frames, worth, is_streamed=is_streamed, groups_at_once=GROUPS_AT_ONCE
    )
    return not any(join.is_kept for join in joins.values())


def check_names(plan: Plan) -> None:
    """Raise ValueError if a column has a name that steps give columns of their own."""
    name = _own_name(plan)
    if name is not None:
        raise ValueError(
            f"a column is called {name!r}: names that begin with {_OWN_NAMES!r} are those of the engine's own columns."
            " Give it another one (lf.rename)."
        )


def _own_name(plan: Plan) -> str | None:
    names = (name for node in plan.nodes for name in node.schema)
    return next((n for n in names if n.startswith(_OWN_NAMES) and not n.startswith(GENERATED)), None)


def read_sources(plan: Plan, footers: FileFooters) -> None:
    """Read the footers of a query's files, many at once, and tell the prefetching of scans where they are."""
    _tell_of_stores(plan)
    scans = [node for node in plan.nodes if isinstance(node, Scan)]
    footers.read_ahead((path, scan.cloud) for scan in scans if scan.kind == "parquet" for path in scan.paths)


def _tell_of_stores(plan: Plan) -> None:
    if any(is_remote(path) for node in plan.nodes if isinstance(node, Scan) for path in node.paths):
        stores_may_be_read()
