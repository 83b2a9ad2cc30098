"""Runs one query over the ranks: read, compare, plan while running, return this rank's part of the answer."""

from __future__ import annotations

import contextlib
import functools
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import polars as pl

from cudf_polars.execute.agreement import Agreement, agree_on_end, agree_on_purpose, agree_on_query
from cudf_polars.execute.cpu import CpuDevice
from cudf_polars.execute.executor import Executor
from cudf_polars.execute.findings import RankFindings
from cudf_polars.execute.fragments import ComputeDevice, Reading
from cudf_polars.execute.lazy_batches import LazyBatches
from cudf_polars.execute.measured import Measured, merge_facts, pack_facts
from cudf_polars.execute.options import ExecutionOptions
from cudf_polars.execute.paths import Paths
from cudf_polars.execute.queries import Query, optimizations_of_fragments, read_query
from cudf_polars.execute.range_agreement import agree_on_key_ranges
from cudf_polars.execute.streams import conform, scan_batches
from cudf_polars.execute.text_agreement import agree_on_text_cuts
from cudf_polars.execute.transport import Transport
from cudf_polars.execute.whole_queries import (
    check_names,
    joins_that_grow,
    partition_plan,
    read_sources,
    read_unless_whole,
    whole_query,
)
from cudf_polars.lower.explain import explain_physical, explain_whole, in_partitions
from cudf_polars.lower.fallback import report, warn_of_host_steps
from cudf_polars.lower.footers import FileFooters
from cudf_polars.lower.physical import Stream
from cudf_polars.lower.planner import AdaptivePlanner
from cudf_polars.plan.last_resort import check_own_frames
from cudf_polars.plan.read import UnsupportedPolarsError
from cudf_polars.plan.several import queries_of, with_own_names

__all__ = [
    "OpenQuery",
    "QueryOutcome",
    "open_query",
    "run_queries",
    "run_query",
    "stream_query",
]


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
        By stream, what running the streams gave on this rank.
    equal_frames
        Which in-memory frames of the query are the same on every rank, in words.
    partitions
        Into how many partitions exchanges by key split the rows of each rank.
    host_steps
        What ran on the CPU though the compute device is a GPU, with the reasons.
    paths
        The ways that rows took on this rank where it has several partitions.
    whole
        What running the query gave where it ran as it was.
    facts
        What each rank has measured, by rank, as :func:`~cudf_polars.execute.measured.pack_facts` packs it.
    """

    frame: pl.DataFrame
    fallbacks: list[str]
    physical: Stream | None = field(repr=False)
    measured: Mapping[Stream, Measured] = field(default_factory=dict, repr=False)
    equal_frames: tuple[str, ...] = ()
    partitions: int = 1
    host_steps: tuple[str, ...] = ()
    paths: Paths = field(default_factory=Paths, repr=False)
    facts: Sequence[bytes] = field(default=(), repr=False)
    whole: Measured | None = None

    def without_rows(self) -> QueryOutcome:
        """Return the same without the rows of the answer."""
        return replace(self, frame=self.frame.clear())

    def explain(self) -> str:
        """Return the physical plan with what running its steps gave and cost: least, mean and most of the ranks."""
        text = self._explain_streams()
        return (
            "\n".join([text, "On the CPU:", *(f"  {step}" for step in self.host_steps)])
            if self.host_steps
            else text
        )

    def _explain_streams(self) -> str:
        if self.physical is None:
            return explain_whole(self.whole)
        plan = explain_physical(self.physical, merge_facts(self.physical, self.facts))
        return in_partitions(plan, self.partitions)


def run_query(
    query: pl.LazyFrame | Query,
    transport: Transport,
    *,
    optimizations: pl.QueryOptFlags | None = None,
    options: ExecutionOptions | None = None,
    device: ComputeDevice | None = None,
    purpose: str = "collect",
) -> QueryOutcome:
    """Run a query on all ranks of ``transport``; every rank calls this with the same one.

    Parameters
    ----------
    purpose
        The method that the user called; it has to be the same on all ranks.

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
    device = CpuDevice() if device is None else device
    running = _start(query, transport, optimizations, options, device, purpose)
    if isinstance(running, pl.LazyFrame):
        start = time.perf_counter()
        frame = device.collect(running, optimizations or pl.QueryOptFlags())
        whole = Measured(frame.height, frame.estimated_size(), time.perf_counter() - start)
        return _outcome_of_whole(frame, device, options, whole)
    executor = running.executor
    (root,) = running.roots
    with contextlib.closing(executor):
        ended = _end(executor, root, executor.result(root))
    running.report()
    return running.outcome(root, *ended)


def _end(executor: Executor, root: Stream, frame: pl.DataFrame) -> tuple[pl.DataFrame, list[bytes]]:
    """Wait until every rank has its part of an answer; return this rank's, and what each has measured."""
    facts = pack_facts(root, executor.measured)
    return agree_on_end(frame, executor.allgather_bytes, executor.failures(root), facts)


def run_queries(
    joined: pl.LazyFrame | Query,
    count: int,
    transport: Transport,
    *,
    apart: Sequence[pl.LazyFrame] = (),
    optimizations: pl.QueryOptFlags | None = None,
    options: ExecutionOptions | None = None,
    device: ComputeDevice | None = None,
    purpose: str = "collect_all",
) -> list[QueryOutcome] | None:
    """Run queries on all ranks, one after the other; what they have in common runs once.

    Parameters
    ----------
    joined, count
        What :func:`~cudf_polars.plan.several.join_queries` made of them, and how many they are.
    apart
        The queries themselves, which one rank alone needs.

    Returns
    -------
    list of QueryOutcome
        By query. ``None`` on all ranks, before anything has run, if there is no plan of all of them together.
    """
    device = CpuDevice() if device is None else device
    flags = optimizations or pl.QueryOptFlags()
    alone = transport.nranks == 1
    if alone and not device.is_cpu:
        return _run_whole(apart, device, options, flags)
    try:
        asked = joined if isinstance(joined, Query) else read_query(joined, flags)
    except (pl.exceptions.PolarsError, UnsupportedPolarsError):
        if alone:
            return None  # one of them is wrong, and says so when it runs
        raise
    told_apart = queries_of(asked.plan, count) is not None
    if not alone:
        if not isinstance(joined, Query):
            check_own_frames(asked.plan.root)
        told_apart = agree_on_purpose(
            purpose, lambda mine: transport.allgather_bytes(mine, op=0), holds=told_apart
        )
    if not told_apart:
        return None
    running = _start(asked, transport, optimizations, options, device, purpose, first_op=1, several=count)
    if isinstance(running, pl.LazyFrame):
        return _run_whole(apart, device, options, flags)
    outcomes: list[QueryOutcome] = []
    executor = running.executor
    with contextlib.closing(executor):
        for root in running.roots:
            ended = _end(executor, root, with_own_names(executor.result(root)))
            outcomes.append(running.outcome(root, *ended))
    running.report()
    return outcomes


def _run_whole(
    queries: Sequence[pl.LazyFrame],
    device: ComputeDevice,
    options: ExecutionOptions | None,
    optimizations: pl.QueryOptFlags,
) -> list[QueryOutcome]:
    """Let Polars, or the device, run queries as they are."""
    start = time.perf_counter()
    if device.is_cpu:
        frames = pl.collect_all(queries, engine="streaming", optimizations=optimizations)
    else:
        frames = [device.collect(query, optimizations) for query in queries]
    seconds = (time.perf_counter() - start) / max(1, len(frames))
    return [
        _outcome_of_whole(frame, device, options, Measured(frame.height, frame.estimated_size(), seconds))
        for frame in frames
    ]


class Stop(Protocol):
    """Ends a query."""

    def __call__(self, *, wait: bool) -> None:
        """End it; with ``wait``, return when nothing of it reads any more."""


def _nothing_to_stop(*, wait: bool) -> None:
    """Polars' own query reads nothing of ours."""


@dataclass(frozen=True)
class OpenQuery:
    """A query whose last step is to be run: all that the ranks do together is done.

    Attributes
    ----------
    rows
        This rank's rows, to be run once; the query itself if there is one rank and memory enough.
    made
        The same rows as the last step makes them, to be read in place of ``rows``; None if that is the query itself.
    schema
        Their types.
    whole
        Whether it is the query itself, so that the user's optimisations are left to who runs it.
    stop
        Makes what still reads the sources of the query end with an error; with ``wait=True``, waits for it.
    facts
        Returns what this rank has measured so far, for the others.
    outcome
        Says how the query went, without rows, by what the ranks had measured when their last steps began. It may still
        fail on another rank.
    """

    rows: pl.LazyFrame
    made: Iterator[pl.DataFrame] | None
    schema: pl.Schema
    whole: bool
    stop: Stop
    facts: Callable[[], bytes]
    outcome: Callable[[], QueryOutcome]

    def batches(
        self, optimizations: pl.QueryOptFlags, *, ordered: bool, chunk_size: int | None
    ) -> Iterator[pl.DataFrame]:
        """Return this rank's rows batch by batch.

        Parameters
        ----------
        optimizations
            For the query itself.
        ordered
            Whether the rows have to come in their order.
        chunk_size
            Rows of a batch; None: as they are made.
        """
        if self.made is not None and chunk_size is None:
            return filter(_has_rows, self.made)  # through Polars, twice as many would wait
        return LazyBatches(self.rows, optimizations, ordered=ordered, chunk_size=chunk_size)

    def give_batches(
        self,
        function: Callable[[pl.DataFrame], bool | None],
        optimizations: pl.QueryOptFlags,
        *,
        ordered: bool,
        chunk_size: int | None,
    ) -> None:
        """Call ``function`` with each of :meth:`batches`, until it returns True."""
        if self.made is not None:
            # No batch is kept while the next one is made, as a loop variable would.
            any(map(function, self.batches(optimizations, ordered=ordered, chunk_size=chunk_size)))
            return
        # Polars keeps a batch less in memory when it calls the function itself.
        self.rows.sink_batches(
            function,
            chunk_size=chunk_size,
            maintain_order=ordered,
            engine="streaming",
            optimizations=optimizations,
        )


def _has_rows(frame: pl.DataFrame) -> bool:
    return bool(frame.height)


def _conform(schema: pl.Schema, frame: pl.DataFrame) -> pl.DataFrame:
    return conform(frame, schema)


def open_query(
    query: pl.LazyFrame | Query,
    transport: Transport,
    *,
    optimizations: pl.QueryOptFlags | None = None,
    options: ExecutionOptions | None = None,
    device: ComputeDevice | None = None,
    purpose: str = "collect",
    first_op: int = 0,
) -> OpenQuery:
    """Run a query as :func:`run_query` does, up to its last step, whose rows on this rank are left to the caller.

    Parameters
    ----------
    first_op
        Uses the transport's operations from here on.
    """
    device = CpuDevice() if device is None else device
    running = _start(query, transport, optimizations, options, device, purpose, first_op, is_streamed=True)
    if isinstance(running, pl.LazyFrame):
        schema = running.collect_schema()
        rows = running
        if not device.is_cpu:
            rows = scan_batches(
                device.batches(running, optimizations or pl.QueryOptFlags(), Reading(ordered=True)), schema
            )
        ended = functools.partial(_outcome_of_whole, pl.DataFrame(schema=schema), device, options)
        return OpenQuery(rows, None, schema, device.is_cpu, _nothing_to_stop, bytes, ended)
    executor = running.executor
    (root,) = running.roots
    with _closed_if_it_fails(executor):  # else it ends with its batches
        batches = executor.result_batches(root)
        no_rows = pl.DataFrame(schema=dict(root.schema))
        first = next((batch for batch in batches if batch.height), no_rows)
        mine = pack_facts(root, executor.measured)
        first, facts = agree_on_end(first, executor.allgather_bytes, executor.failures(root), mine)
    empty, schema = first.clear(), first.schema

    def outcome() -> QueryOutcome:
        running.report()
        return running.outcome(root, empty, facts)

    # Unlike a generator, these keep no batch while the next one is made.
    all_batches = itertools.chain([first], map(functools.partial(_conform, schema), batches))
    del first
    return OpenQuery(
        scan_batches(all_batches, schema),
        all_batches,
        schema,
        whole=False,
        stop=executor.brake.end,
        facts=lambda: pack_facts(root, executor.measured),
        outcome=outcome,
    )


def stream_query(
    query: pl.LazyFrame | Query,
    transport: Transport,
    write: Callable[[pl.LazyFrame], None],
    *,
    optimizations: pl.QueryOptFlags | None = None,
    options: ExecutionOptions | None = None,
    device: ComputeDevice | None = None,
    end: Callable[[bytes], Sequence[bytes]] | None = None,
    purpose: str = "collect",
    first_op: int = 0,
) -> QueryOutcome:
    """Run a query as :func:`run_query` does, and give its rows on this rank to ``write`` while they are made.

    Parameters
    ----------
    write
        Is called once, with a frame that it must run once. It is called with the query itself if there is one rank and
        memory enough: then ``optimizations`` are left to it.
    end
        Called after that: tells the other ranks what this one has measured, and returns what each of them has.

    Returns
    -------
    The outcome, without rows. Without ``end``, the query may still fail on another rank.
    """
    opened = open_query(
        query,
        transport,
        optimizations=optimizations,
        options=options,
        device=device,
        purpose=purpose,
        first_op=first_op,
    )
    write(opened.rows)
    outcome = opened.outcome()
    return outcome if end is None else replace(outcome, facts=end(opened.facts()))


@dataclass(frozen=True)
class _Running:
    """A query that has been planned. Planning has run a part of it already, to count rows.

    Attributes
    ----------
    roots
        The stream of the query's result. If several queries were joined, one stream each: the iterator plans a query
        when it reaches it.
    """

    executor: Executor
    roots: Iterable[Stream]
    planner: AdaptivePlanner
    options: ExecutionOptions
    equal_frames: tuple[str, ...]
    device: ComputeDevice

    def report(self) -> None:
        """Warn of what one rank did alone."""
        report(self.planner.fallbacks, self.options.fallback_mode)

    def outcome(self, root: Stream, frame: pl.DataFrame, facts: Sequence[bytes]) -> QueryOutcome:
        """Say how a query ended."""
        executor = self.executor
        return QueryOutcome(
            frame,
            self.planner.fallbacks,
            root,
            executor.measured,
            self.equal_frames,
            executor.plan.count,
            _host_steps(self.device, self.options),
            executor.paths,
            facts,
        )


def _host_steps(device: ComputeDevice, options: ExecutionOptions) -> tuple[str, ...]:
    """Take what a GPU left to the CPU, and warn of it."""
    steps = tuple(dict.fromkeys(device.take_host_steps()))
    if steps and options.fallback_mode == "warn":
        warn_of_host_steps(steps)
    return steps


def _outcome_of_whole(
    frame: pl.DataFrame,
    device: ComputeDevice,
    options: ExecutionOptions | None,
    whole: Measured | None = None,
) -> QueryOutcome:
    """Say how a query ended that ran as it was."""
    steps = _host_steps(device, options or ExecutionOptions())
    return QueryOutcome(frame, [], None, host_steps=steps, whole=whole)


def _start(
    query: pl.LazyFrame | Query,
    transport: Transport,
    optimizations: pl.QueryOptFlags | None,
    options: ExecutionOptions | None,
    device: ComputeDevice,
    purpose: str,
    first_op: int = 0,
    several: int | None = None,
    *,
    is_streamed: bool = False,
) -> _Running | pl.LazyFrame:
    """Plan a query together with the other ranks; the query itself if there is one rank and memory enough.

    Parameters
    ----------
    several
        How many queries were joined into this one; ``None``: it is a single query.
    is_streamed
        Whether its rows are taken while they are made, not kept.
    """
    optimizations = pl.QueryOptFlags() if optimizations is None else optimizations
    options = ExecutionOptions() if options is None else options
    footers = FileFooters()
    if transport.nranks == 1:
        read = (
            read_unless_whole(query, optimizations, options, footers, is_streamed=is_streamed)
            if device.is_cpu
            else None
        )
        if read is None:
            return whole_query(query)
        asked = read
    else:
        asked = query if isinstance(query, Query) else read_query(query, optimizations)
        check_names(asked.plan)
        read_sources(asked.plan, footers)
        if not isinstance(query, Query):
            check_own_frames(asked.plan.root)
    plan = asked.plan
    ops = itertools.count(first_op)
    nranks = transport.nranks
    agreement = agree_on_query(
        plan,
        lambda mine: transport.allgather_bytes(mine, op=next(ops)),
        footers,
        asked.read_apart,
        find_joins=lambda each: joins_that_grow(each, options, nranks, footers, is_streamed=is_streamed),
        purpose=purpose,
    )
    split = partition_plan(
        agreement.plan,
        agreement.frame_sizes,
        agreement.joins,
        options,
        nranks,
        footers,
        on_cpu=device.is_cpu,
    )
    assert split is not None, "there are footers"
    executor = Executor(
        transport,
        optimizations=optimizations_of_fragments(optimizations, plan),
        device=device,
        plan=split,
        first_op=next(ops),
    )
    with _closed_if_it_fails(executor):
        return _plan_together(agreement, executor, footers, options, device, several)


@contextlib.contextmanager
def _closed_if_it_fails(executor: Executor) -> Iterator[None]:
    try:
        yield
    except BaseException:
        executor.close()
        raise


def _plan_together(
    agreement: Agreement,
    executor: Executor,
    footers: FileFooters,
    options: ExecutionOptions,
    device: ComputeDevice,
    several: int | None,
) -> _Running:
    """Make the physical plan of a query with the other ranks, which runs a part of it."""
    plan, partitions, nranks = agreement.plan, executor.plan, executor.nranks
    text_cuts = agree_on_text_cuts(plan, executor.allgather_bytes, executor.rank, nranks)
    settings = options.settings(nranks, partitions.count, on_cpu=device.is_cpu)
    key_ranges = agree_on_key_ranges(
        plan, footers, executor.allgather_bytes, nranks, partitions.ranges, partitions.cached_ranges
    )
    planner = AdaptivePlanner(
        settings,
        RankFindings(executor, counts=options.dynamic_planning),
        footers=footers,
        text_cuts=text_cuts,
        key_ranges=key_ranges,
        joined_rows={number: join.rows for number, join in agreement.joins.items()},
    )
    roots: Iterable[Stream]
    if several is None:
        roots = [planner.plan(plan, agreement.frame_sizes)]
    else:
        nodes = queries_of(plan, several)
        assert nodes is not None, "all ranks have told the queries apart"
        roots = planner.plan_each(plan, nodes, agreement.frame_sizes)
    return _Running(executor, roots, planner, options, agreement.equal_frames, device)
