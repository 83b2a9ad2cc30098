"""Shuffles of task graphs that one process runs, such as by Dask's local schedulers: no cluster, no other worker."""

from __future__ import annotations

import threading
import weakref
from typing import Any

from rapidsmpf.communicator import single
from rapidsmpf.config import Options
from rapidsmpf.given_options import given_texts, warn_of_those_without_effect
from rapidsmpf.integrations.context import WorkerContext, make_context, with_environment
from rapidsmpf.integrations.shuffle_graph import ShuffleNames, shuffle_graph
from rapidsmpf.integrations.shuffle_phases import (
    ShufflerIntegration,
    ShuffleTicket,
    drop_shuffle,
    stage_shuffle,
)
from rapidsmpf.progress_thread import ProgressThread
from rapidsmpf.statistics import Statistics

__all__ = ["get_worker_context", "rapidsmpf_shuffle_graph", "setup_worker"]

_lock = threading.Lock()
_contexts: list[WorkerContext] = []  # one at most: the process is the worker


def setup_worker(options: Options | None = None) -> None:
    """Make this process a worker; nothing happens if it is one.

    Parameters
    ----------
    options
        The options; those that are not set come from the environment.

    Raises
    ------
    ValueError
        If an option has a value that cannot be used.

    Warns
    -----
    OptionWithoutEffectWarning
        Once for each option that is set and has no effect in this version.
    """
    given = {} if options is None else given_texts(options, "given in options")
    warn_of_those_without_effect(given, lambda _: "given in options", stacklevel=2)
    with _lock:
        if not _contexts:
            filled = with_environment(Options() if options is None else options)
            statistics = Statistics.from_options(None, filled)
            comm = single.new_communicator(filled, ProgressThread(statistics))
            _contexts.append(make_context(filled, comm, statistics=statistics))


def get_worker_context() -> WorkerContext:
    """Return the context of this process.

    Raises
    ------
    ValueError
        If there is none.

    See Also
    --------
    setup_worker : Makes it.
    """
    with _lock:
        if not _contexts:
            raise ValueError("this process has no worker context: call setup_worker() first")
        return _contexts[0]


def _stage(stage: str) -> ShuffleTicket:
    context = get_worker_context()
    ticket = ShuffleTicket(stage_shuffle(context), stage)
    # Schedulers inside one process keep a result as long as tasks need it.
    weakref.finalize(ticket, drop_shuffle, context, stage)
    return ticket


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
    """Return the tasks of a shuffle inside this process.

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
        As for :func:`setup_worker`, which is called.

    Returns
    -------
    A Dask task graph.
    """
    setup_worker(config_options)
    return shuffle_graph(
        ShuffleNames(output_name),
        input_name,
        partition_count_in,
        partition_count_out,
        1,
        integration,
        options,
        other_keys,
        get_context=get_worker_context,
        stage=_stage,
    )
