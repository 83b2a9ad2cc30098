"""What happens on a rank, as its client sees it: results, errors, warnings and log records, with their own types.

A worker may run queries of several engines at the same time, on several threads, while the warnings machinery of
Python is the whole process's. So it is changed once, while any query runs, and what is said goes to the query whose
thread said it, or to all when it was said on another thread.
"""

from __future__ import annotations

import logging
import logging.handlers
import pickle
import queue
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import cloudpickle

from cudf_polars.execute.errors import hide_secrets
from cudf_polars.lower.user_code import is_internal, module_of, user_stacklevel

__all__ = [
    "RankReply",
    "emit",
    "portable",
    "remote_error",
    "run_captured",
    "running_function",
]

_LOGGERS = ("cudf_polars", "rapidsmpf")


class _RemoteTraceback(Exception):
    """The traceback of an error on a rank, as the cause of the error that the client raises."""

    def __str__(self) -> str:
        return "\n" + str(self.args[0])


@dataclass
class RankReply:
    """What a rank answers.

    Attributes
    ----------
    value
        The result.
    error
        What was raised instead.
    traceback
        The traceback of ``error`` as text.
    warnings
        Warnings, each as the instance.
    records
        Log records.
    """

    value: Any = None
    error: BaseException | None = None
    traceback: str = ""
    warnings: list[Warning] = field(default_factory=list)
    records: list[logging.LogRecord] = field(default_factory=list)


class _Capture(logging.Handler):
    """Collects for the queries that run now."""

    def __init__(self) -> None:
        super().__init__()
        self._guard = threading.Lock()
        self._replies: dict[int, RankReply] = {}  # by thread
        self._former: Any = None
        self._prepare = logging.handlers.QueueHandler(queue.SimpleQueue()).prepare

    @contextmanager
    def into(self, reply: RankReply) -> Iterator[None]:
        thread = threading.get_ident()
        with self._guard:
            if not self._replies:
                self._begin()
            self._replies[thread] = reply
        try:
            yield
        finally:
            with self._guard:
                del self._replies[thread]
                if not self._replies:
                    self._end()

    def _begin(self) -> None:
        self._former = warnings.catch_warnings()  # noqa: TID251 - once for all threads, see above
        self._former.__enter__()
        # Which are shown is for the filters of the client.
        warnings.simplefilter("always")
        warnings.showwarning = self._show
        for name in _LOGGERS:
            logging.getLogger(name).addHandler(self)

    def _end(self) -> None:
        for name in _LOGGERS:
            logging.getLogger(name).removeHandler(self)
        self._former.__exit__(None, None, None)

    def _readers(self) -> list[RankReply]:
        with self._guard:
            mine = self._replies.get(threading.get_ident())
            return list(self._replies.values()) if mine is None else [mine]

    def _show(self, message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        instance = message if isinstance(message, Warning) else category(message)
        for reply in self._readers():
            reply.warnings.append(instance)

    def emit(self, record: logging.LogRecord) -> None:
        prepared = self._prepare(record)
        for reply in self._readers():
            reply.records.append(prepared)


_capture = _Capture()


def run_captured(work: Callable[[], Any]) -> bytes:
    """Run ``work`` and return its :class:`RankReply`, pickled; raises nothing.

    What cannot be pickled is replaced by its text.
    """
    reply = RankReply()
    with _capture.into(reply):
        try:
            reply.value = work()
        except BaseException as error:
            hide_secrets(error)
            reply.traceback = "".join(traceback.format_exception(error))
            reply.error = portable(error)  # which has no traceback any more
    reply.warnings = [portable(warning) for warning in reply.warnings]
    return cloudpickle.dumps(reply)  # type: ignore[no-any-return]


def portable(error: Any) -> Any:
    """Return ``error`` if it can travel, else one with its text; in either case without its traceback."""
    error.__traceback__ = error.__cause__ = error.__context__ = None
    try:
        copy = pickle.loads(cloudpickle.dumps(error))
        if type(copy) is type(error) and str(copy) == str(error):
            return error
    except Exception:  # whatever the methods of a user's class raise
        pass
    text = f"{type(error).__name__}: {error}"
    return UserWarning(text) if isinstance(error, Warning) else RuntimeError(text)


def emit(replies: Iterable[tuple[str, RankReply]]) -> None:
    """Let the client say what its ranks have said: each warning once, and log records with the rank's name.

    Parameters
    ----------
    replies
        Names of the ranks and their replies.
    """
    replies = list(replies)
    places: dict[tuple[type[Warning], str], tuple[Warning, list[str]]] = {}
    for name, reply in replies:
        for warning in reply.warnings:
            names = places.setdefault((type(warning), str(warning)), (warning, []))[1]
            if name not in names:
                names.append(name)
        for record in reply.records:
            logger = logging.getLogger(record.name)
            if logger.isEnabledFor(record.levelno):
                record.msg = f"{name}: {record.msg}"
                logger.handle(record)
    for (category, text), (warning, names) in places.items():
        if len(names) < len(replies):
            warning = _named(warning, category, f"{text} (on {', '.join(names)})")
        warnings.warn(warning, stacklevel=user_stacklevel())


def running_function() -> str:
    """Return the function of a user's that Polars runs on some thread of this process; "" when there is none."""
    for frame in sys._current_frames().values():
        deeper: list[FrameType] = []
        outer: FrameType | None = frame
        while outer is not None and not module_of(outer).startswith("polars."):
            deeper.append(outer)
            outer = outer.f_back
        # From the inside, the last before Polars is the function that Polars has called.
        if outer is not None and deeper and not is_internal(deeper[-1]):
            code = deeper[-1].f_code
            return f"{code.co_qualname} ({code.co_filename}:{deeper[-1].f_lineno})"
    return ""


def _named(warning: Warning, category: type[Warning], text: str) -> Warning:
    try:
        return category(text)
    except Exception:  # a class with arguments of its own
        return warning


def remote_error(name: str, reply: RankReply) -> BaseException:
    """Return the error of a reply, with the rank's name and traceback."""
    error = reply.error
    assert error is not None
    error.add_note(f"Raised on {name}.")
    error.__cause__ = _RemoteTraceback(reply.traceback)
    return error
