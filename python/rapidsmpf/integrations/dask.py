"""Shuffles as tasks of a Dask cluster: all workers join one communicator, beside what Dask does.

The client bootstraps the cluster: the workers become ranks, and a plugin of the scheduler learns which worker is
which rank, so that it can send tasks to the workers that own a partition. When workers have come or gone since, the
next bootstrap begins anew with those that are there.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import distributed
from distributed.diagnostics.plugin import SchedulerPlugin, WorkerPlugin
from rapidsmpf.communicator import ucxx
from rapidsmpf.config import Options
from rapidsmpf.given_options import given_texts, known_options, warn_of_those_without_effect
from rapidsmpf.integrations.context import (
    WorkerContext,
    host_memory_share,
    make_context,
    memory_domain,
    with_environment,
)
from rapidsmpf.integrations.dask_workers import WorkerCalls, ipv4_of, raise_first
from rapidsmpf.integrations.shuffle_graph import ShuffleNames, shuffle_graph
from rapidsmpf.integrations.shuffle_phases import (
    ShufflerIntegration,
    ShuffleTicket,
    drop_shuffle,
    stage_shuffle,
)
from rapidsmpf.progress_thread import ProgressThread
from rapidsmpf.statistics import Statistics
from rapidsmpf.utils.string import parse_boolean

if TYPE_CHECKING:
    from distributed import Client, Scheduler, Worker

__all__ = ["bootstrap_dask_cluster", "get_worker_context", "rapidsmpf_shuffle_graph"]

_PLUGIN = "rapidsmpf"
_DROP = "rapidsmpf_drop_shuffle"
_JOIN_SECONDS = 120.0

# What a worker's options are called in the options of the whole cluster.
_OF_WORKERS: dict[str, str] = {
    "dask_spill_device": "spill_device_limit",
    "dask_spill_to_pinned_memory": "pinned_memory",
    "dask_periodic_spill_check": "periodic_spill_check",
    "dask_statistics": "statistics",
}

# -- on the workers ------------------------------------------------------------------------------------------


def _of_worker(options: Options) -> Options:
    """Return options, filled by the environment, in which those for Dask workers go before the general ones.

    Parameters
    ----------
    options
        The options; ``dask_spill_device``, for instance, becomes ``spill_device_limit``.
    """
    texts = with_environment(options).get_strings()
    own = {key: texts[name] for name, key in _OF_WORKERS.items() if texts.get(name, "").strip()}
    return Options({**texts, **own})


def _prints_statistics(options: Options) -> bool:
    """Return whether a worker prints its statistics when it ends.

    Parameters
    ----------
    options
        What :func:`_of_worker` returned.
    """
    texts = options.get_strings()
    wanted = texts.get("dask_statistics", "").strip() or known_options()["dask_statistics"].default
    printed = (
        texts.get("dask_print_statistics", "").strip() or known_options()["dask_print_statistics"].default
    )
    return parse_boolean(wanted) and parse_boolean(printed)


@dataclass(frozen=True)
class _Join:
    """What a worker has to know to join the others."""

    nranks: int
    options: Mapping[str, str]
    ranks_on_host: int
    one_host: bool
    memory_limit: int | None

    def filled_options(self) -> Options:
        """Return the options, with the worker's environment and its share of memory where they say nothing."""
        options = _of_worker(Options(dict(self.options)))
        if self.one_host:
            options.insert_if_absent({"ucxx_reach": "one-host"})
        memory = host_memory_share(self.ranks_on_host, self.memory_limit)
        if memory is not None:
            options.insert_if_absent({"memory_limit": str(memory)})
        return options


class _ContextOfWorker(WorkerPlugin):  # type: ignore[misc]
    """A worker's context, and the thread that joins it to the others: joining would stop the worker's event loop."""

    name = _PLUGIN

    def __init__(self) -> None:
        self.context: WorkerContext | None = None
        self._lock = threading.Lock()
        self._pool = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="rapidsmpf-bootstrap")
        self._comm: Any = None
        self._statistics: Any = None

    def setup(self, worker: Worker) -> None:
        """Let the scheduler tell this worker which shuffles are over."""
        worker.stream_handlers[_DROP] = self._drop

    async def teardown(self, worker: Worker) -> None:
        """Leave: the others' shuffles fail, instead of waiting."""
        with self._lock:
            context, self.context, self._comm = self.context, None, None
        if context is not None and context.comm is not None and context.shufflers:
            context.comm.abort(f"its Dask worker {worker.address} was closed")
        if context is not None and context.statistics is not None and _prints_statistics(context.options):
            print(
                f"Statistics of the Dask worker {worker.address}:\n{context.statistics.report()}", flush=True
            )
        await asyncio.to_thread(self._pool.shutdown)

    def _drop(self, stage: str) -> None:
        context = self.context
        if context is not None:
            drop_shuffle(context, stage)

    def get(self) -> WorkerContext:
        """Return the context; one of a worker alone if the cluster was not bootstrapped."""
        with self._lock:
            if self.context is None:
                self.context = make_context(_of_worker(Options()), None)
            return self.context

    async def run(self, work: Any) -> Any:
        """Run ``work`` on the thread."""
        return await asyncio.wrap_future(self._pool.submit(work))

    def make_root(self, join: _Join) -> bytes:
        """Become rank 0, and return the address for the others."""
        return ucxx.get_root_ucxx_address(self._connect(join, None))

    def join(self, join: _Join, root: bytes) -> int:
        """Become a rank, once all have called this."""
        if self._comm is None:
            self._connect(join, root)
        comm = self._comm
        ucxx.barrier(comm, timeout=_JOIN_SECONDS)
        context = make_context(join.filled_options(), comm, statistics=self._statistics)
        with self._lock:
            self.context = context
        return int(comm.rank)

    def _connect(self, join: _Join, root: bytes | None) -> Any:
        options = join.filled_options()
        self._statistics = Statistics.from_options(None, options)
        self._comm = ucxx.new_communicator(join.nranks, None, root, options, ProgressThread(self._statistics))
        return self._comm

    def forget(self) -> None:
        """Leave what was joined."""
        with self._lock:
            self.context = self._comm = self._statistics = None


def _plugin_of(worker: Worker) -> _ContextOfWorker:
    """Return a worker's plugin, which is made if need be; from any thread."""
    plugin = worker.plugins.get(_PLUGIN)
    if plugin is None:
        new = _ContextOfWorker()
        plugin = worker.plugins.setdefault(_PLUGIN, new)
        if plugin is new:
            new.setup(worker)
    assert isinstance(plugin, _ContextOfWorker)
    return plugin


async def _describe(dask_worker: Worker) -> tuple[tuple[str, ...], int | None]:
    plugin = _plugin_of(dask_worker)
    await plugin.run(plugin.forget)
    return memory_domain(), getattr(dask_worker.memory_manager, "memory_limit", None)


async def _make_root(join: _Join, dask_worker: Worker) -> bytes:
    plugin = _plugin_of(dask_worker)
    return await plugin.run(functools.partial(plugin.make_root, join))  # type: ignore[no-any-return]


async def _join(join: _Join, root: bytes, dask_worker: Worker) -> int:
    plugin = _plugin_of(dask_worker)
    return await plugin.run(functools.partial(plugin.join, join, root))  # type: ignore[no-any-return]


async def _forget(dask_worker: Worker) -> None:
    _plugin_of(dask_worker).forget()


def get_worker_context(worker: Worker | None = None) -> WorkerContext:
    """Return the context of a Dask worker; if it has none yet, one without a communicator is made.

    Parameters
    ----------
    worker
        The worker; None: the one that runs this task.
    """
    if worker is None:
        worker = distributed.get_worker()
    return _plugin_of(worker).get()


def _stage(stage: str) -> ShuffleTicket:
    return ShuffleTicket(stage_shuffle(get_worker_context()), stage)


# -- on the scheduler ----------------------------------------------------------------------------------------


class _RanksOfCluster(SchedulerPlugin):  # type: ignore[misc]
    """Knows which worker is which rank, sends the tasks of shuffles to their workers, and ends shuffles there."""

    name = _PLUGIN
    idempotent = True  # the first that a client registers stays

    def __init__(self) -> None:
        self.addresses: list[str] = []
        self._scheduler: Scheduler | None = None
        self._places: dict[str, list[str]] = {}  # by name of tasks, the worker of each index in turn

    async def start(self, scheduler: Scheduler) -> None:
        """Remember the scheduler."""
        self._scheduler = scheduler

    def add_shuffle(self, output: str) -> int:
        """Note the places of a shuffle's tasks, which are about to come; returns the number of ranks."""
        names = ShuffleNames(output)
        self._places[names.stage] = self.addresses[:1]
        self._places[names.finish] = self._places[names.output] = self.addresses
        return len(self.addresses)

    def update_graph(self, scheduler: Scheduler, *, tasks: Sequence[Any], **_: Any) -> None:
        """Send tasks to the workers that own what they are about."""
        restrictions = {}
        for key in tasks:
            name, index = key if isinstance(key, tuple) and len(key) == 2 else (key, 0)
            if (addresses := self._places.get(name)) and isinstance(index, int):
                restrictions[key] = [addresses[index % len(addresses)]]
        if restrictions:
            scheduler.set_restrictions(restrictions)

    def transition(self, key: Any, start: str, finish: str, *_: Any, **__: Any) -> None:
        """End a shuffle on the workers when no task needs its ticket any more.

        The message goes the way of tasks, so that it comes before those of the same shuffle that is run again.
        """
        if start != "memory" or finish == "memory" or key not in self._places or self._scheduler is None:
            return
        message = {"op": _DROP, "stage": key}
        living = [a for a in self.addresses if a in self._scheduler.workers]
        self._scheduler.send_all({}, {address: [message] for address in living})


def _plugin_of_scheduler(scheduler: Scheduler) -> _RanksOfCluster:
    plugin = scheduler.plugins[_PLUGIN]
    assert isinstance(plugin, _RanksOfCluster)
    return plugin


def _members(dask_scheduler: Scheduler) -> list[str]:
    return _plugin_of_scheduler(dask_scheduler).addresses


def _set_members(addresses: list[str], dask_scheduler: Scheduler) -> None:
    _plugin_of_scheduler(dask_scheduler).addresses = addresses


def _add_shuffle(output: str, dask_scheduler: Scheduler) -> int:
    return _plugin_of_scheduler(dask_scheduler).add_shuffle(output)


# -- on the client -------------------------------------------------------------------------------------------


def bootstrap_dask_cluster(client: Client, *, options: Options | None = None) -> None:
    """Connect all workers of a cluster, so that they can shuffle.

    Nothing happens if they are connected, also when several clients or threads call this at the same time; new
    options are ignored then. When workers have joined or left since, those that are there now are connected anew.

    Parameters
    ----------
    client
        A synchronous client.
    options
        The options of the workers; those that are not set come from each worker's environment.

    Raises
    ------
    RuntimeError
        If the cluster has no workers.
    TimeoutError
        If a worker does not come.
    ValueError
        If an option has a value that cannot be used.

    Warns
    -----
    OptionWithoutEffectWarning
        Once for each option that is set and has no effect in this version.
    """
    given = {} if options is None else given_texts(options, "given in options")
    warn_of_those_without_effect(given, lambda _: "given in options", stacklevel=2)
    calls = WorkerCalls(client)
    client.register_plugin(_RanksOfCluster(), name=_PLUGIN)
    with distributed.Lock("rapidsmpf-bootstrap", scheduler_rpc=client.scheduler, loop=client.loop):
        addresses = calls.addresses()
        if not addresses:
            raise RuntimeError(
                f"the Dask cluster at {client.scheduler.address} has no workers: start some, or wait for them with"
                " client.wait_for_workers(n)"
            )
        if sorted(client.run_on_scheduler(_members)) != addresses:
            client.run_on_scheduler(_set_members, [])
            members = _connect(calls, addresses, given)
            client.run_on_scheduler(_set_members, members)


def _connect(calls: WorkerCalls, addresses: list[str], options: dict[str, str]) -> list[str]:
    """Make the workers ranks; returns their addresses by rank."""
    found = raise_first(calls.each(_describe, dict.fromkeys(addresses, ())))
    one_host = len({domain for domain, _ in found.values()}) == 1
    per_host = Counter(domain[0] for domain, _ in found.values())
    joins: dict[str, tuple[_Join]] = {}
    for address, (domain, limit) in found.items():
        own = dict(options)
        if not one_host and (ipv4 := ipv4_of(address)) is not None:
            own.setdefault("coordinator_host", ipv4)
        joins[address] = (_Join(len(addresses), own, per_host[domain[0]], one_host, limit),)
    try:
        first = addresses[0]
        root = raise_first(calls.each(_make_root, {first: joins[first]}))[first]
        arguments = {address: (*join, root) for address, join in joins.items()}
        joined = raise_first(calls.client.sync(calls.until_failure, _join, arguments))
    except BaseException:
        calls.each(_forget, dict.fromkeys(addresses, ()))
        raise
    return sorted(joined, key=lambda address: int(joined[address]))


def rapidsmpf_shuffle_graph(
    input_name: str,
    output_name: str,
    partition_count_in: int,
    partition_count_out: int,
    integration: ShufflerIntegration[Any],
    options: Any,
    *other_keys: str | tuple[str, int],
    config_options: Options | None = None,
) -> dict[Any, Any]:
    """Return the tasks of a shuffle over the workers of the current client's cluster, which is bootstrapped if need be.

    Parameters
    ----------
    input_name
        The input partitions are the results of ``(input_name, 0)`` and so on.
    output_name
        The output partitions are to be the results of ``(output_name, 0)`` and so on.
    partition_count_in, partition_count_out
        Number of partitions of the input and of the output.
    integration
        How partitions go in and come out.
    options
        Handed to the integration.
    *other_keys
        Keys of tasks whose results ``integration.insert_partition`` gets as well.
    config_options
        As for :func:`bootstrap_dask_cluster`.

    Returns
    -------
    A Dask task graph. It is for the workers that are there now, and may be run several times.

    Raises
    ------
    ValueError
        If there is no client.
    """
    client = distributed.get_client()
    bootstrap_dask_cluster(client, options=config_options)
    nranks = client.run_on_scheduler(_add_shuffle, output_name)
    return shuffle_graph(
        ShuffleNames(output_name),
        input_name,
        partition_count_in,
        partition_count_out,
        nranks,
        integration,
        options,
        other_keys,
        get_context=get_worker_context,
        stage=_stage,
    )
