"""One query of an engine at a time: who has the turn, who waits for it, and what keeps them waiting.

A query may call functions of the user, on threads that belong to Polars. Such a function that uses the engine of its
own query would wait for the end of the query, which waits for the function. Where the thread is the query's own, that
is certain, and an error at once. Which query a thread of Polars works for cannot be known (context variables do not
come along, and all queries share its threads), so on these the wait is bounded: another query, one that Polars runs by
itself, say, may have its turn until then.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

__all__ = ["QueryCall", "QueryCancelled", "QueryQueue"]

INNER_WAIT = 10.0
"""Seconds that a function of the user waits for its turn."""
FIRST_WARNING = 60.0
"""Seconds after which who waits is told why; then after twice as many, and so on."""
FIRST_WARNING_OF_CANCELLED = 5.0
"""The same for who waits for a query that was cancelled."""

_NOT_THE_USER = (
    sysconfig.get_path("stdlib") + os.sep,
    f"{os.sep}polars{os.sep}",
    f"{os.sep}cudf_polars{os.sep}",
)


class QueryCancelled(RuntimeError):
    """A query was cancelled; its caller has gone on."""


class QueryCall:
    """A call of an engine that its caller may cancel from another thread.

    Parameters
    ----------
    what
        What was called, for messages.
    """

    def __init__(self, what: str) -> None:
        self.what = what
        self._lock = threading.Lock()
        self._cancelled = False
        self._ended = False
        self._on_cancel: Callable[[], None] | None = None

    @property
    def cancelled(self) -> bool:
        """Whether it was cancelled."""
        return self._cancelled

    def cancel(self) -> None:
        """Cancel it, wherever it is; nothing happens when it has ended. Any thread may call this."""
        with self._lock:
            if self._cancelled or self._ended:
                return
            self._cancelled = True
            on_cancel = self._on_cancel
        if on_cancel is not None:
            on_cancel()

    def on_cancel(self, function: Callable[[], None] | None) -> None:
        """Have ``function`` called when this is cancelled: at once if it is already. None: nothing."""
        with self._lock:
            self._on_cancel = function
            cancelled = self._cancelled
        if cancelled and function is not None:
            function()

    def end(self) -> None:
        """Note that there is nothing left to cancel."""
        with self._lock:
            self._ended = True
            self._on_cancel = None


class _Turn:
    def __init__(self, call: QueryCall, thread: int) -> None:
        self.call = call
        self.thread = thread
        self.since = time.monotonic()


class QueryQueue:
    """The turns of an engine's queries: in the order in which they are asked for.

    Parameters
    ----------
    engine
        The engine, as messages call it.
    """

    def __init__(self, engine: str) -> None:
        self._engine = engine
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._queue: list[QueryCall] = []
        self._turn: _Turn | None = None
        self._left: list[_Turn] = []

    def check_process(self) -> None:
        """Raise RuntimeError in a fork of the process that made the engine: it has none of the engine's threads."""
        if os.getpid() != self._pid:
            raise RuntimeError(
                f"this {self._engine} belongs to process {self._pid}, of which this process {os.getpid()} is a fork: "
                "threads and connections do not come along. Make an engine in each process, or start processes with "
                "multiprocessing's 'spawn'."
            )

    @property
    def is_fork(self) -> bool:
        """Whether this is a fork of the process that made the engine."""
        return os.getpid() != self._pid

    def enqueue(self, call: QueryCall) -> None:
        """Put a call into the line before the thread runs that takes the turn for it."""
        with self._changed:
            self._queue.append(call)

    def dequeue(self, call: QueryCall) -> None:
        """Take a call out of the line if it is still there."""
        with self._changed:
            if call in self._queue:
                self._queue.remove(call)
                self._changed.notify_all()

    @contextmanager
    def take(self, call: QueryCall) -> Iterator[None]:
        """Wait for the turn, and have it while the block runs.

        Raises
        ------
        RuntimeError
            If the query that has the turn waits for the caller, as far as one can know.
        """
        self.check_process()
        with self._changed:
            if call not in self._queue:
                self._queue.append(call)
            try:
                self._wait(lambda: self._before(call), call)
            finally:
                self._queue.remove(call)
                self._changed.notify_all()
            turn = self._turn = _Turn(call, threading.get_ident())
        try:
            yield
        finally:
            with self._changed:
                if self._turn is turn:
                    self._turn = None
                else:
                    self._left.remove(turn)
                self._changed.notify_all()

    def give_up(self, call: QueryCall) -> None:
        """Let others have the turn of a call that still runs, and which cannot disturb them."""
        with self._changed:
            if self._turn is not None and self._turn.call is call:
                self._left.append(self._turn)
                self._turn = None
                self._changed.notify_all()

    def wait_for_all(self, call: QueryCall) -> None:
        """Wait for those that gave up their turn; the caller has it."""
        with self._changed:
            self._wait(lambda: self._left[0] if self._left else None, call)

    def _before(self, call: QueryCall) -> _Turn | None:
        """Return the turn before that of a call in the line."""
        if self._turn is not None or self._queue[0] is call:
            return self._turn
        return _Turn(self._queue[0], 0)  # its thread is about to take it

    def _wait(self, blocker: Callable[[], _Turn | None], call: QueryCall) -> None:
        """Wait until nothing blocks; the lock is held."""
        begin = time.monotonic()
        told = None
        on_foreign_thread = isinstance(threading.current_thread(), threading._DummyThread)
        while (turn := blocker()) is not None:
            if turn.thread == threading.get_ident():
                raise RuntimeError(
                    f"{call.what} was called inside {turn.call.what} of the same {self._engine}, which waits for it: "
                    "an engine runs one query at a time. Collect the inner query before, with another engine, or with "
                    'engine="streaming".'
                )
            waited = time.monotonic() - begin
            if on_foreign_thread and waited >= INNER_WAIT:
                raise RuntimeError(
                    f"{call.what} was called on a thread of Polars, by a function that a query runs, and waited "
                    f"{waited:.0f} s for its turn: {turn.call.what} of the same {self._engine} still runs and probably "
                    "waits for this very function. An engine runs one query at a time: collect the inner query before, "
                    'with another engine, or with engine="streaming".'
                )
            first = FIRST_WARNING_OF_CANCELLED if turn.call.cancelled else FIRST_WARNING
            due = max(first, 2 * (told or 0.0))
            if waited >= due:
                told = waited
                self._warn(turn, call, waited)
                continue
            left = due - waited
            self._changed.wait(min(left, INNER_WAIT - waited) if on_foreign_thread else left)

    def _warn(self, turn: _Turn, call: QueryCall, waited: float) -> None:
        state = "was cancelled and " if turn.call.cancelled else ""
        text = (
            f"{call.what} has waited {waited:.0f} s for its turn: {turn.call.what} of the same {self._engine}, begun "
            f"{time.monotonic() - turn.since:.0f} s ago, {state}still runs {_where(turn.thread)}"
        )
        # A filter may make an error of it, or show it: nobody else has to wait meanwhile.
        self._changed.release()
        try:
            warnings.warn(text, RuntimeWarning, stacklevel=2)
        finally:
            self._changed.acquire()


def _where(thread: int) -> str:
    """Say where a query is: in functions of the user, as far as threads of Polars run some, or in Polars."""
    known = {t.ident for t in threading.enumerate() if not isinstance(t, threading._DummyThread)}
    frames = sys._current_frames()
    places = [
        place for ident, frame in frames.items() if ident not in known and (place := _user_place(frame))
    ]
    if not places and (frame := frames.get(thread)):
        return f"in {_user_place(frame) or _place(frame)}, or in what that has called"
    return "in " + " and ".join(places) if places else "outside Python"


def _user_place(frame: FrameType | None) -> str | None:
    """Return the innermost function that belongs to no library."""
    while frame is not None:
        file = frame.f_code.co_filename
        if "site-packages" not in file and not any(part in file for part in _NOT_THE_USER):
            return _place(frame)
        frame = frame.f_back
    return None


def _place(frame: FrameType) -> str:
    code = frame.f_code
    return f"{code.co_name} ({Path(code.co_filename).name}:{frame.f_lineno})"
