"""Whether all tasks of an event loop wait for channels, so that only something outside the loop can wake it.

What a task waits for is followed through ``await``, :func:`asyncio.gather`, :func:`asyncio.wait` and
:class:`asyncio.TaskGroup`, down to operations on channels. What leads elsewhere (a queue, a lock, a thread, a timer)
may go on at any time: then nothing is said.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter
from collections.abc import Iterable
from typing import Any

from rapidsmpf.streaming.core.channel import ActorAccount, waiting_in
from rapidsmpf.streaming.core.network_loop import OWN_FILES

__all__ = ["waiting_operations"]


def waiting_operations(loop: asyncio.AbstractEventLoop) -> Counter[ActorAccount] | None:
    """Return how many operations each actor waits for; None if something else may make a task of the loop go on.

    To be called in the loop, from no task.

    Parameters
    ----------
    loop
        The loop, one of asyncio's own; of others nothing is known.
    """
    if not _is_idle(loop):
        return None
    operations = waiting_in(loop)
    tasks = asyncio.all_tasks(loop)
    reached: set[asyncio.Future[Any]] = set()
    found: Counter[ActorAccount] = Counter()
    for task in tasks:
        futures = [_awaited(task)]
        while futures:
            future = futures.pop()
            if future is None or future.done():
                return None
            if future in reached or future in tasks:
                continue
            reached.add(future)
            if future in operations:
                actor = operations[future]
                if actor is None:
                    return None
                found[actor] += 1
                continue
            parts = _parts_of(future, task)
            if parts is None:
                return None
            futures += parts
    return found


def _is_idle(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether nothing is to be done in a loop, now or at a later time.

    Parameters
    ----------
    loop
        The loop.
    """
    try:
        ready, timers, files = loop._ready, loop._scheduled, loop._selector.get_map()  # type: ignore[attr-defined]
    except AttributeError:
        return False
    return not ready and all(timer.cancelled() for timer in timers) and len(files) <= OWN_FILES


def _awaited(task: asyncio.Task[Any]) -> asyncio.Future[Any] | None:
    """Return the future that a task waits for; None if it is about to run.

    Parameters
    ----------
    task
        The task.
    """
    future: asyncio.Future[Any] | None = getattr(task, "_fut_waiter", None)
    return future


def _parts_of(
    future: asyncio.Future[Any], task: asyncio.Task[Any]
) -> Iterable[asyncio.Future[Any] | None] | None:
    """Return the futures that another one stands for, those that have not ended; None if that is not known.

    Parameters
    ----------
    future, task
        The future, and the task that waits for it.
    """
    children = getattr(future, "_children", None)
    if children is not None:  # of gather()
        return [each for each in children if not each.done()]
    names = _innermost_locals(task)
    if isinstance(group := names.get("self"), asyncio.TaskGroup):
        return [each for each in group._tasks if not each.done()]
    if names.get("waiter") is future and "fs" in names:  # of wait()
        return [each for each in names["fs"] if not each.done()]
    return None


def _innermost_locals(task: asyncio.Task[Any]) -> dict[str, Any]:
    """Return the variables of the coroutine that awaits a future for a task.

    Parameters
    ----------
    task
        The task.
    """
    coroutine: Any = task.get_coro()
    while inspect.iscoroutine(inner := getattr(coroutine, "cr_await", None)):
        coroutine = inner
    frame = getattr(coroutine, "cr_frame", None)
    return {} if frame is None else dict(frame.f_locals)
