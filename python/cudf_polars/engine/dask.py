"""The engine on a Dask cluster: each worker of the cluster is a rank, and the script is the client.

Ranks live in the workers, beside whatever Dask runs there, and talk to each other without Dask; the client reaches
them through the scheduler. ``--preload-nanny cudf_polars.engine.dask`` gives each worker that is started from the
command line its GPU, or its share of the cores.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import functools
import logging
import uuid
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import polars as pl
from rapidsmpf.config import Options

from cudf_polars.engine.cluster import ClusterEngine, GivenUp, Lost, Question, refuse_rrun, wait_for_any
from cudf_polars.engine.core import ClusterInfo
from cudf_polars.engine.dask_own_cluster import start_own_cluster
from cudf_polars.engine.local_workers import plan_workers, share_of_nanny
from cudf_polars.engine.options import StreamingOptions
from cudf_polars.engine.rank import RankSettings, resolve_options
from cudf_polars.engine.rank_host import RankHost, RankPlan

try:
    import distributed
    from distributed.diagnostics.plugin import WorkerPlugin
    from distributed.protocol.pickle import dumps
except ImportError as error:
    raise ImportError("DaskEngine needs Dask: pip install dask distributed") from error
from rapidsmpf.integrations.core import memory_domain
from rapidsmpf.integrations.dask_workers import LOST, WorkerCalls, ipv4_of, raise_first

if TYPE_CHECKING:
    from distributed import Client, Nanny, Worker

__all__ = ["DaskEngine", "dask_setup"]

_log = logging.getLogger(__name__)

_GRACE_SECONDS = 5.0
"""How long the answers of ranks are awaited after one has been lost, before asking whether their workers still live."""
_CLOSE_SECONDS = 15.0
"""How long a worker may take to leave an engine that shuts down."""

# -- on the workers -------------------------------------------------------------------------------------------


class _Ranks(WorkerPlugin):  # type: ignore[misc]
    """The ranks that a worker is, by engine; they leave when the worker closes."""

    name = "cudf-polars-ranks"

    def __init__(self) -> None:
        self.hosts: dict[str, RankHost] = {}

    async def teardown(self, worker: Worker) -> None:
        """Tell the other ranks that this worker leaves, and go."""
        hosts, self.hosts = self.hosts, {}
        for host in hosts.values():
            await asyncio.to_thread(host.close, f"its Dask worker {worker.address} was closed")


def _ranks(worker: Worker) -> _Ranks:
    ranks = worker.plugins.get(_Ranks.name)
    if ranks is None:
        ranks = worker.plugins[_Ranks.name] = _Ranks()
    assert isinstance(ranks, _Ranks)
    return ranks


async def _make_root(engine: str, plan: RankPlan, dask_worker: Worker) -> bytes:
    host = _ranks(dask_worker).hosts[engine] = RankHost(plan)
    return await asyncio.wrap_future(host.submit(host.make_root))


async def _join(engine: str, plan: RankPlan, root: bytes, dask_worker: Worker) -> tuple[int, ClusterInfo]:
    hosts = _ranks(dask_worker).hosts
    if engine not in hosts:
        hosts[engine] = RankHost(plan)
    host = hosts[engine]
    return await asyncio.wrap_future(host.submit(functools.partial(host.join, root)))


async def _run(engine: str, query: Question, arguments: tuple[Any, ...], dask_worker: Worker) -> bytes:
    host = _ranks(dask_worker).hosts[engine]
    answer = host.submit_query(query.epoch, query.place, query.method, arguments)
    return await asyncio.wrap_future(answer)


async def _abandon(engine: str, epoch: int, reason: str, dask_worker: Worker) -> None:
    host = _ranks(dask_worker).hosts.get(engine)
    if host is not None:
        await asyncio.to_thread(host.abandon, epoch, KeyboardInterrupt(reason))


async def _leave(engine: str, reason: str | None, dask_worker: Worker) -> None:
    host = _ranks(dask_worker).hosts.pop(engine, None)
    if host is not None:
        await asyncio.to_thread(host.close, reason)


def dask_setup(nanny: Nanny) -> None:
    """Give the worker of a nanny its GPU, or its share of the cores (``--preload-nanny cudf_polars.engine.dask``).

    Called by Dask in the process of the nannies, before the worker's process starts. What the environment of the worker
    says already stays.

    Parameters
    ----------
    nanny
        The nanny.

    Raises
    ------
    TypeError
        If this is not a nanny: ``--preload`` was used.
    """
    if not isinstance(nanny, distributed.Nanny):
        raise TypeError(
            "cudf_polars.engine.dask prepares a worker's process before it starts: use --preload-nanny, not"
            " --preload (this is"
            f" a {type(nanny).__name__})"
        )
    for name, value in share_of_nanny(nanny).items():
        nanny.env.setdefault(name, value)


# -- on the client --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _WorkerInfo:
    """What the client knows of a worker before it becomes a rank."""

    address: str
    hostname: str
    polars: str
    memory_limit: int | None
    cpus: int


def _describe_worker() -> Callable[[Worker], tuple[str, str, int | None, int]]:
    """Return a function that travels by value: it has to run before the worker imports anything of ours."""

    def describe(dask_worker: Worker) -> tuple[str, str, int | None, int]:
        import os
        import socket
        from importlib.metadata import PackageNotFoundError, version

        try:
            polars = version("polars")
        except PackageNotFoundError:
            polars = ""
        limit = getattr(dask_worker.memory_manager, "memory_limit", None)
        return socket.gethostname(), polars, limit, len(os.sched_getaffinity(0))

    return describe


def _prepare_worker() -> Callable[[int], None]:
    """Return a function that travels by value: Polars reads the number of its threads when it is imported."""

    def prepare(threads: int) -> None:
        import os
        import sys

        if "polars" not in sys.modules:
            os.environ.setdefault("POLARS_MAX_THREADS", str(threads))

    return prepare


def _watch_client() -> Callable[..., None]:
    """Return a function that travels by value: the scheduler need not have this package.

    It makes the ranks of an engine leave when the engine's client goes away without a word: the scheduler is the one
    that notices.
    """

    def watch(
        client: str, engine: str, workers: list[str], leave: Mapping[str, Any], dask_scheduler: Any
    ) -> None:
        import asyncio

        from distributed.diagnostics.plugin import SchedulerPlugin

        class Engines(SchedulerPlugin):  # type: ignore[misc]
            """The engines of each client: where their ranks are, and what makes these leave."""

            def __init__(self) -> None:
                self.engines: dict[str, dict[str, tuple[list[str], Mapping[str, Any]]]] = {}
                self._leaving: set[Any] = set()

            def remove_client(self, scheduler: Any, client: str) -> None:
                for workers, message in self.engines.pop(client, {}).values():
                    living = [address for address in workers if address in scheduler.workers]
                    call = scheduler.broadcast(msg=dict(message), workers=living, on_error="ignore")
                    task = asyncio.ensure_future(call)
                    self._leaving.add(task)
                    task.add_done_callback(self._leaving.discard)

        name = "cudf-polars-engines"
        if name not in dask_scheduler.plugins:
            dask_scheduler.add_plugin(Engines(), name=name)
        plugin = dask_scheduler.plugins[name]
        plugin.engines.setdefault(client, {})[engine] = (workers, leave)
        if client not in dask_scheduler.clients:
            plugin.remove_client(dask_scheduler, client)

    return watch


def _forget_engine() -> Callable[..., None]:
    """Return a function that travels by value, and ends what :func:`_watch_client` has begun."""

    def forget(client: str, engine: str, dask_scheduler: Any) -> None:
        plugin = dask_scheduler.plugins.get("cudf-polars-engines")
        if plugin is not None:
            engines = plugin.engines.get(client, {})
            engines.pop(engine, None)
            if not engines:
                plugin.engines.pop(client, None)

    return forget


class _Workers:
    """The workers of a cluster that an engine uses, as its client reaches them.

    Parameters
    ----------
    client
        The client.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._calls = WorkerCalls(client)
        self.engine = uuid.uuid4().hex
        self.addresses = self._calls.addresses()
        if not self.addresses:
            raise RuntimeError(
                f"the Dask cluster at {client.scheduler.address} has no workers: start some, or wait for them with"
                " client.wait_for_workers(n)"
            )
        self._announced = set(self.addresses)

    def start(self, settings: RankSettings, *, ours: bool) -> tuple[list[str], list[ClusterInfo]]:
        """Make the workers ranks; returns their addresses and where they run, by rank."""
        found = self._look_at_workers()
        per_host = Counter(info.hostname for info in found)
        threads = {info.address: (max(1, info.cpus // per_host[info.hostname]),) for info in found}
        raise_first(self._calls.each(_prepare_worker(), threads))
        domains = raise_first(self._calls.each(memory_domain, dict.fromkeys(self.addresses, ())))
        one_host = len(set(domains.values())) == 1
        seen: Counter[str] = Counter()
        plans: dict[str, tuple[Any, ...]] = {}
        for info in found:
            plan = RankPlan(
                settings,
                len(found),
                per_host[info.hostname],
                share=seen[info.hostname] if ours else None,
                one_host=one_host,
                address=None if one_host else ipv4_of(info.address),
                memory_limit=info.memory_limit or None,
            )
            seen[info.hostname] += 1
            plans[info.address] = (self.engine, plan)
        self._watch_client()
        root = self.addresses[0]
        address = raise_first(self._calls.each(_make_root, {root: plans[root]}))[root]
        joins = {worker: (*plan, address) for worker, plan in plans.items()}
        joined = raise_first(self._client.sync(self._calls.until_failure, _join, joins))
        by_rank = sorted((rank, worker, info) for worker, (rank, info) in joined.items())
        self.addresses = [worker for _, worker, _ in by_rank]
        return self.addresses, [info for _, _, info in by_rank]

    def _watch_client(self) -> None:
        reason = "its client has gone away"
        leave = {
            "op": "run",
            "function": dumps(_leave),
            "args": dumps((self.engine, reason)),
            "kwargs": dumps({}),
            "wait": True,
        }
        try:
            self._client.run_on_scheduler(
                _watch_client(), self._client.id, self.engine, list(self.addresses), leave
            )
        except ValueError as error:
            # It takes no functions from clients (distributed.scheduler.pickle).
            _log.info("ranks will stay if this client ends without shutting its engine down: %s", error)

    def _look_at_workers(self) -> list[_WorkerInfo]:
        described = raise_first(self._calls.each(_describe_worker(), dict.fromkeys(self.addresses, ())))
        found = [_WorkerInfo(address, h, p, m, c) for address, (h, p, m, c) in described.items()]
        for info in found:
            if info.polars != pl.__version__:
                raise RuntimeError(
                    f"worker {info.address} has Polars {info.polars or '(none)'}, this client {pl.__version__}: install"
                    " the same"
                    " on both"
                )
        return found

    def ask(
        self,
        query: Question,
        arguments: Sequence[tuple[Any, ...]],
        stop: concurrent.futures.Future[None],
    ) -> list[bytes | Lost]:
        """Call a method of all ranks; raises GivenUp after ``stop``."""
        loop = self._client.loop.asyncio_loop
        answer = asyncio.run_coroutine_threadsafe(self._ask(query, arguments), loop)
        try:
            wait_for_any([answer, stop])
            if stop.done():
                raise GivenUp
            return answer.result()
        except BaseException as error:
            answer.cancel()
            # The user's Ctrl-C, say: nobody waits for the answer any more.
            with contextlib.suppress(Exception):
                reason = f"the client gave the query up ({type(error).__name__})"
                self._calls.each(_abandon, dict.fromkeys(self.addresses, (self.engine, query.epoch, reason)))
            raise

    async def _ask(self, query: Question, arguments: Sequence[tuple[Any, ...]]) -> list[bytes | Lost]:
        await self._look_for_changes()
        calls = [
            asyncio.ensure_future(self._calls.one(_run, address, (self.engine, query, given)))
            for address, given in zip(self.addresses, arguments, strict=True)
        ]
        try:
            await self._wait_for(calls)
        finally:
            for call in calls:
                call.cancel()
        return [self._answer(call) for call in calls]

    async def _wait_for(self, calls: Sequence[asyncio.Future[Any]]) -> None:
        """Return when all ranks that live have answered."""
        waiting = set(calls)
        while waiting:
            done, waiting = await asyncio.wait(
                waiting,
                timeout=_GRACE_SECONDS if len(waiting) < len(calls) else None,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if not done:
                # A rank whose worker is gone never answers, and connecting to it is tried for long.
                living = await self._calls.living()
                waiting = {c for c in waiting if self.addresses[calls.index(c)] in living}

    def _answer(self, call: asyncio.Future[Any]) -> bytes | Lost:
        if not call.done() or call.cancelled():
            return Lost("the scheduler has lost it")
        answer = call.result()
        if isinstance(answer, bytes):
            return answer
        if isinstance(answer, KeyError):
            return Lost("it was restarted, or has left the engine")
        return Lost(str(answer) or type(answer).__name__)

    async def _look_for_changes(self) -> None:
        new = await self._calls.living() - self._announced
        self._announced |= new
        if new:
            warnings.warn(
                f"workers joined the cluster after this engine started: {', '.join(sorted(new))}. The next engine"
                " will use them.",
                stacklevel=2,
            )

    async def _leave_all(self, reason: str | None) -> None:
        with contextlib.suppress(ValueError):
            await self._client.run_on_scheduler(_forget_engine(), self._client.id, self.engine)
        living = await self._calls.living()
        arguments = {a: (self.engine, reason) for a in self.addresses if a in living}
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._calls.each_async(_leave, arguments), _CLOSE_SECONDS)

    def leave(self, reason: str | None = None) -> None:
        """Let the ranks go; errors do not matter any more."""
        with contextlib.suppress(*LOST):
            self._client.sync(self._leave_all, reason)


class DaskEngine(ClusterEngine):
    """Runs Polars queries on the workers of a Dask cluster; ``collect`` returns the whole answer to this process.

    Each worker is a rank. Files are read by the workers; in-memory frames are split over them by position. Sinks write
    on the workers, one file each. Queries run beside Dask's own tasks; several engines, also of different clients,
    can use one cluster at the same time. Workers that join later are used by the next engine.

    Parameters
    ----------
    dask_client
        The client of a running cluster. It and the cluster stay as they are when the engine shuts down. By default, the
        engine makes a cluster on this machine and ends it: one worker for each visible GPU, or without any one for each
        NUMA node.
    n_workers
        How many workers the engine's own cluster has instead; each gets an equal share of the machine.
    rapidsmpf_options, executor_options, engine_options
        Options by group, see :class:`~cudf_polars.engine.options.StreamingOptions`.

    Raises
    ------
    TypeError
        If an option is unknown, reserved or has the wrong type; or if the client is asynchronous.
    ValueError
        If both a client and a number of workers are given, or an option has a value that cannot be used.
    RuntimeError
        In a process of an rrun cluster; if the cluster has no workers; or if they have another Polars.
    TimeoutError
        If a worker does not start within the option ``bootstrap_timeout``.

    Examples
    --------
    >>> with DaskEngine() as engine:  # doctest: +SKIP
    ...     pl.LazyFrame({"a": [1, 2]}).select(pl.sum("a")).collect(engine=engine).item()
    3
    """

    def __init__(
        self,
        *,
        dask_client: Client | None = None,
        n_workers: int | None = None,
        rapidsmpf_options: Mapping[str, Any] | Options | None = None,
        executor_options: Mapping[str, Any] | None = None,
        engine_options: Mapping[str, Any] | None = None,
    ) -> None:
        settings = resolve_options(rapidsmpf_options, executor_options, engine_options)
        self._start(settings, dask_client, n_workers)

    @classmethod
    def from_options(
        cls, options: StreamingOptions, *, dask_client: Client | None = None, n_workers: int | None = None
    ) -> Self:
        """Make an engine from options.

        Parameters
        ----------
        options
            The options.
        dask_client, n_workers
            As for the constructor.
        """
        engine = cls.__new__(cls)
        engine._start(RankSettings(options), dask_client, n_workers)
        return engine

    def _start(self, settings: RankSettings, client: Client | None, n_workers: int | None) -> None:
        refuse_rrun("DaskEngine")
        with contextlib.ExitStack() as stack:
            ours = client is None
            if client is None:
                client = start_own_cluster(stack, plan_workers(n_workers))
            elif n_workers is not None:
                raise ValueError(
                    "n_workers is for a cluster of the engine's own: leave it out with dask_client"
                )
            elif client.asynchronous:
                raise TypeError(
                    "DaskEngine needs a synchronous client: distributed.Client(asynchronous=False)"
                )
            workers = _Workers(client)
            try:
                addresses, infos = workers.start(settings, ours=ours)
            except BaseException as error:
                workers.leave(f"the engine did not start: {type(error).__name__}: {error}")
                raise
            stack.callback(workers.leave)
            super().__init__(settings.options, [f"worker {address}" for address in addresses], infos)
            self._workers = workers
            self._resources = stack.pop_all()

    def _ask(
        self,
        query: Question,
        arguments: Sequence[tuple[Any, ...]],
        stop: concurrent.futures.Future[None],
    ) -> Sequence[bytes | Lost]:
        return self._workers.ask(query, arguments, stop)

    def _close(self) -> None:
        self._resources.close()
