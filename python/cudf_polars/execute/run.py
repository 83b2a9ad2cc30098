"""Runs one query over the ranks: read, compare, lower while running, return this rank's part of the answer."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field

import polars as pl

from cudf_polars.execute.agreement import agree_on_end, agree_on_query
from cudf_polars.execute.executor import Executor, Measured
from cudf_polars.execute.options import ExecutionOptions
from cudf_polars.execute.transport import Transport
from cudf_polars.lower.builder import StreamBuilder
from cudf_polars.lower.explain import explain_physical
from cudf_polars.lower.fallback import report
from cudf_polars.lower.footers import read_row_groups
from cudf_polars.lower.lowering import lower_plan
from cudf_polars.lower.physical import Estimate, Held, Stream
from cudf_polars.plan.last_resort import check_own_frames
from cudf_polars.plan.nodes import DataFrameScan, Plan, walk_nodes
from cudf_polars.plan.read import read_plan
from cudf_polars.plan.rebuild import to_lazyframe

__all__ = ["QUERY_FLAGS", "Query", "QueryOutcome", "explain_query", "read_query", "run_query"]

QUERY_FLAGS = tuple(n for n in inspect.signature(pl.QueryOptFlags).parameters if hasattr(pl.QueryOptFlags, n))
"""The names of Polars' optimisation flags."""


@dataclass(frozen=True)
class Query:
    """A query that has been read: what a client reads once for all ranks, and each rank for itself under SPMD.

    Attributes
    ----------
    plan
        The typed plan. Its in-memory frames are this rank's part of the rows.
    """

    plan: Plan


@dataclass(frozen=True)
class QueryOutcome:
    """What a query gave on this rank.

    Attributes
    ----------
    frame
        This rank's part of the answer; the parts of all ranks in rank order are the answer.
    fallbacks
        The steps that ran on one rank for want of a distributed form.
    physical
        The stream of the answer, or ``None`` when the query ran on a single rank as it was.
    measured
        By ``id(stream)``, what running the streams gave on this rank.
    equal_frames
        Which in-memory frames of the query are the same on every rank, in words.
    """

    frame: pl.DataFrame
    fallbacks: list[str]
    physical: Stream | None = field(repr=False)
    measured: Mapping[int, Measured] = field(default_factory=dict, repr=False)
    equal_frames: tuple[str, ...] = ()

    def explain(self) -> str:
        """Return the physical plan with this rank's rows, bytes and seconds."""
        if self.physical is None:
            return "One fragment on one rank: the query as Polars runs it."
        return explain_physical(self.physical, self.measured)


def read_query(lf: pl.LazyFrame, optimizations: pl.QueryOptFlags) -> Query:
    """Read ``lf`` with these optimisations; raises what Polars says of a query that is wrong."""
    return Query(read_plan(lf, optimizations))


def run_query(
    query: pl.LazyFrame | Query,
    transport: Transport,
    *,
    optimizations: pl.QueryOptFlags | None = None,
    options: ExecutionOptions | None = None,
) -> QueryOutcome:
    """Run a query on all ranks of ``transport``; every rank calls this with the same one.

    Raises
    ------
    QueryMismatchError
        On all ranks, if their queries differ.
    NotImplementedError
        If a step cannot be distributed and ``options.fallback_mode`` is ``"raise"``.

    Warns
    -----
    FallbackWarning
        Once, if steps ran on one rank and ``options.fallback_mode`` is ``"warn"``.
    """
    optimizations = pl.QueryOptFlags() if optimizations is None else optimizations
    options = ExecutionOptions() if options is None else options
    if transport.nranks == 1:
        # The user's own query: it costs what Polars costs.
        lf = to_lazyframe(query.plan.root) if isinstance(query, Query) else query
        return QueryOutcome(lf.collect(engine="streaming", optimizations=optimizations), [], None)
    if not isinstance(query, Query):
        query = read_query(query, optimizations)
        check_own_frames(query.plan.root)
    plan = query.plan
    executor = Executor(transport, optimizations=_of_fragments(optimizations))
    agreement = agree_on_query(plan, executor.allgather_bytes)
    builder = StreamBuilder(options.settings(transport.nranks), executor.measure)
    root = lower_plan(
        plan,
        builder,
        footers=functools.cache(read_row_groups),
        frame_sizes=agreement.frame_sizes,
    )
    frame = agree_on_end(executor.result(root), executor.allgather_bytes)
    report(builder.fallbacks, options.fallback_mode)
    return QueryOutcome(frame, builder.fallbacks, root, executor.measured, agreement.equal_frames)


def _of_fragments(optimizations: pl.QueryOptFlags) -> pl.QueryOptFlags:
    """Return how fragments are optimised: what they have in common was found in the whole query.

    Where Polars' streaming engine shares a part of a fragment whose one reader ends early, it panics now and then.
    """
    flags = pl.QueryOptFlags()
    for name in QUERY_FLAGS:
        setattr(flags, name, getattr(optimizations, name))
    flags.comm_subplan_elim = False
    return flags


@dataclass(frozen=True)
class _Assumed:
    """A size that was not measured but estimated."""

    rows: int
    nbytes: int
    complete: bool


def explain_query(
    lf: pl.LazyFrame,
    nranks: int,
    *,
    optimizations: pl.QueryOptFlags | None = None,
    options: ExecutionOptions | None = None,
) -> str:
    """Return the physical plan of ``lf`` on ``nranks`` ranks without running it.

    Notes
    -----
    What a run decides by counted sizes is decided by estimates here, so a run may choose otherwise.
    """
    if nranks == 1:
        return "One fragment on one rank: the query as Polars runs it."

    def assume(held: Held, limit: int | None) -> _Assumed:
        estimate = held.estimate
        fits = limit is None or estimate.nbytes <= limit
        return _Assumed(int(estimate.rows), int(estimate.nbytes), fits)

    options = ExecutionOptions() if options is None else options
    plan = read_plan(lf, pl.QueryOptFlags() if optimizations is None else optimizations)
    sizes = {
        id(node): Estimate(float(node.frame.height), float(node.frame.estimated_size())).scaled(nranks)
        for node in walk_nodes(plan.root)
        if isinstance(node, DataFrameScan)
    }
    builder = StreamBuilder(options.settings(nranks), assume)
    root = lower_plan(
        plan,
        builder,
        footers=functools.cache(read_row_groups),
        frame_sizes=sizes,
    )
    text = explain_physical(root)
    if builder.fallbacks:
        text += "\nOn one rank: " + "; ".join(dict.fromkeys(builder.fallbacks))
    return text
