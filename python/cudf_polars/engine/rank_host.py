"""A rank of a client's engine inside a worker process of Dask or an actor of Ray.

The worker's own loop must go on while a query runs: each rank has one thread, on which everything but giving up
happens, in the order in which it was asked for.
"""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from rapidsmpf.communicator import ucxx
from rapidsmpf.communicator.communicator import Communicator
from rapidsmpf.integrations.core import host_memory_share
from rapidsmpf.progress_thread import ProgressThread
from rapidsmpf.statistics import Statistics
from rapidsmpf.utils.system_info import get_device_memory

from cudf_polars.engine.core import ClusterInfo
from cudf_polars.engine.hardware_binding import bind_to_device
from cudf_polars.engine.rank import Rank, RankSettings, bootstrap_timeout
from cudf_polars.engine.relay import run_captured
from cudf_polars.engine.shipping import PackedQuery, pack_frame, unpack_query
from cudf_polars.streaming.actor_graph.collectives.common import OpIds

__all__ = ["RankHost", "RankPlan"]

T = TypeVar("T")


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
    address
        The IPv4 address by which other machines reach the worker; None if all ranks are on one machine.
    memory_limit
        Bytes that the worker may use, or None.
    """

    settings: RankSettings
    nranks: int
    ranks_on_host: int
    share: int | None = None
    address: str | None = None
    memory_limit: int | None = None


def worker_options(plan: RankPlan) -> RankSettings:
    """Return the options of one rank: its share of the machine's memory, and where rank 0 listens."""
    given = dict(plan.settings.texts)
    library = plan.settings.library_options().get_strings()
    memory = host_memory_share(plan.ranks_on_host, plan.memory_limit)
    if memory is not None and "memory_limit" not in library:
        given["memory_limit"] = str(memory)
    if plan.address is not None and "coordinator_host" not in library:
        given["coordinator_host"] = plan.address
    return replace(plan.settings, texts=given)


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
        self._closed = False

    def submit(self, work: Callable[[], T]) -> concurrent.futures.Future[T]:
        """Run ``work`` on the rank's thread."""
        return self._pool.submit(work)

    # -- on the rank's thread -----------------------------------------------------------------------------

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
        memory = host_memory_share(self._plan.ranks_on_host, None)  # on a CPU
        return comm.rank, ClusterInfo.local(int(get_device_memory()) if memory is None else memory)

    def _join(self, root_address: bytes | None) -> Communicator:
        settings = worker_options(self._plan)
        policy = settings.options.get("hardware_binding")
        bind_to_device(policy, share=self._plan.share, nshares=self._plan.ranks_on_host)
        options = settings.library_options()
        options.insert_if_absent({"ucxx_join_timeout": f"{bootstrap_timeout(options)} s"})
        statistics = Statistics(bool(settings.options.get("statistics")))
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
        """Run a query and return a reply with this rank's rows."""

        def work() -> bytes:
            rank, lf, flags = self._opened(query)
            return pack_frame(rank.run(lf, OpIds(epoch), flags).frame)

        return self._captured(epoch, work)

    def sink(
        self, epoch: int, query: PackedQuery, target: str, extension: str, kwargs: Mapping[str, Any]
    ) -> bytes:
        """Run a query and write its rows; returns a reply without a value."""

        def work() -> None:
            rank, lf, flags = self._opened(query)
            rank.sink(lf, OpIds(epoch), flags, target, extension, **kwargs)

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
        if rank is not None:
            rank.abandon(OpIds(epoch), error)

    def close(self, reason: str | None = None) -> None:
        """Leave; if for a reason, the others' waits fail with it. Returns when the thread has ended."""
        with self._lock:
            self._closed = True
            comm = self._comm
        if reason is not None and comm is not None:
            comm.abort(reason)
        del comm
        self._pool.shutdown(wait=True)
        with self._lock:
            rank, self._rank, self._comm = self._rank, None, None
        if rank is not None:
            rank.close()
