"""Ranks that are threads of this process, joined by the loopback communicator."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

from rapidsmpf.communicator import loopback
from rapidsmpf.communicator.communicator import Communicator

T = TypeVar("T")

__all__ = ["on_ranks"]


def on_ranks(nranks: int, work: Callable[[Communicator], T], **cluster: Any) -> list[T]:
    """Run ``work(comm)`` on every rank and return the results by rank.

    Parameters
    ----------
    nranks
        Number of ranks.
    work
        What a rank does, in a thread of its own. If it raises, the rank gives up, so that no other waits for it.
    cluster
        As for ``rapidsmpf.communicator.loopback.new_cluster``.

    Raises
    ------
    BaseException
        The error of the first rank (in time) that failed.
    """
    comms = loopback.new_cluster(nranks, **cluster)
    results: dict[int, T] = {}
    errors: list[BaseException] = []

    def run(comm: Communicator) -> None:
        try:
            results[comm.rank] = work(comm)
        except BaseException as error:
            errors.append(error)
            comm.abort(f"{type(error).__name__}: {error}")

    threads = [threading.Thread(target=run, args=(comm,)) for comm in comms]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return [results[rank] for rank in range(nranks)]
