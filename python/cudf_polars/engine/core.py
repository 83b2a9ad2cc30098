"""What the engines share: the Polars hooks, cluster information, sinks and lifetime.

An engine is a way to start ranks and to run a query on them (``_run``); everything that Polars calls is here.
"""

from __future__ import annotations

import concurrent.futures
import os
import socket
import weakref
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar, cast

import polars as pl
from polars.lazyframe.query_result import SingleNodeQueryResult
from rapidsmpf.statistics import Statistics

from cudf_polars.engine import catalog_sinks, lazy_sinks
from cudf_polars.engine.batches import Batches, BatchSource
from cudf_polars.engine.options import StreamingOptions
from cudf_polars.engine.turns import QueryCall, QueryQueue
from cudf_polars.execute.errors import hide_secrets

if TYPE_CHECKING:
    from polars import QueryOptFlags

__all__ = ["ClusterInfo", "QueryReport", "StreamingEngine"]

T = TypeVar("T")

RESERVED_EXECUTOR_OPTIONS = frozenset({"cluster", "spmd_context", "ray_context", "dask_context"})
RESERVED_ENGINE_OPTIONS = frozenset({"memory_resource", "executor"})


@dataclass(frozen=True)
class ClusterInfo:
    """Where a rank runs. Fields are read as attributes or by subscript.

    Attributes
    ----------
    pid
        Process id.
    hostname
        Host name.
    cuda_visible_devices
        The variable of that name, or None.
    gpu_uuid
        UUID of the rank's GPU, or None on a CPU.
    device_memory
        Bytes of memory of the compute device that this rank may use.
    """

    pid: int
    hostname: str
    cuda_visible_devices: str | None
    gpu_uuid: str | None
    device_memory: int | None

    @classmethod
    def local(cls, device_memory: int | None = None) -> Self:
        """Describe this process."""
        return cls(
            pid=os.getpid(),
            hostname=socket.gethostname(),
            cuda_visible_devices=os.environ.get("CUDA_VISIBLE_DEVICES"),
            gpu_uuid=None,
            device_memory=device_memory,
        )

    def __getitem__(self, key: str) -> Any:
        """Return a field by name; raises KeyError for an unknown one."""
        fields = asdict(self)
        if key not in fields:
            raise KeyError(f"{key!r} is not one of {sorted(fields)}")
        return fields[key]


class QueryReport(Protocol):
    """What is known of a query that has run."""

    def explain(self) -> str:
        """Return the physical plan with what running its steps gave and cost on all ranks.

        The steps after the last exchange are in it where they have ended when the ranks last spoke to each other: not
        those whose rows ``collect_batches`` is giving.
        """
        ...


class _BackgroundQuery:
    """A query that runs on a thread: ``collect(background=True)``."""

    def __init__(self, future: concurrent.futures.Future[pl.DataFrame], call: QueryCall) -> None:
        self._future = future
        self._call = call

    def cancel(self) -> None:
        """Cancel the query; :meth:`fetch` raises."""
        self._call.cancel()

    def fetch(self) -> pl.DataFrame | None:
        """Return the result if it is there; raises the query's error."""
        return self._future.result() if self._future.done() else None

    def fetch_blocking(self) -> pl.DataFrame:
        """Wait for the result; raises the query's error."""
        return self._future.result()


def check_reserved(
    executor_options: Mapping[str, Any] | None, engine_options: Mapping[str, Any] | None
) -> None:
    """Raise TypeError when options name what the engines set themselves."""
    for kind, given, reserved in (
        ("executor_options", executor_options, RESERVED_EXECUTOR_OPTIONS),
        ("engine_options", engine_options, RESERVED_ENGINE_OPTIONS),
    ):
        if clash := reserved & set(given or {}):
            raise TypeError(f"{kind} may not contain reserved keys: {sorted(clash)}")


class StreamingEngine(pl.Engine):
    """Base of the engines. Subclass and implement :meth:`_run`, :meth:`_sink` and :meth:`_close`.

    Parameters
    ----------
    options
        All options of the engine.
    cluster_info
        Where each rank runs, by rank.

    Attributes
    ----------
    last_query
        How the last query went that ended well; None before there is one.
    """

    last_query: QueryReport | None = None

    def __init__(self, options: StreamingOptions, cluster_info: list[ClusterInfo]) -> None:
        self._options = options
        self._cluster_info = cluster_info
        # One query at a time: collectives of two would interleave.
        self._turns = QueryQueue(type(self).__name__)
        self._current_call = QueryCall("the engine")  # what has the turn, or had the last
        self._closed = False
        self._batches: weakref.WeakSet[Batches] = weakref.WeakSet()

    # -- to implement -------------------------------------------------------------------------------------

    @abstractmethod
    def _run(self, lf: pl.LazyFrame, optimizations: QueryOptFlags) -> pl.DataFrame:
        """Run a query and return what ``collect`` returns."""

    def _run_all(
        self, lfs: Sequence[pl.LazyFrame], optimizations: QueryOptFlags
    ) -> list[pl.DataFrame] | None:
        """Run queries as one, which computes common sub-plans once; return ``None`` if they cannot be run as one."""
        return None

    @abstractmethod
    def _explain(self, lf: pl.LazyFrame, optimizations: QueryOptFlags) -> str:
        """Return the physical plan of a query; called with the turn."""

    @abstractmethod
    def _open_batches(
        self, lf: pl.LazyFrame, optimizations: QueryOptFlags, *, chunk_size: int | None, maintain_order: bool
    ) -> BatchSource:
        """Run a query up to its last step, which goes on while its rows are read; called with the turn."""

    @abstractmethod
    def _sink(
        self, lf: pl.LazyFrame, target: object, extension: str, optimizations: QueryOptFlags, **kwargs: Any
    ) -> None:
        """Run a query and write its rows."""

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
        """Run a query and let one process write its rows: here the client, to which they come."""
        return write(self._run(lf, optimizations).lazy())

    @abstractmethod
    def _statistics_of_ranks(self, *, clear: bool) -> list[Statistics]:
        """Return each rank's statistics, by rank; called with the lock held."""

    @abstractmethod
    def _close(self) -> None:
        """Free what the engine made."""

    # -- information and lifetime -------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """Engine identifier."""
        return "streaming"

    @property
    def options(self) -> StreamingOptions:
        """The options that the engine was made with."""
        return self._options

    @property
    def nranks(self) -> int:
        """Number of ranks."""
        return len(self._cluster_info)

    def explain(
        self, lf: pl.LazyFrame, *, physical: bool = True, optimizations: QueryOptFlags | None = None
    ) -> str:
        """Return how the engine would run a query, without running it.

        Partitions, exchanges and filters are chosen by estimates; a run counts rows where these decide, and may choose
        otherwise. After a run, ``engine.last_query.explain()`` has what its steps gave and cost. Where each rank runs
        the script (SPMD), one rank may call this alone.

        Parameters
        ----------
        lf
            The query.
        physical
            Whether to return the engine's own plan; otherwise, the optimised plan of Polars that it is made from.
        optimizations
            Which optimisations Polars may make; all when ``None``.

        Raises
        ------
        RuntimeError
            If the engine was shut down.
        polars.exceptions.PolarsError
            If the query is wrong.
        """
        flags = pl.QueryOptFlags() if optimizations is None else optimizations
        with self._turn(QueryCall("explain()")):
            self._check_open("the engine")
            return self._explain(lf, flags) if physical else lf.explain(optimizations=flags)

    def gather_cluster_info(self) -> list[ClusterInfo]:
        """Return where each rank runs, by rank.

        The information is gathered when the engine starts, so one rank may call this alone.
        """
        self._check_open("cluster information")
        return list(self._cluster_info)

    def gather_statistics(self, *, clear: bool = False) -> list[Statistics]:
        """Return copies of the statistics of every rank, by rank; see docs/statistics.md.

        They are empty unless the option ``statistics`` is on. Where each rank runs the script (SPMD), every rank has to
        call this, between the same queries.

        Parameters
        ----------
        clear
            Whether to begin anew afterwards.

        Raises
        ------
        RuntimeError
            If the engine was shut down.
        RankFailedError
            If a rank is lost.
        """
        with self._turn(QueryCall("gather_statistics()")):
            self._check_open("statistics")
            return self._statistics_of_ranks(clear=clear)

    def global_statistics(self, *, clear: bool = False) -> Statistics:
        """Return the statistics of all ranks as one: sums of counts and sums, the largest of maxima and peaks.

        Parameters
        ----------
        clear
            As for :meth:`gather_statistics`, which also says who has to call this.
        """
        return Statistics.merge(self.gather_statistics(clear=clear))

    def shutdown(self) -> None:
        """Free the engine's resources; idempotent. A query on a closed engine raises RuntimeError.

        In a fork of the process that made the engine nothing is freed: it belongs to that process.
        """
        if self._turns.is_fork:
            self._closed = True
            return
        call = QueryCall("shutdown()")
        with self._turn(call):
            if not self._closed:
                self._closed = True
                self._turns.wait_for_all(call)
                for batches in list(self._batches):
                    batches.end("the engine was shut down before all of these batches were read")
                self._close()

    def __enter__(self) -> Self:
        """Return the engine; leaving the block shuts it down."""
        self._check_open("the engine")
        return self

    def __exit__(self, *_: object) -> None:
        """Shut the engine down."""
        self.shutdown()

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"nranks={self.nranks}"
        return f"{type(self).__name__}({state})"

    def _check_open(self, what: str) -> None:
        self._turns.check_process()
        if self._closed:
            raise RuntimeError(f"{what} is not available after shutdown")

    @contextmanager
    def _turn(self, call: QueryCall) -> Iterator[None]:
        """Have the turn for a call while the block runs."""
        with self._turns.take(call):
            self._current_call = call
            try:
                yield
            except BaseException as error:
                hide_secrets(error)
                raise

    def _collect(
        self, lf: pl.LazyFrame, optimizations: QueryOptFlags, call: QueryCall | None = None
    ) -> pl.DataFrame:
        call = QueryCall("collect()") if call is None else call
        with self._turn(call):
            self._check_open("the engine")
            try:
                sink = lazy_sinks.sink_of(lf)
                if sink is None or not self._takes(sink):
                    return self._run(lf, optimizations)
                self._sink(sink.rows, sink.target, sink.extension, optimizations, **sink.options)
                return pl.DataFrame()  # as Polars
            finally:
                call.on_cancel(None)

    def _takes(self, sink: lazy_sinks.LazySink) -> bool:
        """Say whether a lazy sink goes the way of the eager one. Several ranks cannot write one file; one rank can."""
        one_file = self.nranks > 1 and not self._options.get("sink_to_directory")
        return not (one_file and isinstance(sink.target, str | os.PathLike))

    # -- Polars' hooks ------------------------------------------------------------------------------------

    def collect(  # type: ignore[override]
        self,
        lf: pl.LazyFrame,
        *,
        optimizations: QueryOptFlags,
        background: bool = False,
        post_opt_callback: object | None = None,
    ) -> pl.DataFrame | _BackgroundQuery:
        """Run the query; see :meth:`polars.LazyFrame.collect`."""
        if post_opt_callback is not None:
            raise ValueError(f"{type(self).__name__} takes no post-optimisation callback")
        if background:
            call = QueryCall("collect(background=True)")
            pool = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="riverrun-collect")
            future = pool.submit(self._collect, lf, optimizations, call)
            pool.shutdown(wait=False)
            return _BackgroundQuery(future, call)
        return self._collect(lf, optimizations)

    def execute(self, lf: pl.LazyFrame, *, optimizations: QueryOptFlags) -> SingleNodeQueryResult:
        """Run the query into a result that can be used as a new LazyFrame."""
        return SingleNodeQueryResult(self._collect(lf, optimizations))

    def collect_async(  # type: ignore[override]
        self, lf: pl.LazyFrame, *, optimizations: QueryOptFlags, gevent: bool = False
    ) -> Awaitable[pl.DataFrame]:
        """Run the query on a thread and return an awaitable; cancelling that cancels the query."""
        if gevent:
            raise NotImplementedError(f"{type(self).__name__} does not support gevent")
        call = QueryCall("collect_async()")
        return self._on_thread(lambda: self._collect(lf, optimizations, call), call)

    async def _on_thread(self, work: Callable[[], T], call: QueryCall) -> T:
        """Return what ``work`` returns on a thread. When this is cancelled, the call is, and is not waited for."""
        import asyncio  # 2 MiB, which other queries need not hold

        self._turns.enqueue(call)
        future = asyncio.ensure_future(asyncio.to_thread(work))

        def done(future: asyncio.Future[T]) -> None:
            self._turns.dequeue(call)
            if not future.cancelled():
                future.exception()  # looked at, even where nobody waits for the result any more

        future.add_done_callback(done)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            call.cancel()
            raise

    def collect_batches(  # type: ignore[override]
        self,
        lf: pl.LazyFrame,
        *,
        optimizations: QueryOptFlags,
        maintain_order: bool = True,
        chunk_size: int | None = None,
        lazy: bool = False,
    ) -> Batches:
        """Run the query and return its rows in batches; see :meth:`polars.LazyFrame.collect_batches`.

        They are made while they are read. What has to be exchanged is exchanged before this returns, or with ``lazy``
        before the first batch; then other queries may run while the batches are read.
        """
        engine = weakref.ref(self)  # which has the batches

        def begin() -> BatchSource:
            me = engine()
            if me is None:
                raise RuntimeError("the engine of these batches is gone")
            call = QueryCall("collect_batches()")
            with me._turn(call):
                me._check_open("the engine")
                try:
                    return me._open_batches(
                        lf, optimizations, chunk_size=chunk_size, maintain_order=maintain_order
                    )
                finally:
                    call.on_cancel(None)

        batches = Batches(begin, lazy=lazy)
        self._batches.add(batches)
        return batches

    def collect_all(self, lfs: Iterable[pl.LazyFrame], *, optimizations: QueryOptFlags) -> list[pl.DataFrame]:
        """Run queries one after the other, in order; what they have in common runs once."""
        return self._collect_all(list(lfs), optimizations, QueryCall("collect_all()"))

    def _collect_all(
        self, lfs: Sequence[pl.LazyFrame], optimizations: QueryOptFlags, call: QueryCall
    ) -> list[pl.DataFrame]:
        if len(lfs) > 1 and not any(map(lazy_sinks.sink_of, lfs)):
            with self._turn(call):
                self._check_open("the engine")
                try:
                    frames = self._run_all(lfs, optimizations)
                finally:
                    call.on_cancel(None)
            if frames is not None:
                return frames
        return [self._collect(lf, optimizations, call) for lf in lfs]

    def collect_all_async(  # type: ignore[override]
        self, lfs: Iterable[pl.LazyFrame], *, optimizations: QueryOptFlags, gevent: bool = False
    ) -> Awaitable[list[pl.DataFrame]]:
        """Run queries on a thread as :meth:`collect_all` does; cancelling the awaitable cancels them all."""
        if gevent:
            raise NotImplementedError(f"{type(self).__name__} does not support gevent")
        frames = list(lfs)
        call = QueryCall("collect_all_async()")
        return self._on_thread(lambda: self._collect_all(frames, optimizations, call), call)

    def sink_catalog(
        self,
        lf: pl.LazyFrame,
        write: Callable[[pl.LazyFrame], T],
        *,
        step: str,
        optimizations: QueryOptFlags,
        commits_later: bool,
        arguments: Mapping[str, Any],
    ) -> T:
        """Run the query and let one process commit its rows to a catalog; see :mod:`~cudf_polars.engine.catalog_sinks`.

        Parameters
        ----------
        lf
            The query.
        write
            Called by one process, with the rows of all ranks, which it can read once. If there is but one rank, and no
            client, with the query itself.
        step
            What writes, for messages.
        optimizations
            For the query.
        commits_later
            What ``write`` returns commits when it is told to.
        arguments
            Those of the sink, by name, as far as they were given.

        Returns
        -------
        What ``write`` returned, on every rank; or the same as Polars' own method, where all ranks have written.

        Raises
        ------
        NotImplementedError
            If several ranks would commit later.
        """
        with self._turn(QueryCall(step)):
            self._check_open("the engine")
            return self._sink_catalog(
                lf, write, step, optimizations, commits_later=commits_later, arguments=arguments
            )

    def _sink_locked(self, lf: pl.LazyFrame, target: object, extension: str, kwargs: dict[str, Any]) -> None:
        optimizations = cast("QueryOptFlags", kwargs.pop("optimizations"))
        with self._turn(QueryCall(f"sink_{extension}()")):
            self._check_open("the engine")
            self._sink(lf, target, extension, optimizations, **kwargs)

    def sink_parquet(self, lf: pl.LazyFrame, path: object, **kwargs: Any) -> None:
        """Write Parquet; see :meth:`polars.LazyFrame.sink_parquet`."""
        self._sink_locked(lf, path, "parquet", kwargs)

    def sink_ipc(self, lf: pl.LazyFrame, path: object, **kwargs: Any) -> None:
        """Write Arrow IPC; see :meth:`polars.LazyFrame.sink_ipc`."""
        self._sink_locked(lf, path, "ipc", kwargs)

    def sink_csv(self, lf: pl.LazyFrame, path: object, **kwargs: Any) -> None:
        """Write CSV; see :meth:`polars.LazyFrame.sink_csv`."""
        self._sink_locked(lf, path, "csv", kwargs)

    def sink_ndjson(self, lf: pl.LazyFrame, path: object, **kwargs: Any) -> None:
        """Write newline-delimited JSON; see :meth:`polars.LazyFrame.sink_ndjson`."""
        self._sink_locked(lf, path, "ndjson", kwargs)

    def sink_batches(self, lf: pl.LazyFrame, function: Any, **kwargs: Any) -> None:
        """Call ``function`` with each batch of this rank's rows until it returns True."""
        for batch in self.collect_batches(
            lf, optimizations=kwargs["optimizations"], chunk_size=kwargs.get("chunk_size")
        ):
            if function(batch):
                return


catalog_sinks.install(StreamingEngine)
lazy_sinks.install()
