"""Which line of the user's own sources has called us: what warnings point to, and by what queries are named."""

from __future__ import annotations

import sys
from types import FrameType

__all__ = ["calling_place", "is_internal", "module_of", "user_stacklevel"]

_OURS = ("cudf_polars.", "polars.", "rapidsmpf.")
_THREADS = ("threading.", "concurrent.", "asyncio.", "contextlib.", "contextvars.", "functools.")


def user_stacklevel() -> int:
    """Return the ``stacklevel`` with which a warning of this function's caller points to the user's line.

    That is the innermost one which is neither ours nor Polars' nor Python's own between them. Where there is none,
    because the thread is ours, it is the line that warns.
    """
    frame: FrameType | None = sys._getframe(1)
    level = 1
    while frame is not None and is_internal(frame):
        frame, level = frame.f_back, level + 1
    return 1 if frame is None else level


def calling_place() -> str:
    """Return the file and line of the user's that has called us; "" when there is none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and is_internal(frame):
        frame = frame.f_back
    return "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


def is_internal(frame: FrameType) -> bool:
    """Whether a frame is ours, Polars', or one of Python's own that run us on a thread."""
    return f"{module_of(frame)}.".startswith(_OURS + _THREADS)


def module_of(frame: FrameType) -> str:
    """Return the name of the module whose code a frame runs."""
    return str(frame.f_globals.get("__name__", ""))
