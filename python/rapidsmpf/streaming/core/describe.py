"""Looking at networks of actors while they run.

    print(describe(ctx))            # the networks of a context
    kill -USR1 <process>            # all networks of a process, to its standard error

:meth:`Context.describe` says what is shown. What actors did when is shown by a trace: give a :class:`NetworkTrace`, or
the path of a file, to ``run_actor_network(trace=...)``, and open the file at https://ui.perfetto.dev.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

from rapidsmpf.streaming.core.network import NetworkTrace

if TYPE_CHECKING:
    from rapidsmpf.streaming.core.context import Context

__all__ = ["NetworkTrace", "describe", "describe_on_signal", "running_in"]

_STANDARD_ERROR = 2

_lock = threading.Lock()
_running: list[Context] = []  # once for each network


def describe(ctx: Context | None = None, *, format: Literal["text", "dot"] = "text") -> str:
    """Return what networks do now; empty text when none runs. In any thread, at any time.

    Parameters
    ----------
    ctx
        Those of this context; None: those that ``run_actor_network`` runs anywhere in this process.
    format
        As for :meth:`Context.describe`.

    Raises
    ------
    ValueError
        If it is another format.
    """
    if ctx is not None:
        return ctx.describe(format)
    # Without the lock, which whoever was interrupted by a signal may hold: copying a list is one step.
    contexts = {id(each): each for each in list(_running)}
    return "".join(each.describe(format) for each in contexts.values())


def _print_description(signum: int, frame: Any) -> None:
    """Write the description of all networks to the standard error, whose buffers the interrupted code may be using.

    Parameters
    ----------
    signum, frame
        As signal handlers have them.
    """
    text = describe() or "no network of actors runs\n"
    os.write(_STANDARD_ERROR, text.encode())


def describe_on_signal(signum: int = signal.SIGUSR1) -> None:
    """Have a signal print the description of all networks to the standard error; only in the main thread.

    ``run_actor_network`` does so for SIGUSR1, when it runs in the main thread and no other code handles that signal.

    Parameters
    ----------
    signum
        The signal.

    Raises
    ------
    ValueError
        In another thread.
    """
    signal.signal(signum, _print_description)


@contextmanager
def running_in(ctx: Context) -> Generator[None]:
    """Have a network be described while it runs.

    Parameters
    ----------
    ctx
        Its context.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL:
        describe_on_signal()
    with _lock:
        _running.append(ctx)
    try:
        yield
    finally:
        with _lock:
            _running.remove(ctx)
