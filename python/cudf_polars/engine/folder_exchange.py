"""Two folders change places at once: a reader finds the old files or the new ones, never some of both."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

__all__ = ["copy_form", "exchange", "files_below", "is_used_here", "link_tree"]

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


def exchange(one: Path, other: Path) -> bool:
    """Let two paths of one file system change places; False if the system, or this file system, cannot."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    paths = os.fsencode(one), os.fsencode(other)
    return bool(rename(_AT_FDCWD, paths[0], _AT_FDCWD, paths[1], ctypes.c_uint(_RENAME_EXCHANGE)) == 0)


def is_used_here(folder: Path) -> bool:
    """Say whether this process works in a folder, or below it: if another took its place, the process would be in none.

    Parameters
    ----------
    folder
        A path without links.
    """
    try:
        return Path(os.getcwd()).is_relative_to(folder)
    except OSError:
        return False  # it is in none already


def copy_form(folder: Path, copy: Path) -> bool:
    """Give a folder the owner, the group and the permissions of another, as far as this process may; False if not all.

    Files that are made in it then have the group that they would have in the other one.
    """
    theirs, ours = folder.stat(), copy.stat()
    if ours.st_gid != theirs.st_gid:
        with contextlib.suppress(OSError):
            os.chown(copy, -1, theirs.st_gid)
    if ours.st_uid != theirs.st_uid:
        with contextlib.suppress(OSError):
            os.chown(copy, theirs.st_uid, -1)
    try:
        shutil.copystat(folder, copy)
    except OSError:
        return False
    ours = copy.stat()
    return (ours.st_uid, ours.st_gid) == (theirs.st_uid, theirs.st_gid)


def _raise(error: OSError) -> None:
    raise error


def files_below(folder: Path) -> Iterator[Path]:
    """Yield the paths of all files below a folder, relative to it."""
    for path, _, names in os.walk(folder, onerror=_raise):
        for name in names:
            yield (Path(path) / name).relative_to(folder)


def link_tree(folder: Path, copy: Path) -> bool:
    """Make a new folder with the folders of another and links to its files.

    Returns
    -------
    False if it cannot be made: of links to other places it is unknown what they mean, not every file system has links,
    and folders may belong to others, or not be readable. What was made of it stays.
    """
    try:
        for path, folders, names in os.walk(folder, onerror=_raise):
            here = copy / Path(path).relative_to(folder)
            here.mkdir()
            if not copy_form(Path(path), here):
                return False
            for name in (*folders, *names):
                if os.path.islink(os.path.join(path, name)):
                    return False
            for name in names:
                os.link(os.path.join(path, name), here / name)
    except OSError:
        return False
    return True
