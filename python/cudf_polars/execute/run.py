"""Runs one query over the ranks: read, compare, lower while running, return this rank's part of the answer."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

import polars as pl

from cudf_polars.execute.errors import QueryMismatchError
from cudf_polars.execute.executor import Executor, Measured
from cudf_polars.execute.options import ExecutionOptions
from cudf_polars.execute.transport import Transport
from cudf_polars.lower.builder import StreamBuilder
from cudf_polars.lower.explain import explain_physical
from cudf_polars.lower.fallback import report
from cudf_polars.lower.footers import read_row_groups
from cudf_polars.lower.lowering import lower_plan
from cudf_polars.lower.physical import Estimate, Held, Stream
from cudf_polars.plan.fingerprint import dump, fingerprint, first_difference
from cudf_polars.plan.last_resort import check_own_frames
from cudf_polars.plan.nodes import DataFrameScan, OpaqueNode, Plan, walk_nodes
from cudf_polars.plan.read import read_plan
from cudf_polars.plan.rebuild import to_lazyframe

__all__ = ["Query", "QueryOutcome", "explain_query", "read_query", "run_query"]


@dataclass(frozen=True)
class Query:
    """A query that has been read: what a client reads once for all ranks, and each rank for itself under SPMD.

    Attributes
    ----------
    plan
        The typed plan. Its in-memory frames are this rank's part of the rows.
    constant_frames
        In-memory frames are constants that Polars made of the query, the same on all ranks.
    """

    plan: Plan
    constant_frames: bool


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
    """

    frame: pl.DataFrame
    fallbacks: list[str]
    physical: Stream | None
    measured: Mapping[int, Measured] = field(default_factory=dict, repr=False)

    def explain(self) -> str:
        """Return the physical plan with this rank's rows, bytes and seconds."""
        if self.physical is None:
            return "One fragment on one rank: the query as Polars runs it."
        return explain_physical(self.physical, self.measured)


def read_query(lf: pl.LazyFrame, optimizations: pl.QueryOptFlags) -> Query:
    """Read ``lf`` with these optimisations; raises what Polars says of a query that is wrong."""
    plan = read_plan(lf, optimizations)
    return Query(plan, _frames_are_constants(lf, plan))


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
    executor = Executor(transport, optimizations=optimizations)
    frame_sizes = _agree(plan, executor)
    builder = StreamBuilder(options.settings(transport.nranks), executor.measure)
    root = lower_plan(
        plan,
        builder,
        footers=functools.cache(read_row_groups),
        frame_sizes=frame_sizes,
        constant_frames=query.constant_frames,
    )
    frame = executor.result(root)
    report(builder.fallbacks, options.fallback_mode)
    return QueryOutcome(frame, builder.fallbacks, root, executor.measured)


def _agree(plan: Plan, executor: Executor) -> dict[int, Estimate]:
    """Check that all ranks run the same query, and return the sizes of their in-memory frames together."""
    digest = fingerprint(plan).hex()
    frames = [node for node in walk_nodes(plan.root) if isinstance(node, DataFrameScan)]
    sizes = [(node.frame.height, node.frame.estimated_size()) for node in frames]
    message = json.dumps({"digest": digest, "frames": sizes}).encode()
    views = [json.loads(value) for value in executor.allgather_bytes(message)]
    if any(view["digest"] != views[0]["digest"] for view in views):
        _raise_mismatch(dump(plan), executor)
    return {
        id(node): Estimate(
            float(sum(view["frames"][i][0] for view in views)),
            float(sum(view["frames"][i][1] for view in views)),
        )
        for i, node in enumerate(frames)
    }


def _frames_are_constants(lf: pl.LazyFrame, plan: Plan) -> bool:
    """Whether the plan's in-memory frames were made by Polars (``select(lit(1))``) and none is the user's."""
    if not any(isinstance(node, DataFrameScan) for node in walk_nodes(plan.root)):
        return False
    written = read_plan(lf, pl.QueryOptFlags.none())
    return not any(isinstance(node, DataFrameScan | OpaqueNode) for node in walk_nodes(written.root))


def _raise_mismatch(text: str, executor: Executor) -> None:
    texts = [value.decode() for value in executor.allgather_bytes(text.encode())]
    other = next(rank for rank, theirs in enumerate(texts) if theirs != texts[0])
    raise QueryMismatchError(
        f"The ranks run different queries. First difference between rank 0 and rank {other}:\n"
        f"{first_difference(texts[0], texts[other])}\n"
        "Every rank must call collect() for the same queries in the same order: avoid conditions on the rank."
    )


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
        constant_frames=_frames_are_constants(lf, plan),
    )
    text = explain_physical(root)
    if builder.fallbacks:
        text += "\nOn one rank: " + "; ".join(dict.fromkeys(builder.fallbacks))
    return text
