"""What the integrations share: a worker's resources, and shuffles as tasks of a graph.

A shuffle of a task graph is one ``Shuffler`` on each worker. Tasks insert the partitions of a collection into that of
the worker they happen to run on, and extract the new partitions on the workers that own them; how a partition becomes
chunks and chunks a partition is for a :class:`ShufflerIntegration`.
"""

from __future__ import annotations

import itertools
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

from rapidsmpf.communicator.communicator import Communicator
from rapidsmpf.config import Options, get_environment_variables
from rapidsmpf.given_options import environment_texts, given_texts
from rapidsmpf.memory.buffer_resource import BufferResource
from rapidsmpf.memory.spill_collection import SpillCollection
from rapidsmpf.shuffler import Shuffler
from rapidsmpf.statistics import Statistics
from rapidsmpf.utils.system_info import get_device_memory, get_device_name, trim_host_memory

__all__ = [
    "ShuffleNames",
    "ShuffleTicket",
    "ShufflerIntegration",
    "WorkerContext",
    "current_context",
    "drop_shuffle",
    "extract_partition",
    "finish_inserting",
    "host_memory_share",
    "insert_partition",
    "make_context",
    "memory_domain",
    "shuffle_graph",
    "stage_shuffle",
    "with_environment",
]

DataFrameT = TypeVar("DataFrameT")

# Spilled after what waits in shuffles, which is cheaper to bring back.
_SPILL_PRIORITY = -10


@dataclass
class WorkerContext:
    """What a worker needs to shuffle.

    Attributes
    ----------
    br
        The worker's memory.
    statistics
        Where what happens is recorded.
    comm
        All workers; None if there is only this one, and it takes part in no shuffle yet.
    spill_collection
        Objects of other libraries that can be spilled.
    shufflers
        The shuffles that are under way, by id.
    options
        The options.
    lock
        To be held while using what may change, such as ``shufflers``.
    """

    br: BufferResource
    statistics: Statistics | None
    comm: Communicator | None = None
    spill_collection: SpillCollection = field(default_factory=SpillCollection)
    shufflers: dict[int, Shuffler] = field(default_factory=dict)
    options: Options = field(default_factory=Options)
    lock: threading.RLock = field(default_factory=threading.RLock, init=False, repr=False, compare=False)
    # The shuffles under way by the keys of their first tasks, by which schedulers know them.
    _stages: dict[str, int] = field(default_factory=dict, init=False, repr=False, compare=False)
    _shuffle_ids: Iterator[int] = field(
        default_factory=lambda: itertools.count(1), init=False, repr=False, compare=False
    )

    def get_statistics(self) -> dict[str, dict[str, int | float]]:
        """Return the statistics of all shuffles of this worker.

        Returns
        -------
        By name, ``"count"``, how often it was recorded, and ``"value"``, the sum; nothing without statistics.
        """
        if self.statistics is None:
            return {}
        stats = {name: self.statistics.get_stat(name) for name in self.statistics.list_stat_names()}
        return {name: {"count": stat["count"], "value": stat["value"]} for name, stat in stats.items()}


@runtime_checkable
class ShufflerIntegration(Protocol[DataFrameT]):
    """How partitions of a kind of data frame go into a shuffle and come out: on a worker, inside a task."""

    @classmethod
    def insert_partition(
        cls,
        df: DataFrameT,
        partition_id: int,
        partition_count: int,
        shuffler: Shuffler,
        options: Any,
        *other: Any,
    ) -> None:
        """Cut a partition into chunks and insert them.

        Parameters
        ----------
        df
            The partition.
        partition_id
            Its number in the input.
        partition_count
            How many partitions the shuffle gives.
        shuffler
            Where to insert.
        options
            As given to ``rapidsmpf_shuffle_graph``.
        *other
            The results of ``other_keys``.
        """

    @classmethod
    def extract_partition(cls, partition_id: int, shuffler: Shuffler, options: Any) -> DataFrameT:
        """Return an output partition.

        Parameters
        ----------
        partition_id
            Its number in the output; all its chunks have come.
        shuffler
            Where to extract.
        options
            As given to ``rapidsmpf_shuffle_graph``.
        """


_current: ContextVar[WorkerContext] = ContextVar("rapidsmpf_worker_context")


def current_context() -> WorkerContext:
    """Return the context of the worker whose task calls this, inside the methods of an integration.

    Raises
    ------
    RuntimeError
        Elsewhere.
    """
    context = _current.get(None)
    if context is None:
        raise RuntimeError(
            "there is no worker context here: current_context() is for insert_partition() and extract_partition()"
        )
    return context


@contextmanager
def _within(context: WorkerContext) -> Iterator[None]:
    token = _current.set(context)
    try:
        yield
    finally:
        _current.reset(token)


def make_context(
    options: Options, comm: Communicator | None, *, statistics: Statistics | None = None
) -> WorkerContext:
    """Return a worker's context, whose memory is as the options say.

    Parameters
    ----------
    options
        The environment's variables fill what is not set.
    comm
        All workers, or None.
    statistics
        Where to record; None: as the option ``statistics`` says.
    """
    options = with_environment(options)
    br = BufferResource.from_options(None, options, statistics=statistics)
    context = WorkerContext(br=br, statistics=br.statistics, comm=comm, options=options)
    br.spill_manager.add_spill_function(context.spill_collection.spill, priority=_SPILL_PRIORITY)
    return context


def host_memory_share(ranks_on_host: int, limit: int | None) -> int | None:
    """Return how many bytes of host memory a rank may use, for the option ``memory_limit``.

    Parameters
    ----------
    ranks_on_host
        On a CPU, the ranks of a machine share what it, or this process's control group, has.
    limit
        What the worker may use at most, or None.
    """
    share = get_device_memory() // ranks_on_host if get_device_name() == "cpu" else None
    given = [value for value in (share, limit) if value]
    return min(given) if given else None


def memory_domain() -> tuple[str, ...]:
    """Return a value that is equal in processes that can share memory, and so need no network between them.

    The same machine alone does not do: containers on it may have a ``/dev/shm`` and process numbers of their own.
    """
    own = Path("/proc/self/ns")
    shared_memory = os.stat("/dev/shm")
    return (
        socket.gethostname(),
        Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
        f"{shared_memory.st_dev}:{shared_memory.st_ino}",
        *(os.readlink(own / name) for name in ("pid", "ipc", "net")),
    )


def with_environment(options: Options) -> Options:
    """Return options that the environment's variables fill.

    Raises
    ------
    TypeError
        If an option is almost one that exists.
    ValueError
        If a value cannot be used.
    """
    filled = Options(given_texts(options, "given in options"))
    environment_texts()  # checks them
    filled.insert_if_absent(get_environment_variables())
    return filled


@dataclass
class ShuffleTicket:
    """A shuffle that is under way: the result of its first task, needed as long as the shuffle is.

    Attributes
    ----------
    shuffle_id
        The operation's id on the communicator; each run of a graph has its own.
    stage
        The key of that task.
    """

    shuffle_id: int
    stage: str


# -- the phases of a shuffle, on a worker --------------------------------------------------------------------


def stage_shuffle(context: WorkerContext) -> int:
    """Return the id of a new shuffle; called on one worker, always the same."""
    with context.lock:
        return next(context._shuffle_ids)


def _shuffler(context: WorkerContext, ticket: ShuffleTicket, partition_count: int) -> Shuffler:
    shuffle_id = ticket.shuffle_id
    with context.lock:
        context._stages[ticket.stage] = shuffle_id
        shuffler = context.shufflers.get(shuffle_id)
        if shuffler is None:
            if context.comm is None:
                raise RuntimeError("this worker is not connected to the others: bootstrap the cluster first")
            shuffler = Shuffler(context.comm, shuffle_id, partition_count, context.br)
            context.shufflers[shuffle_id] = shuffler
        return shuffler


def insert_partition(
    context: WorkerContext,
    ticket: ShuffleTicket,
    integration: ShufflerIntegration[Any],
    df: Any,
    partition_id: int,
    partition_count: int,
    options: Any,
    *other: Any,
) -> None:
    """Insert one partition of the input."""
    shuffler = _shuffler(context, ticket, partition_count)
    with _within(context):
        integration.insert_partition(df, partition_id, partition_count, shuffler, options, *other)


def finish_inserting(context: WorkerContext, ticket: ShuffleTicket, partition_count: int) -> None:
    """Tell the other workers that this one inserts nothing more; each worker has to do so, even one without input."""
    _shuffler(context, ticket, partition_count).insert_finished()
    trim_host_memory()


def extract_partition(
    context: WorkerContext,
    ticket: ShuffleTicket,
    integration: ShufflerIntegration[DataFrameT],
    partition_id: int,
    partition_count: int,
    options: Any,
) -> DataFrameT:
    """Return one partition of the output, on the worker that owns it."""
    shuffler = _shuffler(context, ticket, partition_count)
    shuffler.wait_on(partition_id)
    with _within(context):
        frame = integration.extract_partition(partition_id, shuffler, options)
    # The partition's chunks are free now, and too small for another partition: kept, they would add up to the result's
    # size.
    trim_host_memory()
    return frame


def drop_shuffle(context: WorkerContext, stage: str) -> None:
    """Forget the shuffle that this task began, with what nobody has extracted."""
    with context.lock:
        shuffler = context.shufflers.pop(context._stages.pop(stage, 0), None)
    del shuffler  # outside of the lock: it may have much to free
    trim_host_memory()


# -- the graph -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ShuffleNames:
    """The keys of a shuffle's tasks.

    Attributes
    ----------
    output
        Name of the extraction tasks, which are ``(output, partition)``.
    """

    output: str

    @property
    def stage(self) -> str:
        """The one task that begins the shuffle; its result, the shuffle's id, lives as long as that."""
        return f"rmpf-stage-{self.output}"

    @property
    def insert(self) -> str:
        """Name of the insertion tasks, one for each partition of the input."""
        return f"rmpf-insert-{self.output}"

    @property
    def inserted(self) -> str:
        """The first global barrier: everything is inserted."""
        return f"rmpf-inserted-{self.output}"

    @property
    def finish(self) -> str:
        """Name of the worker barriers, one for each worker, by rank."""
        return f"rmpf-finish-{self.output}"

    @property
    def finished(self) -> str:
        """The second global barrier: every worker has said so."""
        return f"rmpf-finished-{self.output}"


def _barrier(_: Any) -> None:
    """Run when everything that it depends on has."""


def shuffle_graph(
    names: ShuffleNames,
    input_name: str,
    partition_count_in: int,
    partition_count_out: int,
    nranks: int,
    integration: ShufflerIntegration[Any],
    options: Any,
    other_keys: tuple[Any, ...],
    *,
    get_context: Callable[[], WorkerContext],
    stage: Callable[[str], ShuffleTicket],
) -> dict[Any, Any]:
    """Return the tasks of a shuffle.

    Parameters
    ----------
    names
        Keys of the tasks.
    input_name
        Input partitions are the results of ``(input_name, partition)``.
    partition_count_in, partition_count_out
        Number of partitions.
    nranks
        Number of workers.
    integration, options, other_keys
        As for ``rapidsmpf_shuffle_graph``.
    get_context
        Returns the context of the worker that calls it.
    stage
        Begins a shuffle, given the key of its first task, and returns its ticket.

    Raises
    ------
    TypeError
        If the integration lacks a method.
    ValueError
        If there are no partitions.
    """
    if not isinstance(integration, ShufflerIntegration):
        raise TypeError(
            f"{integration!r} is no shuffler integration: it needs insert_partition() and extract_partition()"
        )
    if partition_count_in < 1 or partition_count_out < 1:
        raise ValueError(
            f"a shuffle has at least one partition on either side, not {partition_count_in} and {partition_count_out}"
        )
    # Only keys stand in the tasks by themselves: what else looks like a key must not be taken for one.
    shuffle = _Shuffle(get_context, integration, partition_count_out, options)
    graph: dict[Any, Any] = {names.stage: (partial(stage, names.stage),)}
    for i in range(partition_count_in):
        insert = partial(shuffle.insert, i)
        graph[(names.insert, i)] = (insert, names.stage, (input_name, i), *other_keys)
    graph[names.inserted] = (_barrier, [(names.insert, i) for i in range(partition_count_in)])
    for rank in range(nranks):
        graph[(names.finish, rank)] = (shuffle.finish, names.stage, names.inserted)
    graph[names.finished] = (_barrier, [(names.finish, rank) for rank in range(nranks)])
    for i in range(partition_count_out):
        graph[(names.output, i)] = (partial(shuffle.extract, i), names.stage, names.finished)
    return graph


@dataclass(frozen=True)
class _Shuffle:
    """What the tasks of a shuffle have in common."""

    get_context: Callable[[], WorkerContext]
    integration: Any
    partition_count: int
    options: Any

    def insert(self, partition_id: int, ticket: ShuffleTicket, df: Any, *other: Any) -> None:
        insert_partition(
            self.get_context(),
            ticket,
            self.integration,
            df,
            partition_id,
            self.partition_count,
            self.options,
            *other,
        )

    def finish(self, ticket: ShuffleTicket, _: None) -> None:
        finish_inserting(self.get_context(), ticket, self.partition_count)

    def extract(self, partition_id: int, ticket: ShuffleTicket, _: None) -> Any:
        return extract_partition(
            self.get_context(), ticket, self.integration, partition_id, self.partition_count, self.options
        )
