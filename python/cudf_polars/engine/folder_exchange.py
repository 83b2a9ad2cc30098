"""Two folders change places at once: a reader finds the old files or the new ones, never some of both."""

from __future__ import annotations

import ctypes
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

__all__ = ["exchange", "files_below", "link_tree"]

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


def exchange(one: Path, other: Path) -> bool:
    """Let two paths of one file system change places; False if the system, or this file system, cannot."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    paths = os.fsencode(one), os.fsencode(other)
    return bool(rename(_AT_FDCWD, paths[0], _AT_FDCWD, paths[1], ctypes.c_uint(_RENAME_EXCHANGE)) == 0)


def files_below(folder: Path) -> Iterator[Path]:
    """Yield the paths of all files below a folder, relative to it."""
    for path, _, names in os.walk(folder):
        for name in names:
            yield (Path(path) / name).relative_to(folder)


def link_tree(folder: Path, copy: Path) -> bool:
    """Make a new folder with the folders of another and links to its files.

    Returns
    -------
    False if it cannot be made: of links to other places nobody knows what they mean, and not every file system has
    links. What was made of it stays.
    """
    for path, folders, names in os.walk(folder):
        here = copy / Path(path).relative_to(folder)
        try:
            here.mkdir()
            shutil.copystat(path, here)
            for name in (*folders, *names):
                if os.path.islink(os.path.join(path, name)):
                    return False
            for name in names:
                os.link(os.path.join(path, name), here / name)
        except OSError:
            return False
    return True
