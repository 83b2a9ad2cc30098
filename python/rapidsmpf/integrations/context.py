"""A worker's resources: memory, statistics, and the communicator of all workers."""

from __future__ import annotations

import itertools
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path

from rapidsmpf.communicator.communicator import Communicator
from rapidsmpf.config import Options, get_environment_variables
from rapidsmpf.given_options import environment_texts, given_texts
from rapidsmpf.memory.buffer_resource import BufferResource
from rapidsmpf.memory.spill_collection import SpillCollection
from rapidsmpf.shuffler import Shuffler
from rapidsmpf.statistics import Statistics
from rapidsmpf.utils.system_info import get_device_memory, get_device_name

__all__ = [
    "WorkerContext",
    "as_current",
    "current_context",
    "host_memory_share",
    "make_context",
    "memory_domain",
    "with_environment",
]

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
def as_current(context: WorkerContext) -> Iterator[None]:
    """Make a context the one that :func:`current_context` returns."""
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
