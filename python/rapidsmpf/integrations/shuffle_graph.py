"""A shuffle as the tasks of a graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from rapidsmpf.integrations.context import WorkerContext
from rapidsmpf.integrations.shuffle_phases import (
    ShufflerIntegration,
    ShuffleTicket,
    extract_partition,
    finish_inserting,
    insert_partition,
)

__all__ = ["ShuffleNames", "shuffle_graph"]


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
