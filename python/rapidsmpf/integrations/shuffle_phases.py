"""The phases of a shuffle on a worker: begin, insert, finish, extract, drop.

A shuffle of a task graph is one ``Shuffler`` on each worker. Tasks insert the partitions of a collection into that of
the worker they happen to run on, and extract the new partitions on the workers that own them; how a partition becomes
chunks and chunks a partition is for a :class:`ShufflerIntegration`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, runtime_checkable

from rapidsmpf.integrations.context import WorkerContext, as_current
from rapidsmpf.shuffler import Shuffler
from rapidsmpf.utils.system_info import trim_host_memory

__all__ = [
    "ShuffleTicket",
    "ShufflerIntegration",
    "drop_shuffle",
    "extract_partition",
    "finish_inserting",
    "insert_partition",
    "stage_shuffle",
]

DataFrameT = TypeVar("DataFrameT")


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
        """Split a partition into chunks and insert them.

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
    with as_current(context):
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
    with as_current(context):
        frame = integration.extract_partition(partition_id, shuffler, options)
    # The partition's chunks are free now, and too small for another partition: kept, they would add up to the result's
    # size.
    trim_host_memory()
    return frame


def drop_shuffle(context: WorkerContext, stage: str) -> None:
    """Forget the shuffle that this task began, with what was not extracted."""
    with context.lock:
        shuffler = context.shufflers.pop(context._stages.pop(stage, 0), None)
    del shuffler  # outside of the lock: it may have much to free
    trim_host_memory()
