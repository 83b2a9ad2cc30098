"""The ranks of engines on a worker of Dask: what the client calls there, and how a worker gets its GPU or cores."""

from __future__ import annotations

import asyncio
import functools
from typing import TYPE_CHECKING, Any

import distributed
from distributed.diagnostics.plugin import WorkerPlugin

from cudf_polars.engine.cluster import Question
from cudf_polars.engine.core import ClusterInfo
from cudf_polars.engine.local_workers import share_of_nanny
from cudf_polars.engine.rank_host import RankHost, RankPlan

if TYPE_CHECKING:
    from distributed import Nanny, Worker

__all__ = ["abandon", "dask_setup", "join", "leave", "make_root", "run"]


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


async def make_root(engine: str, plan: RankPlan, dask_worker: Worker) -> bytes:
    """Make the rank that the others join; return its address."""
    host = _ranks(dask_worker).hosts[engine] = RankHost(plan)
    return await asyncio.wrap_future(host.submit(host.make_root))


async def join(engine: str, plan: RankPlan, root: bytes, dask_worker: Worker) -> tuple[int, ClusterInfo]:
    """Join the ranks of an engine; return the number of this one, and where it runs."""
    hosts = _ranks(dask_worker).hosts
    if engine not in hosts:
        hosts[engine] = RankHost(plan)
    host = hosts[engine]
    return await asyncio.wrap_future(host.submit(functools.partial(host.join, root)))


async def run(engine: str, query: Question, arguments: tuple[Any, ...], dask_worker: Worker) -> bytes:
    """Run a method of this rank."""
    host = _ranks(dask_worker).hosts[engine]
    answer = host.submit_query(query.epoch, query.place, query.method, arguments)
    return await asyncio.wrap_future(answer)


async def abandon(engine: str, epoch: int, reason: str, dask_worker: Worker) -> None:
    """Let the rank give up what it runs for the client."""
    host = _ranks(dask_worker).hosts.get(engine)
    if host is not None:
        await asyncio.to_thread(host.abandon, epoch, KeyboardInterrupt(reason))


async def leave(engine: str, reason: str | None, dask_worker: Worker) -> None:
    """Leave an engine."""
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
            f" --preload (this is a {type(nanny).__name__})"
        )
    for name, value in share_of_nanny(nanny).items():
        nanny.env.setdefault(name, value)
