"""A sink to a folder of an object store: new objects by new names, then the old ones go.

A store changes one object at a time. So the parts of a sink have names that no other sink has; when all ranks have
written theirs, rank 0 deletes the parts of former sinks. Who reads the folder before that sees old and new parts; a
sink that fails leaves the old ones, and so does one that is killed, with what it had written.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Mapping
from typing import Any

from cudf_polars.engine.store_objects import delete_late_objects, delete_objects, list_objects
from cudf_polars.execute.transport import Transport
from cudf_polars.lower.byte_files import FileUnreadableError, open_store
from cudf_polars.plan.cloud import CloudAccess, access_of_options

__all__ = ["StoreParts"]


class StoreParts:
    """This rank's part of a folder in a store, and what former sinks left there.

    Parameters
    ----------
    url
        The folder's.
    prefix, extension
        How names of parts begin and end.
    transport
        Joins the ranks.
    options
        Polars' arguments of the sink, of which it takes how the store is reached.
    first_op
        Uses the transport's operations from here on.

    Raises
    ------
    NotImplementedError
        If the package obstore, which lists and deletes, is not installed, or cannot reach the store.
    FileExistsError
        If the folder holds other things than parts.
    """

    def __init__(
        self,
        url: str,
        prefix: str,
        extension: str,
        transport: Transport,
        options: Mapping[str, Any],
        first_op: int,
    ) -> None:
        self._transport, self._first_op = transport, first_op
        folder = url.rstrip("/")
        self._prefix, self._extension = f"{folder}/{prefix}{transport.rank:05d}", extension
        self.url = ""
        self._is_final = False
        self._access: CloudAccess | None = access_of_options(f"{self._prefix}.{extension}", options)
        self._stale: list[str] = []
        if transport.rank == 0:
            self._stale = self._former_parts(folder, prefix)

    def begin(self) -> None:
        """Agree with the other ranks on names; from then on, ``url`` is that of this rank's part."""
        mine = secrets.token_hex(6).encode()
        token = self._transport.allgather_bytes(mine, op=self._first_op)[0].decode()
        self.url = f"{self._prefix}.{token}.{self._extension}"

    def _store(self, url: str) -> tuple[Any, str]:
        try:
            return open_store(url, self._access)
        except FileUnreadableError as error:
            raise NotImplementedError(f"several ranks cannot sink to this folder: {error}") from None

    def _former_parts(self, folder: str, prefix: str) -> list[str]:
        store, key = self._store(f"{folder}/")
        inside = list_objects(store, key, folder)
        foreign = [path for path in inside if not path[len(key) :].startswith(prefix)]
        if foreign:
            raise FileExistsError(
                f"{folder} holds other files, for instance {min(foreign)!r}: sink to an empty folder"
            )
        return inside

    def commit(self, facts: bytes) -> list[bytes]:
        """Wait until all ranks have written; then the former parts go. Returns what each rank tells besides."""
        told = self._transport.allgather_bytes(facts, op=self._first_op + 1)
        self._is_final = True  # without some of the former parts, the new ones are all that there is
        if self._stale:
            folder = self.url.rpartition("/")[0]
            store, key = self._store(f"{folder}/")
            delete_objects(store, self._stale, key, folder, "former parts")
        self._transport.allgather_bytes(b"deleted", op=self._first_op + 2)
        return told

    def discard(self) -> None:
        """Remove this rank's part."""
        if not self.url or self._is_final:
            return
        with contextlib.suppress(Exception):
            folder = self.url.rpartition("/")[0]
            store, key = self._store(f"{folder}/")
            delete_late_objects(store, [f"{key}{self.url[len(folder) + 1 :]}"], key, folder)
