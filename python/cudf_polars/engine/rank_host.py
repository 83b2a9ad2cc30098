"""A rank of a client's engine inside a worker process of Dask or an actor of Ray.

The worker's own loop must go on while a query runs: each rank has one thread, on which everything but giving up
happens, in the order in which it was asked for. A query that was given up may hold that thread: a function of a user's,
or a step inside Polars, cannot be interrupted. Then the next query does not wait for long, but says what it is.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypeVar

import polars as pl
from rapidsmpf.communicator import ucxx
from rapidsmpf.communicator.communicator import Communicator
from rapidsmpf.integrations.context import host_memory_share
from rapidsmpf.progress_thread import ProgressThread
from rapidsmpf.statistics import Statistics

from cudf_polars.engine.batches import BATCH_ROWS, RankBatches
from cudf_polars.engine.compute_device import choose_device
from cudf_polars.engine.core import ClusterInfo
from cudf_polars.engine.hardware_binding import bind_to_device
from cudf_polars.engine.partition_sinks import NeedsOneWriter
from cudf_polars.engine.rank import Rank
from cudf_polars.engine.rank_settings import RankSettings, bootstrap_timeout
from cudf_polars.engine.relay import run_captured, running_function
from cudf_polars.engine.shipping import PackedQuery, pack_frame, unpack_query
from cudf_polars.engine.table_sinks import TablePlan
from cudf_polars.execute.run import QueryOutcome
from cudf_polars.streaming.actor_graph.collectives.common import OpIds

__all__ = ["RankHost", "RankPlan"]

T = TypeVar("T")

_PATIENCE_SECONDS = 5.0
"""How long a query waits for one that was given up before, and holds the rank."""


@dataclass(frozen=True)
class RankPlan:
    """What a worker has to know to become a rank.

    Attributes
    ----------
    settings
        The options of the engine.
    nranks
        Number of ranks.
    ranks_on_host
        Number of ranks on the worker's machine, which share its memory.
    share
        The worker's place among the ranks of its machine if the engine started them, and so binds them to cores of
        their own; None if someone else did.
    one_host
        Whether all ranks can share memory, and so need no network.
    address
        The IPv4 address by which other machines reach the worker; None if all ranks are on one machine.
    memory_limit
        Bytes that the worker may use, or None.
    """

    settings: RankSettings
    nranks: int
    ranks_on_host: int
    share: int | None = None
    one_host: bool = False
    address: str | None = None
    memory_limit: int | None = None


def worker_options(plan: RankPlan) -> RankSettings:
    """Return the options of one rank: its share of the machine's memory, and where rank 0 listens."""
    given = dict(plan.settings.more)
    library = plan.settings.library_options().get_strings()
    memory = host_memory_share(plan.ranks_on_host, plan.memory_limit)
    if memory is not None and "memory_limit" not in library:
        given["memory_limit"] = str(memory)
    if plan.address is not None and "coordinator_host" not in library:
        given["coordinator_host"] = plan.address
    if plan.one_host and "ucxx_reach" not in library:
        given["ucxx_reach"] = "one-host"
    return replace(plan.settings, more=given)


@dataclass
class _Running:
    """A query that has the rank's thread."""

    epoch: int
    place: str
    started: datetime
    given_up: float | None = None  # time.monotonic()

    def describe(self) -> str:
        """Say which query it is, and what keeps it."""
        name = f"query {self.epoch}" + (f", collected at {self.place}," if self.place else "")
        seconds = (datetime.now() - self.started).total_seconds()
        function = running_function()
        by = f"the function {function}" if function else "a step of Polars"
        return (
            f"it is held by {name} which began at {self.started:%H:%M:%S}, {seconds:.0f} s ago, and was given up:"
            f" {by} runs there, and cannot be interrupted"
        )


def _report(rank: Rank, outcome: QueryOutcome) -> str:
    """Return how a query went, on one rank: all know it of all."""
    return outcome.explain() if rank.comm.rank == 0 else ""


class RankHost:
    """One rank, and the thread it runs on.

    Parameters
    ----------
    plan
        What to become.
    """

    def __init__(self, plan: RankPlan) -> None:
        self._plan = plan
        self._pool = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="riverrun-rank")
        self._lock = threading.Lock()  # guards what follows, which closing takes away from the thread
        self._settings: RankSettings | None = None
        self._statistics: Statistics | None = None
        self._comm: Communicator | None = None
        self._rank: Rank | None = None
        self._running: _Running | None = None
        self._batches: dict[int, RankBatches] = {}  # of queries whose last step is being read, by epoch
        self._closed = False

    def submit(self, work: Callable[[], T]) -> concurrent.futures.Future[T]:
        """Run ``work`` on the rank's thread."""
        return self._pool.submit(work)

    def submit_query(
        self, epoch: int, place: str, method: str, arguments: tuple[Any, ...]
    ) -> concurrent.futures.Future[bytes]:
        """Call ``method(epoch, *arguments)`` on the rank's thread; the future has its reply.

        If a query that was given up holds the thread for more than a few seconds, the reply is an error that says so.

        Parameters
        ----------
        epoch
            The number of the query.
        place
            Where in the user's sources it was asked for, or "".
        method
            Name of a method of this class.
        arguments
            Its arguments.
        """
        answer: concurrent.futures.Future[bytes] = concurrent.futures.Future()
        answer.set_running_or_notify_cancel()  # who waits for it may stop waiting, no more
        with self._lock:
            before = self._running
        call = self._pool.submit(self._run_query, epoch, place, method, arguments)
        timer = None
        if before is not None:
            # A client has one query at a time: it does not wait for the one before any more.
            self.abandon(before.epoch, KeyboardInterrupt("the client has gone on to another query"))
            assert before.given_up is not None
            wait = before.given_up + _PATIENCE_SECONDS - time.monotonic()
            timer = threading.Timer(max(0.0, wait), self._refuse, (call, answer, epoch, before))
            timer.daemon = True
            timer.start()

        def finish(_: object) -> None:
            if timer is not None:
                timer.cancel()
            if not call.cancelled():
                answer.set_result(call.result())

        call.add_done_callback(finish)
        return answer

    def _refuse(
        self,
        call: concurrent.futures.Future[bytes],
        answer: concurrent.futures.Future[bytes],
        epoch: int,
        before: _Running,
    ) -> None:
        """Answer a query that has waited long enough for another one."""
        if not call.cancel():
            return  # it runs
        error = RuntimeError(
            f"{self._name()} is not free: {before.describe()}. Wait until it has ended, or shut the engine down and"
            " make a new one."
        )
        self.abandon(epoch, error)

        def refuse() -> None:
            raise error

        answer.set_result(run_captured(refuse))

    def _name(self) -> str:
        with self._lock:
            rank = "a rank" if self._rank is None else f"rank {self._rank.comm.rank}"
        return f"{rank} (process {os.getpid()} on {socket.gethostname()})"

    # -- on the rank's thread -----------------------------------------------------------------------------

    def _run_query(self, epoch: int, place: str, method: str, arguments: tuple[Any, ...]) -> bytes:
        with self._holding(_Running(epoch, place, datetime.now())):
            return getattr(self, method)(epoch, *arguments)  # type: ignore[no-any-return]

    @contextlib.contextmanager
    def _holding(self, query: _Running) -> Iterator[None]:
        with self._lock:
            self._running = query
        try:
            yield
        finally:
            with self._lock:
                self._running = None

    def make_root(self) -> bytes:
        """Become rank 0 and return the address for the others."""
        return ucxx.get_root_ucxx_address(self._join(None))

    def join(self, root_address: bytes) -> tuple[int, ClusterInfo]:
        """Become a rank, once all have called this; the root has its rank already.

        Returns
        -------
        The rank, and where it runs.
        """
        comm = self._comm if self._comm is not None else self._join(root_address)
        assert self._settings is not None
        assert self._statistics is not None
        ucxx.barrier(comm, timeout=bootstrap_timeout(self._settings.library_options()))
        rank = Rank(comm, self._settings, self._statistics)
        with self._lock:
            if self._closed:
                raise RuntimeError("the engine was shut down while it started")
            self._rank = rank
        return comm.rank, rank.describe()

    def _join(self, root_address: bytes | None) -> Communicator:
        settings = worker_options(self._plan)
        choose_device(settings.options)
        policy = settings.options.get("hardware_binding")
        bind_to_device(policy, share=self._plan.share, nshares=self._plan.ranks_on_host)
        options = settings.library_options()
        options.insert_if_absent({"ucxx_join_timeout": f"{bootstrap_timeout(options)} s"})
        statistics = settings.statistics()
        with settings.naming_sources():
            comm = ucxx.new_communicator(
                self._plan.nranks, None, root_address, options, ProgressThread(statistics)
            )
        with self._lock:
            self._settings, self._statistics = settings, statistics
            self._comm = comm
            closed = self._closed
        if closed:
            comm.abort("the engine was shut down while it started")
        return comm

    def collect(self, epoch: int, query: PackedQuery) -> bytes:
        """Run a query and return a reply with this rank's rows and its report."""

        def work() -> tuple[bytes, str]:
            rank, lf, flags = self._opened(query)
            outcome = rank.run(lf, OpIds(epoch), flags)
            return pack_frame(outcome.frame), _report(rank, outcome)

        return self._captured(epoch, work)

    def collect_all(self, epoch: int, query: PackedQuery, count: int) -> bytes:
        """Run so many queries that are joined in one; return a reply with this rank's rows of each, and a report.

        The reply has None, from every rank, if they have to run each for itself.
        """

        def work() -> tuple[list[bytes], str] | None:
            rank, lf, flags = self._opened(query)
            outcomes = rank.run_all(lf, count, OpIds(epoch), flags)
            if outcomes is None:
                return None
            frames = [pack_frame(outcome.frame) for outcome in outcomes]
            return frames, _report(rank, outcomes[-1])

        return self._captured(epoch, work)

    def explain(self, epoch: int, query: PackedQuery) -> bytes:
        """Return a reply with the physical plan of a query, from rank 0."""

        def work() -> str:
            rank, lf, flags = self._opened(query)
            return rank.explain(lf, flags) if rank.comm.rank == 0 else ""

        return self._captured(epoch, work)

    def open_batches(
        self, epoch: int, query: PackedQuery, chunk_size: int | None, maintain_order: bool
    ) -> bytes:
        """Run a query up to its last step; returns a reply as :meth:`more_batches` does, with the query's report."""

        def work() -> tuple[list[bytes], bool, str]:
            rank, lf, flags = self._opened(query)
            outcome, batches = rank.open_batches(
                lf, OpIds(epoch), flags, chunk_size=chunk_size, maintain_order=maintain_order
            )
            with self._lock:
                self._batches[epoch] = batches
            frames, ended = self._next_batches(epoch, chunk_size)
            # A frame without rows says the types.
            return frames or [pack_frame(pl.DataFrame(schema=batches.schema))], ended, _report(rank, outcome)

        return self._captured(epoch, work)

    def more_batches(self, epoch: int, opened: int, chunk_size: int | None, wanted: bool) -> bytes:
        """Return a reply with more rows of the query ``opened``, if they are wanted of this rank.

        They are packed frames, and whether they were the last.
        """
        return self._captured(
            epoch, lambda: self._next_batches(opened, chunk_size) if wanted else ([], False)
        )

    def close_batches(self, epoch: int, opened: int) -> bytes:
        """End the query ``opened``: no more of its rows are wanted."""
        return self._captured(epoch, lambda: self._close_batches(opened))

    def _close_batches(self, opened: int) -> None:
        with self._lock:
            batches = self._batches.pop(opened, None)
        if batches is not None:
            batches.close(wait=False)

    def _next_batches(self, opened: int, chunk_size: int | None) -> tuple[list[bytes], bool]:
        with self._lock:
            batches = self._batches.get(opened)
        if batches is None:
            raise RuntimeError("this query has ended")
        frames: list[bytes] = []
        rows = 0
        while rows < (chunk_size or BATCH_ROWS):
            batch = batches.next_batch()
            if batch is None:
                self._close_batches(opened)
                return frames, True
            rows += batch.height
            frames.append(pack_frame(batch))
        return frames, False

    def sink(
        self, epoch: int, query: PackedQuery, target: object, extension: str, kwargs: Mapping[str, Any]
    ) -> bytes:
        """Run a query and write its rows.

        Returns
        -------
        A reply with its report and None; or, if several ranks cannot write this, with None and what to report.
        """

        def work() -> tuple[str | None, str | None]:
            rank, lf, flags = self._opened(query)
            try:
                outcome = rank.sink(lf, OpIds(epoch), flags, target, extension, **kwargs)
            except NeedsOneWriter as reason:
                return None, reason.step
            return _report(rank, outcome), None

        return self._captured(epoch, work)

    def sink_table(self, epoch: int, query: PackedQuery, plan: TablePlan) -> bytes:
        """Run a query and write its rows to a Delta or Iceberg table.

        Returns
        -------
        A reply with the query's report and what came of the commit; or, if these ranks cannot, why.
        """

        def work() -> tuple[str, Any] | str | None:
            rank, lf, flags = self._opened(query)
            done = rank.sink_table(lf, OpIds(epoch), flags, plan.step, plan)
            return (_report(rank, done[0]), done[1]) if isinstance(done, tuple) else done

        return self._captured(epoch, work)

    def statistics(self, epoch: int, clear: bool) -> bytes:
        """Return a reply with this rank's statistics."""
        return self._captured(epoch, lambda: self._open().statistics(clear=clear))

    def _captured(self, epoch: int, work: Callable[[], Any]) -> bytes:
        def told() -> Any:
            try:
                return work()
            except BaseException as error:
                # Once more when the rank itself did so; but a query that cannot even be read has told nobody.
                self.abandon(epoch, error)
                raise

        return run_captured(told)

    def _open(self) -> Rank:
        with self._lock:
            if self._rank is None:
                raise RuntimeError("this rank of the engine was shut down")
            return self._rank

    def _opened(self, query: PackedQuery) -> tuple[Rank, Any, Any]:
        rank = self._open()
        lf, flags = unpack_query(query, rank.comm.rank, rank.comm.nranks)
        return rank, lf, flags

    # -- on any thread ------------------------------------------------------------------------------------

    def abandon(self, epoch: int, error: BaseException) -> None:
        """End a query on all ranks."""
        with self._lock:
            rank = self._rank
            running = self._running
            if running is not None and running.epoch == epoch and running.given_up is None:
                running.given_up = time.monotonic()
        if rank is not None:
            rank.abandon(OpIds(epoch), error)

    def close(self, reason: str | None = None) -> None:
        """Leave; if for a reason, the others' waits fail with it.

        Returns when the thread has ended. If a query that was given up holds that, this ends when the query does, but
        it is not waited for here.
        """
        with self._lock:
            self._closed = True
            comm = self._comm
            running = self._running
        if reason is not None and comm is not None:
            comm.abort(reason)
        del comm
        end = threading.Thread(target=self._end, name="riverrun-rank-end", daemon=True)
        end.start()
        given_up = None if running is None else running.given_up
        end.join(None if given_up is None else max(0.0, given_up + _PATIENCE_SECONDS - time.monotonic()))

    def _end(self) -> None:
        self._pool.shutdown(wait=True)
        with self._lock:
            opened, self._batches = list(self._batches.values()), {}
        for batches in opened:
            batches.close(wait=True)
        with self._lock:
            rank, self._rank, self._comm = self._rank, None, None
        if rank is not None:
            rank.close()
