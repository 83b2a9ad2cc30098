"""The SPMD engine: the same script runs once per rank, and each process owns its part of the rows."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

import polars as pl
from rapidsmpf import bootstrap
from rapidsmpf.coll.small import forget_operations
from rapidsmpf.communicator import single
from rapidsmpf.config import Options
from rapidsmpf.progress_thread import ProgressThread
from rapidsmpf.statistics import Statistics

from cudf_polars.engine.batches import BatchSource
from cudf_polars.engine.catalog_sinks import FORMATS
from cudf_polars.engine.compute_device import choose_device
from cudf_polars.engine.core import StreamingEngine
from cudf_polars.engine.hardware_binding import bind_to_device
from cudf_polars.engine.options import StreamingOptions
from cudf_polars.engine.partition_sinks import NeedsOneWriter
from cudf_polars.engine.rank import Rank
from cudf_polars.engine.rank_settings import RankSettings, resolve_options
from cudf_polars.engine.sink_destinations import ByOneWriter
from cudf_polars.engine.table_sinks import TableWrite
from cudf_polars.engine.turns import QueryCall, QueryCancelled
from cudf_polars.execute.agreement import agree_on_purpose
from cudf_polars.execute.exchange import RapidsmpfTransport
from cudf_polars.execute.run import QueryOutcome
from cudf_polars.lower.user_code import user_stacklevel
from cudf_polars.plan.several import join_queries

if TYPE_CHECKING:
    from polars import QueryOptFlags
    from rapidsmpf.communicator.communicator import Communicator
    from rapidsmpf.streaming.core.context import Context

    from cudf_polars.streaming.actor_graph.collectives.common import OpIds

__all__ = ["EqualFramesWarning", "SPMDEngine", "allgather_polars_dataframe"]


class EqualFramesWarning(UserWarning):
    """All ranks of an SPMD job hold the same rows in memory, and a query reads them as parts of one table."""


T = TypeVar("T")


class SPMDEngine(StreamingEngine):
    """Runs Polars queries over the processes of an SPMD job.

    Under ``rrun`` the engine joins all ranks; otherwise it is one rank. ``collect`` returns this rank's part of
    the answer: the parts are disjoint, and joined in rank order they are the answer
    (see :func:`allgather_polars_dataframe`). All ranks must run the same queries in the same order; ranks whose
    queries differ all raise ``QueryMismatchError``.

    Parameters
    ----------
    comm
        A communicator to use; it stays open when the engine shuts down. By default the engine makes one. Several
        engines may share one, seven at a time; all ranks have to start them in the same order.
    rapidsmpf_options, executor_options, engine_options
        Options by group, see :class:`StreamingOptions`. Explicit options go before environment variables.

    Raises
    ------
    TypeError
        If an option is unknown, reserved or has the wrong type.
    ValueError
        If an option has a value that cannot be used; the message names it and where it was set.
    RankFailedError
        If another rank fails while the engine starts.
    TimeoutError
        If a rank does not start its engine within the option ``bootstrap_timeout``; the message names it.
    RuntimeError
        If this process cannot be bound to the hardware near its device, and ``hardware_binding`` says that this is an
        error.

    Examples
    --------
    >>> with SPMDEngine() as engine:
    ...     pl.LazyFrame({"a": [1, 2]}).select(pl.sum("a")).collect(engine=engine).item()
    3
    """

    last_query: QueryOutcome | None = None

    def __init__(
        self,
        *,
        comm: Communicator | None = None,
        rapidsmpf_options: Mapping[str, Any] | Options | None = None,
        executor_options: Mapping[str, Any] | None = None,
        engine_options: Mapping[str, Any] | None = None,
    ) -> None:
        self._start(comm, resolve_options(rapidsmpf_options, executor_options, engine_options))

    @classmethod
    def from_options(cls, options: StreamingOptions, *, comm: Communicator | None = None) -> Self:
        """Make an engine from options.

        Parameters
        ----------
        options
            The options.
        comm
            A communicator to use, as for the constructor.
        """
        engine = cls.__new__(cls)
        engine._start(comm, RankSettings(options))
        return engine

    def _start(self, comm: Communicator | None, settings: RankSettings) -> None:
        choose_device(settings.options)
        bind_to_device(settings.options.get("hardware_binding"))
        statistics = settings.statistics()
        self._owns_comm = comm is None
        if comm is None:
            with settings.naming_sources():
                comm = _new_communicator(settings, ProgressThread(statistics))
        # Once in a job, not on every rank.
        self._rank: Rank | None = Rank(comm, settings, statistics, warns=comm.rank == 0)
        self._has_warned = False
        cluster_info, self._op_ids = self._rank.start()
        super().__init__(settings.options, cluster_info)

    def _open_rank(self, what: str) -> Rank:
        self._check_open(what)
        assert self._rank is not None
        return self._rank

    @property
    def comm(self) -> Communicator:
        """The communicator; RuntimeError after shutdown."""
        return self._open_rank("comm").comm

    @property
    def context(self) -> Context:
        """The streaming context; RuntimeError after shutdown."""
        return self._open_rank("context").context

    @property
    def rank(self) -> int:
        """This process's rank."""
        return self.comm.rank

    def gather(self, part: pl.DataFrame) -> pl.DataFrame:
        """Give every rank the rows of all ranks: the whole answer of a query, of which ``collect`` gave each its part.

        Every rank calls this, as it calls ``collect``.

        Parameters
        ----------
        part
            This rank's rows; the schema must be the same on all ranks, zero rows are fine.

        Returns
        -------
        pl.DataFrame
            The rows of rank 0, then those of rank 1, and so on.

        Raises
        ------
        RuntimeError
            If the engine is shut down.
        QueryMismatchError
            On all ranks, if another rank calls something else.
        RankFailedError
            If another rank fails.
        """
        with self._turn(QueryCall("gather()")):
            return self._open_rank("the engine").gather(part, self._next_op_ids())

    def __exit__(self, *exception: object) -> None:
        """Shut the engine down; if the block raised, the other ranks are told why before this one leaves."""
        error = exception[1] if len(exception) > 1 else None
        others_wait = self.nranks > 1 and not self._closed and not self._turns.is_fork
        if isinstance(error, Exception) and self._owns_comm and others_wait:
            self._open_rank("comm").abort(error)
        super().__exit__(*exception)

    def _close(self) -> None:
        # A communicator that the caller gave lives on with the caller; ours ends with its last user.
        rank, self._rank = self._rank, None
        if rank is not None:
            rank.close()
            self._op_ids.release()

    def _next_op_ids(self) -> OpIds:
        op_ids = self._op_ids.next()
        if op_ids.stale is not None and self.nranks > 1:
            forget_operations(self.comm, *op_ids.stale)
        return op_ids

    def _statistics_of_ranks(self, *, clear: bool) -> list[Statistics]:
        rank = self._open_rank("statistics")
        transport = RapidsmpfTransport(rank.context, self._next_op_ids())
        if transport.nranks > 1:
            # Before anything is cleared.
            agree_on_purpose("gather_statistics", lambda mine: transport.allgather_bytes(mine, op=0))
        values = transport.allgather_bytes(rank.statistics(clear=clear), op=1)
        return [Statistics.deserialize(value) for value in values]

    def _run(self, lf: pl.LazyFrame, optimizations: QueryOptFlags) -> pl.DataFrame:
        outcome = self._unless_cancelled(lambda rank, op_ids: rank.run(lf, op_ids, optimizations))
        self.last_query = outcome.without_rows()
        self._warn_of_equal_frames(outcome)
        return outcome.frame

    def _explain(self, lf: pl.LazyFrame, optimizations: QueryOptFlags) -> str:
        return self._open_rank("the engine").explain(lf, optimizations)

    def _run_all(
        self, lfs: Sequence[pl.LazyFrame], optimizations: QueryOptFlags
    ) -> list[pl.DataFrame] | None:
        outcomes = self._unless_cancelled(
            lambda rank, op_ids: rank.run_all(join_queries(lfs), len(lfs), op_ids, optimizations, lfs)
        )
        if outcomes is None:
            return None
        self.last_query = outcomes[-1].without_rows()
        self._warn_of_equal_frames(outcomes[-1])
        return [outcome.frame for outcome in outcomes]

    def _unless_cancelled(self, run: Callable[[Rank, OpIds], T]) -> T:
        """Return what ``run`` returns, which the current call can cancel."""
        rank = self._open_rank("the engine")
        op_ids = self._next_op_ids()
        call = self._current_call
        call.on_cancel(lambda: self._cancel(call, rank, op_ids))
        # Ranks count the same queries, also where one was cancelled before it began.
        if not call.cancelled:
            done = run(rank, op_ids)
            if not call.cancelled:
                return done
        raise QueryCancelled("the query was cancelled")

    def _open_batches(
        self, lf: pl.LazyFrame, optimizations: QueryOptFlags, *, chunk_size: int | None, maintain_order: bool
    ) -> BatchSource:
        rank = self._open_rank("the engine")
        self.last_query, batches = rank.open_batches(
            lf, self._next_op_ids(), optimizations, chunk_size=chunk_size, maintain_order=maintain_order
        )
        self._warn_of_equal_frames(self.last_query)
        return batches

    def _cancel(self, call: QueryCall, rank: Rank, op_ids: OpIds) -> None:
        """End a query on all ranks. What still runs of it here disturbs no other: its operations have ended."""
        rank.abandon(op_ids, QueryCancelled("the query was cancelled"))
        self._turns.give_up(call)

    def _warn_of_equal_frames(self, outcome: QueryOutcome) -> None:
        """Say once that each rank's data frames are parts of a table, where all ranks hold the same rows."""
        if not outcome.equal_frames or self._has_warned or self.rank != 0:
            return
        self._has_warned = True
        warnings.warn(
            f"all {self.nranks} ranks hold the same data frame: {'; '.join(outcome.equal_frames)}. Under SPMD a data"
            f" frame is its rank's part of a table, so this query sees these rows {self.nranks} times. For a table that"
            " is to be read once, keep the rows on one rank (`df if engine.rank == 0 else df.clear()`) or scan them"
            " from a file.",
            EqualFramesWarning,
            stacklevel=user_stacklevel(),
        )

    def _sink(
        self, lf: pl.LazyFrame, target: object, extension: str, optimizations: QueryOptFlags, **kwargs: Any
    ) -> None:
        try:
            self.last_query = self._sink_once(lf, target, extension, optimizations, **kwargs)
        except NeedsOneWriter as reason:
            alone = ByOneWriter(target, reason.step)
            self.last_query = self._sink_once(lf, alone, extension, optimizations, **kwargs)
        self._warn_of_equal_frames(self.last_query)

    def _sink_once(
        self, lf: pl.LazyFrame, target: object, extension: str, optimizations: QueryOptFlags, **kwargs: Any
    ) -> QueryOutcome:
        rank = self._open_rank("the engine")
        op_ids = self._next_op_ids()
        call = self._current_call
        call.on_cancel(lambda: self._cancel(call, rank, op_ids))
        # Ranks count the same queries, also where one was cancelled before it began.
        if call.cancelled:
            raise QueryCancelled("the query was cancelled")
        return rank.sink(lf, op_ids, optimizations, target, extension, **kwargs)

    def sink_batches(self, lf: pl.LazyFrame, function: Any, **kwargs: Any) -> None:
        """Call ``function`` with each batch of this rank's rows, while they are made, until it returns True."""
        with self._turn(QueryCall("sink_batches()")):
            rank = self._open_rank("the engine")
            self.last_query = rank.give_batches(
                lf,
                self._next_op_ids(),
                kwargs["optimizations"],
                function,
                chunk_size=kwargs.get("chunk_size"),
                maintain_order=kwargs.get("maintain_order", True),
            )
            self._warn_of_equal_frames(self.last_query)

    def _sink_catalog(
        self,
        lf: pl.LazyFrame,
        write: Callable[[pl.LazyFrame], T],
        step: str,
        optimizations: QueryOptFlags,
        *,
        commits_later: bool,
        arguments: Mapping[str, Any],
    ) -> T:
        rank = self._open_rank("the engine")
        if self.nranks == 1:
            return write(lf)
        if not commits_later:
            shared = FORMATS[step].read(arguments)
            done = rank.sink_table(lf, self._next_op_ids(), optimizations, step, shared)
            if done is None:
                # There is a table: Polars says what it says, and writes nothing.
                return write(pl.LazyFrame(schema=lf.collect_schema()))
            if isinstance(done, tuple):
                assert isinstance(shared, TableWrite)
                self.last_query, result_of_commit = done
                return cast("T", shared.answer(result_of_commit))
            step = f"{step} {done}"
        self.last_query, result = rank.write_once(
            lf, self._next_op_ids(), optimizations, write, step, commits_later=commits_later
        )
        return result


def _new_communicator(settings: RankSettings, progress: ProgressThread) -> Communicator:
    options = settings.library_options()
    if bootstrap.is_running_with_rrun():
        return bootstrap.create_ucxx_comm(progress_thread=progress, options=options)
    return single.new_communicator(options, progress)


def allgather_polars_dataframe(*, engine: SPMDEngine, local_df: pl.DataFrame, op_id: int) -> pl.DataFrame:
    """Give every rank the rows of all ranks, in rank order.

    Parameters
    ----------
    engine
        The engine whose ranks take part; all of them must call this.
    local_df
        This rank's rows; the schema must be the same on all ranks, zero rows are fine.
    op_id
        The operation id, equal on all ranks: see ``reserve_op_id``.

    Returns
    -------
    pl.DataFrame
        The rows of rank 0, then those of rank 1, and so on.

    Raises
    ------
    RuntimeError
        If the engine is shut down.
    RankFailedError
        If another rank fails.
    """
    if engine.nranks == 1:
        engine.comm  # noqa: B018 - raises after shutdown
        return local_df.clone()
    transport = RapidsmpfTransport(engine.context)
    gathered = pl.DataFrame(transport.allgather(local_df, op=op_id))
    if gathered.schema != local_df.schema:
        warnings.warn(
            f"the ranks' frames have other column types than this one: {gathered.schema} and {local_df.schema}",
            stacklevel=2,
        )
    return gathered
