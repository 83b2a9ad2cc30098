"""One rank of an engine in this process: communicator, memory and threads, and what runs on them.

Under SPMD an engine is one rank; under Dask and Ray each worker holds one for each engine of a client.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, TypeVar

import polars as pl
from rapidsmpf.memory.buffer import MemoryType
from rapidsmpf.statistics import Statistics
from rapidsmpf.streaming.core.context import Context
from rapidsmpf.utils.system_info import get_device_memory

from cudf_polars.engine.batches import RankBatches
from cudf_polars.engine.catalog_sinks import FORMATS
from cudf_polars.engine.compute_device import gpu_memory, open_compute_device
from cudf_polars.engine.core import ClusterInfo
from cudf_polars.engine.gpu_options import runtime_settings
from cudf_polars.engine.one_writer import write_on_one_rank
from cudf_polars.engine.rank_settings import RankSettings, bootstrap_timeout
from cudf_polars.engine.sinks import SinkTarget
from cudf_polars.engine.table_sinks import Refused, TablePlan, TableSink, TableWrite
from cudf_polars.execute.agreement import agree_on_purpose
from cudf_polars.execute.errors import failure_of_rank, hide_secrets
from cudf_polars.execute.exchange import RapidsmpfTransport
from cudf_polars.execute.explain import explain_query
from cudf_polars.execute.queries import Query
from cudf_polars.execute.read_ahead import PrefetchBudget, prefetch_within
from cudf_polars.execute.run import (
    OpenQuery,
    QueryOutcome,
    open_query,
    run_queries,
    run_query,
    stream_query,
)
from cudf_polars.lower.fallback import report
from cudf_polars.streaming.actor_graph.collectives.common import CommunicatorOpIds, LaneOffer

if TYPE_CHECKING:
    from polars import QueryOptFlags
    from rapidsmpf.communicator.communicator import Communicator

    from cudf_polars.streaming.actor_graph.collectives.common import EngineOpIds, OpIds

__all__ = ["Rank"]

T = TypeVar("T")
_LEAST_MEMORY = 64 << 20
"""What a rank plans to use though its limit leaves less, because the process itself takes as much."""
_LAST_OP = 1 << 11
"""The number of an operation after all of the executor's, which numbers them from 0."""


class Rank:
    """Runs queries together with the other ranks of a communicator.

    Parameters
    ----------
    comm
        The ranks. It lives on with its other owners.
    settings
        The options.
    statistics
        Where what happens is recorded.
    warns
        Whether this rank warns of steps that run on one rank alone.

    Raises
    ------
    ValueError
        If an option has no usable value, such as a ``spill_directory`` in which no file can be made.
    ImportError, TypeError, RuntimeError
        If the resource of ``memory_resource_config`` cannot be made.
    """

    def __init__(
        self, comm: Communicator, settings: RankSettings, statistics: Statistics, *, warns: bool = True
    ) -> None:
        self.comm = comm
        self._library_options = settings.library_options()
        with ExitStack() as opened:
            opened.enter_context(gpu_memory(settings.options))
            self._open_device(settings, statistics, warns=warns)
            if self._device.is_cpu and settings.execution is None:
                memory = self._execution_options.memory
                budget = PrefetchBudget.of_rank(memory, pl.thread_pool_size())
                opened.enter_context(prefetch_within(budget))
            self._opened = opened.pop_all()

    def _open_device(self, settings: RankSettings, statistics: Statistics, *, warns: bool) -> None:
        with settings.naming_sources():
            self.context = Context.from_options(self.comm, self._library_options, statistics=statistics)
        options = settings.execution_options()
        if settings.execution is None:
            available = self.context.br().memory_available(MemoryType.DEVICE)
            options = replace(options, memory=max(available, _LEAST_MEMORY))
        if not warns and options.fallback_mode == "warn":
            options = replace(options, fallback_mode="silent")
        self._execution_options = options
        self._sink_to_directory = bool(settings.options.get("sink_to_directory"))
        operators = runtime_settings(settings.options, self._library_options.get_strings())
        self._device = open_compute_device(settings.options, self.context, operators)

    def describe(self) -> ClusterInfo:
        """Return where this rank runs, and how much memory it may use."""
        return ClusterInfo.local(get_device_memory(self._library_options))

    def start(self) -> tuple[list[ClusterInfo], EngineOpIds]:
        """Meet the other ranks of an engine; all of them call this, within ``bootstrap_timeout`` of each other.

        Returns
        -------
        Where each rank runs, by rank, and the engine's operation ids.

        Raises
        ------
        ValueError
            On all ranks, if one has other options that queries are planned by.
        """
        numbering = CommunicatorOpIds.of(self.comm)
        op_ids, offer = numbering.start()
        info = asdict(self.describe())
        mine = json.dumps({"info": info, "lanes": asdict(offer), "plans_by": self._plans_by()}).encode()
        timeout = bootstrap_timeout(self._library_options)
        gathered = RapidsmpfTransport(self.context, op_ids).allgather_bytes(mine, op=0, timeout=timeout)
        everyone = [json.loads(value) for value in gathered]
        engine_op_ids = numbering.take([LaneOffer(**value["lanes"]) for value in everyone])
        self._plan_alike([value["plans_by"] for value in everyone])
        return [ClusterInfo(**value["info"]) for value in everyone], engine_op_ids

    def _plans_by(self) -> dict[str, Any]:
        """Return what decides how this rank plans a query: each rank plans by itself, and all must come to the same."""
        options = asdict(self._execution_options)
        del options["fallback_mode"]  # one rank warns
        return {**options, "compute_device": "cpu" if self._device.is_cpu else "gpu"}

    def _plan_alike(self, ranks: Sequence[Mapping[str, Any]]) -> None:
        """Plan by the least memory that a rank has; refuse what else differs."""
        for rank, (name, value) in ((r, item) for r, own in enumerate(ranks) for item in own.items()):
            if name != "memory" and value != ranks[0][name]:
                raise ValueError(
                    f"The ranks must plan queries alike, but rank 0 has {name}={ranks[0][name]!r} and rank {rank}"
                    f" has {name}={value!r}: give all ranks the same options and environment variables."
                )
        memory = min(int(own["memory"]) for own in ranks)
        self._execution_options = replace(self._execution_options, memory=memory)

    def run(
        self, query: pl.LazyFrame | Query, op_ids: OpIds, optimizations: QueryOptFlags | None
    ) -> QueryOutcome:
        """Run a query; if it fails here, the others' part of it fails too, and the next one works."""
        transport = RapidsmpfTransport(self.context, op_ids)
        with _tell_others(transport):
            return run_query(
                query,
                transport,
                optimizations=optimizations,
                options=self._execution_options,
                device=self._device,
            )

    def explain(self, query: pl.LazyFrame | Query, optimizations: QueryOptFlags | None) -> str:
        """Return the physical plan of a query without running it; no other rank takes part."""
        return explain_query(
            query,
            self.comm.nranks,
            optimizations=optimizations,
            options=self._execution_options,
            on_cpu=self._device.is_cpu,
        )

    def run_all(
        self,
        joined: pl.LazyFrame | Query,
        count: int,
        op_ids: OpIds,
        optimizations: QueryOptFlags | None,
        apart: Sequence[pl.LazyFrame] = (),
    ) -> list[QueryOutcome] | None:
        """Run several queries and compute common sub-plans once: :func:`~cudf_polars.execute.run.run_queries`."""
        transport = RapidsmpfTransport(self.context, op_ids)
        with _tell_others(transport):
            return run_queries(
                joined,
                count,
                transport,
                apart=apart,
                optimizations=optimizations,
                options=self._execution_options,
                device=self._device,
            )

    def sink(
        self,
        query: pl.LazyFrame | Query,
        op_ids: OpIds,
        optimizations: QueryOptFlags | None,
        target: object,
        extension: str,
        **kwargs: Any,
    ) -> QueryOutcome:
        """Run a query and write its rows: on all ranks, or on none.

        Raises
        ------
        NeedsOneWriter
            On all ranks, if several cannot write to the target; nothing has been written then.
        """
        transport = RapidsmpfTransport(self.context, op_ids)
        options = self._execution_options
        with _tell_others(transport):
            sink = SinkTarget.open(
                target,
                extension,
                transport,
                options.fallback_mode,
                kwargs,
                to_directory=self._sink_to_directory,
            )
            try:
                whole = (
                    {"optimizations": optimizations or pl.QueryOptFlags()} if transport.nranks == 1 else {}
                )
                outcome = stream_query(
                    query,
                    transport,
                    lambda rows: sink.write(rows, **whole, **kwargs),
                    optimizations=optimizations,
                    options=options,
                    device=self._device,
                    end=sink.commit,
                    purpose=f"sink_{extension}",
                )
            except BaseException:
                sink.discard()
                raise
        # Here no rank waits for another one any more: none needs to be told.
        if sink.needs is not None:
            sink.discard()
            raise sink.needs
        return outcome

    def give_batches(
        self,
        query: pl.LazyFrame | Query,
        op_ids: OpIds,
        optimizations: QueryOptFlags | None,
        function: Callable[[pl.DataFrame], bool | None],
        *,
        chunk_size: int | None,
        maintain_order: bool,
    ) -> QueryOutcome:
        """Run a query and call ``function`` with each batch of this rank's rows, until it returns True."""
        transport = RapidsmpfTransport(self.context, op_ids)

        with _tell_others(transport):
            opened = self._open(query, transport, optimizations, "sink_batches")
            opened.give_batches(
                function,
                optimizations or pl.QueryOptFlags(),
                ordered=maintain_order,
                chunk_size=chunk_size,
            )
            outcome = opened.outcome()
            return replace(outcome, facts=transport.allgather_bytes(opened.facts(), op=_LAST_OP))

    def _open(
        self,
        query: pl.LazyFrame | Query,
        transport: RapidsmpfTransport,
        optimizations: QueryOptFlags | None,
        purpose: str,
    ) -> OpenQuery:
        return open_query(
            query,
            transport,
            optimizations=optimizations,
            options=self._execution_options,
            device=self._device,
            purpose=purpose,
        )

    def open_batches(
        self,
        query: pl.LazyFrame | Query,
        op_ids: OpIds,
        optimizations: QueryOptFlags | None,
        *,
        chunk_size: int | None,
        maintain_order: bool,
    ) -> tuple[QueryOutcome, RankBatches]:
        """Run a query up to its last step, which goes on while this rank's batches are read.

        Up to there the query fails on all ranks or on none. The last step needs no other rank: where it fails, the
        others have their rows all the same.
        """
        transport = RapidsmpfTransport(self.context, op_ids)
        with _tell_others(transport):
            opened = self._open(query, transport, optimizations, "collect_batches")
            batches = RankBatches(
                opened,
                optimizations or pl.QueryOptFlags(),
                chunk_size=chunk_size,
                maintain_order=maintain_order,
                failed=transport.abandon,
            )
            return opened.outcome(), batches

    def gather(self, part: pl.DataFrame, op_ids: OpIds) -> pl.DataFrame:
        """Return the rows of all ranks, in rank order, on every rank."""
        transport = RapidsmpfTransport(self.context, op_ids)
        if transport.nranks == 1:
            return part.clone()
        with _tell_others(transport):
            agree_on_purpose("gather", lambda mine: transport.allgather_bytes(mine, op=0))
            return pl.DataFrame(transport.allgather(part, op=1))

    def sink_table(
        self,
        query: pl.LazyFrame | Query,
        op_ids: OpIds,
        optimizations: QueryOptFlags | None,
        step: str,
        write: TableWrite | TablePlan | str,
    ) -> tuple[QueryOutcome, Any] | str | None:
        """Run a query and write its rows to a Delta or Iceberg table: on all ranks, with one commit, or on none.

        Parameters
        ----------
        query, op_ids, optimizations
            As for :meth:`run`.
        step
            The name of the user's method.
        write
            What to write, or why ranks cannot share it; or the plan for it that another process has made.

        Returns
        -------
        The query's outcome, and what came of the commit. If nothing has run, why one process has to write; or None if
        Polars, given no rows, says why nothing is to be written.

        Raises
        ------
        Exception
            On all ranks, what one of them raised.
        """
        transport = RapidsmpfTransport(self.context, op_ids)
        with _tell_others(transport):
            agree_on_purpose(step, lambda mine: transport.allgather_bytes(mine, op=0))
            agreed = (
                write
                if isinstance(write, TablePlan)
                else FORMATS[step].agree(write, transport, op=_LAST_OP + 3)
            )
            done = (
                self._write_table(query, transport, optimizations, agreed)
                if isinstance(agreed, TablePlan)
                else agreed
            )
        # Here no rank waits for another one any more: none needs to be told.
        if isinstance(done, Refused):
            raise done.error
        if isinstance(done, str) or done is None:
            return done
        outcome, sink = done
        return outcome, sink.result()

    def _write_table(
        self,
        query: pl.LazyFrame | Query,
        transport: RapidsmpfTransport,
        optimizations: QueryOptFlags | None,
        plan: TablePlan,
    ) -> tuple[QueryOutcome, TableSink] | str:
        """Write this rank's rows and commit; or return why these ranks cannot."""
        sink = plan.open_sink(transport, _LAST_OP)
        try:
            if (reason := sink.why_not()) is not None:
                plan.end()
                return reason
            # The user's own query, of which only the user's optimisations are left to whoever runs it.
            whole = (optimizations or pl.QueryOptFlags(),) if transport.nranks == 1 else ()
            outcome = stream_query(
                query,
                transport,
                lambda rows: sink.write(rows, *whole),
                optimizations=optimizations,
                options=self._execution_options,
                device=self._device,
                end=sink.commit,
                purpose=plan.step,
                first_op=1,
            )
        except BaseException:
            sink.discard()
            raise
        return outcome, sink

    def write_once(
        self,
        query: pl.LazyFrame | Query,
        op_ids: OpIds,
        optimizations: QueryOptFlags | None,
        write: Callable[[pl.LazyFrame], T],
        step: str,
        *,
        commits_later: bool,
    ) -> tuple[QueryOutcome, T]:
        """Run a query and let rank 0 alone write the rows of all ranks.

        Parameters
        ----------
        query, op_ids, optimizations
            As for :meth:`run`.
        write
            Called on rank 0 with the rows, which it can read once.
        step
            What writes, for messages.
        commits_later
            What ``write`` returns commits when it is told to.

        Returns
        -------
        The query's outcome, without rows; and what ``write`` returned, on all ranks.

        Raises
        ------
        NotImplementedError
            If ranks would commit later, or ``fallback_mode`` is ``"raise"``.
        Exception
            On all ranks, what ``write`` raised on rank 0.
        """
        transport = RapidsmpfTransport(self.context, op_ids)
        options = self._execution_options
        with _tell_others(transport):
            if commits_later:
                raise NotImplementedError(
                    f"{step}(mode='merge') returns what commits when its execute() is called, and all"
                    f" {transport.nranks} ranks would call it. Instead, gather the rows"
                    " (cudf_polars.engine.spmd.allgather_polars_dataframe) and merge them on one rank:"
                    " if engine.rank == 0: rows.write_delta(target, mode='merge', ...)"
                )
            report([step], options.fallback_mode)
            outcome = run_query(
                query,
                transport,
                optimizations=optimizations,
                options=options,
                device=self._device,
                purpose=step,
            )
            part = [outcome.frame]
            outcome = replace(outcome, frame=outcome.frame.clear())
            written = write_on_one_rank(part.pop(), transport, write)  # nobody else holds the rows
        return outcome, written.result()

    def statistics(self, *, clear: bool) -> bytes:
        """Return this rank's statistics, serialised, and begin anew if ``clear``."""
        mine = self.context.statistics()
        values = mine.serialize()
        if clear:
            mine.clear()
        return values

    def abandon(self, op_ids: OpIds, error: BaseException) -> None:
        """End a query on all ranks because of ``error``; any thread may call this while it runs."""
        RapidsmpfTransport(self.context, op_ids).abandon(error)

    def abort(self, error: BaseException) -> None:
        """Tell the other ranks that this one gives up altogether."""
        RapidsmpfTransport(self.context).abort(error)

    def close(self) -> None:
        """End the threads. No query may be running."""
        with self._opened:  # RMM has its former resource back when ours is not used any more
            self._device.close()
            self.context.shutdown()


@contextmanager
def _tell_others(transport: RapidsmpfTransport) -> Iterator[None]:
    """End a query on all ranks when it fails here; another rank's failure is raised as what it is."""
    try:
        yield
    except BaseException as error:
        hide_secrets(error)
        failure = failure_of_rank(error)
        transport.abandon(failure or error)
        if failure is None or failure is error:
            raise
        raise failure from error
