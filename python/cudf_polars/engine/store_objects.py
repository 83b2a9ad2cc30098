"""Objects of a store by their names: listed, and deleted though some are gone already, or come only later."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from cudf_polars.lower.byte_files import kind_of_error, without_request

__all__ = ["delete_late_objects", "delete_objects", "list_objects"]

_ROUNDS = 10
_LATE_S = 3.0
"""How long Polars may take to end an upload. Other ranks wait meanwhile for the error of this one."""


def list_objects(store: Any, key: str, shown: str) -> list[str]:
    """Return the names of all objects in a folder.

    Parameters
    ----------
    store
        As the package obstore has it.
    key
        The folder's name there, with a slash at its end; "" for all there is.
    shown
        The folder's URL, for errors.

    Raises
    ------
    OSError
        If the store does not say. The message holds no secret.
    """
    import obstore

    with without_request(f"the folder {shown} cannot be listed"):
        pages = list(obstore.list(store, prefix=key.rstrip("/") or None))
    return [entry["path"] for page in pages for entry in page if entry["path"].startswith(key)]


def delete_objects(store: Any, names: Iterable[str], key: str, shown: str, what: str = "files") -> None:
    """Delete objects of a folder. Those that are gone already are no error.

    They are one to stores other than S3, which then leave objects that come after them. A name may be gone because
    another sink deletes what this one does, or because an answer was lost and the request was sent again.

    Parameters
    ----------
    store, key, shown
        As for :func:`list_objects`.
    names
        Names of the objects.
    what
        What they are, for errors.

    Raises
    ------
    OSError
        If some are still there. The message holds no secret.
    """
    import obstore

    left = set(names)
    kind = ""
    for _ in range(_ROUNDS):
        if not left:
            return
        try:
            obstore.delete(store, sorted(left))
        except FileNotFoundError as error:
            kind = kind_of_error(error)
            left.intersection_update(list_objects(store, key, shown))
        except Exception as error:  # of many kinds; their texts may hold the request
            raise OSError(f"{what} in {shown} cannot be deleted: {kind_of_error(error)}") from None
        else:
            return
    if left:
        raise OSError(f"{what} in {shown} cannot be deleted: {kind}")


def delete_late_objects(store: Any, names: Iterable[str], key: str, shown: str) -> None:
    """Delete what a query that has failed has written, or is about to write.

    Polars raises the query's error first. Then, on a thread of its own, it ends the uploads that it has begun as if the
    rows before the error were all, and says nothing of that. So this waits for each object, for some seconds.

    Parameters
    ----------
    store, names, key, shown
        As for :func:`delete_objects`.
    """
    left = set(names)
    pause, end = 0.01, time.monotonic() + _LATE_S
    while left:
        there = left.intersection(list_objects(store, key, shown))
        delete_objects(store, there, key, shown)
        left -= there
        if not left or time.monotonic() > end:
            return
        time.sleep(pause)
        pause = min(2 * pause, 0.5)
