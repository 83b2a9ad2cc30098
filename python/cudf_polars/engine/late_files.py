"""What a query that has failed has written to a folder of its own is removed until nothing more comes.

The error of a query comes first. Threads of the library that writes the files, Polars or deltalake, may still begin to
write, make a folder again that was removed, or end an upload as if the rows until then were all.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from pathlib import Path

from cudf_polars.engine.delta_store import StoreFolder

__all__ = ["remove", "remove_late"]

_ROUND_SECONDS = 0.05
_QUIET_ROUNDS = 6
_PATIENCE_SECONDS = 5.0


def remove(folder: Path | StoreFolder) -> bool:
    """Remove a folder, if that is possible; return whether anything was there."""
    if isinstance(folder, StoreFolder):
        was_there = bool(folder.names())
        if was_there:
            folder.remove()
        return was_there
    was_there = folder.exists()
    shutil.rmtree(folder, ignore_errors=True)
    return was_there


def remove_late(folder: Path | StoreFolder) -> None:
    """Remove a folder, and return when nothing more has come there for a while. A store that does not answer has it."""
    with contextlib.suppress(Exception):
        end = time.monotonic() + _PATIENCE_SECONDS
        quiet = 0
        while quiet < _QUIET_ROUNDS and time.monotonic() < end:
            quiet = 0 if remove(folder) else quiet + 1
            time.sleep(_ROUND_SECONDS)
