"""What tells the present contents of a file from earlier ones, so that what was read of it can be kept."""

from __future__ import annotations

import os

__all__ = ["file_version"]


def file_version(path: str) -> tuple[int, ...]:
    """Return a local file's device, inode, size in bytes and time of modification in ns; nothing if it is missing."""
    try:
        found = os.stat(path)
    except OSError:
        return ()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
