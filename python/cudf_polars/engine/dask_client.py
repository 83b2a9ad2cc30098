"""The workers of a Dask cluster as an engine's client reaches them: made ranks, asked, and told to leave."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import uuid
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl
from distributed.protocol.pickle import dumps
from rapidsmpf.integrations.context import memory_domain
from rapidsmpf.integrations.dask_workers import LOST, WorkerCalls, ipv4_of, raise_first

from cudf_polars.engine import dask_worker
from cudf_polars.engine.cluster import GivenUp, Lost, Question, wait_for_any
from cudf_polars.engine.core import ClusterInfo
from cudf_polars.engine.rank_host import RankPlan
from cudf_polars.engine.rank_settings import RankSettings

if TYPE_CHECKING:
    from distributed import Client, Worker

__all__ = ["Workers"]

_log = logging.getLogger(__name__)

_GRACE_SECONDS = 5.0
"""How long the answers of ranks are awaited after one has been lost, before asking whether their workers still live."""
_CLOSE_SECONDS = 15.0
"""How long a worker may take to leave an engine that shuts down."""


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

    It makes the ranks of an engine leave when the engine's client goes away without telling them, which the scheduler
    notices.
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


class Workers:
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
        address = raise_first(self._calls.each(dask_worker.make_root, {root: plans[root]}))[root]
        joins = {worker: (*plan, address) for worker, plan in plans.items()}
        joined = raise_first(self._client.sync(self._calls.until_failure, dask_worker.join, joins))
        by_rank = sorted((rank, worker, info) for worker, (rank, info) in joined.items())
        self.addresses = [worker for _, worker, _ in by_rank]
        return self.addresses, [info for _, _, info in by_rank]

    def _watch_client(self) -> None:
        reason = "its client has gone away"
        leave = {
            "op": "run",
            "function": dumps(dask_worker.leave),
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
                    " the same on both"
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
                self._calls.each(
                    dask_worker.abandon, dict.fromkeys(self.addresses, (self.engine, query.epoch, reason))
                )
            raise

    async def _ask(self, query: Question, arguments: Sequence[tuple[Any, ...]]) -> list[bytes | Lost]:
        await self._look_for_changes()
        calls = [
            asyncio.ensure_future(self._calls.one(dask_worker.run, address, (self.engine, query, given)))
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
            await asyncio.wait_for(self._calls.each_async(dask_worker.leave, arguments), _CLOSE_SECONDS)

    def leave(self, reason: str | None = None) -> None:
        """Let the ranks go; errors do not matter any more."""
        with contextlib.suppress(*LOST):
            self._client.sync(self._leave_all, reason)
