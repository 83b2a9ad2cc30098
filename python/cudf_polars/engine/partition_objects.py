"""Sinks to ``pl.PartitionBy`` in an object store.

A store cannot move: names there have a rank, and a token that no other sink has. Files of the same names but for the
token are deleted when all ranks have written. Names that the user gives have none: rank 0 lets the store copy the files
to these.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from cudf_polars.engine.partition_sinks import (
    Partitioning,
    PartitionSink,
    Told,
    checked_name,
    copy_into,
    kept_files,
)
from cudf_polars.engine.store_objects import delete_late_objects, delete_objects, list_objects
from cudf_polars.execute.transport import Transport
from cudf_polars.lower.byte_files import FileUnreadableError, open_store, without_request
from cudf_polars.plan.cloud import CloudAccess, access_of_options, shown_path

__all__ = ["PartitionObjects"]

_COPIES_AT_ONCE = 16


class PartitionObjects(PartitionSink):
    """A sink to ``pl.PartitionBy`` in an object store.

    Parameters
    ----------
    url
        The base path.
    options
        Polars' arguments of the sink, of which it takes how the store is reached.
    """

    def __init__(
        self,
        url: str,
        parts: Partitioning,
        extension: str,
        transport: Transport,
        first_op: int,
        options: Mapping[str, Any],
    ) -> None:
        super().__init__(parts, extension, transport, first_op)
        self._url = url.rstrip("/")
        self._token = ""
        self._access: CloudAccess | None = access_of_options(f"{self._url}/x.{self._ending}", options)
        self._taken: set[tuple[str, int]] = set()
        self._is_final = False

    def check_access(self) -> None:
        """Ask the store for objects; raises OSError if it does not say."""
        store, base = self._store()
        list_objects(store, f"{base}.{secrets.token_hex(6)}/", self._url)

    def _begin(self) -> None:
        mine = secrets.token_hex(6).encode()
        self._token = self._transport.allgather_bytes(mine, op=self._first_op)[0].decode()

    def _base(self) -> str:
        return self._url

    def _new_name(self, folder: str, index: int) -> str:
        if self._parts.provider is not None:
            return f".{self._token}.tmp/{self._transport.rank:05d}-{len(self._files):08x}.{self._ending}"
        # Polars gives a null and the text that stands for it one folder.
        number = next(n for n in itertools.count(index) if (folder, n) not in self._taken)
        self._taken.add((folder, number))
        name = f"{self._transport.rank:05d}-{number:08x}.{self._token}.{self._ending}"
        return checked_name(f"{folder}/{name}" if folder else name)

    def _finish(self, told: Sequence[Told]) -> Mapping[str, str]:
        return self._finish_here(told) if self._parts.provider is None else self._finish_as_named(told)

    def _finish_as_named(self, told: Sequence[Told]) -> Mapping[str, str]:
        """Give the files the user's names; these replace files of the same names, one after the other."""
        placed = self._tell(lambda: self._copy_all(told), self._first_op + 2)
        self._delete([file.written for file in self._files])
        self._is_final = True
        self._transport.allgather_bytes(b"deleted", op=self._first_op + 3)
        mine = [(written, name) for rank, written, name in placed if rank == self._transport.rank]
        return {f"{self._url}/{written}": f"{self._url}/{name}" for written, name in mine}

    def _copy_all(self, told: Sequence[Told]) -> list[tuple[int, str, str]]:
        """Copy all files. Returns rank, written name and final name of each."""
        import obstore

        store, base = self._store()
        sources = [(rank, told[rank].files[number].written) for rank, number in kept_files(told)]
        pairs = list(zip(sources, self._names(told), strict=True))
        paths = [(rank, written, name) for (rank, written), name in pairs if isinstance(name, str)]
        # As on a file system: what the user gave stays as it is after a failure, so it comes first.
        for (_, written), target in pairs:
            if not isinstance(target, str):
                copy_into(_Reader(obstore.open_reader(store, f"{base}{written}"), self._url), target)

        def copy(_: int, written: str, name: str) -> None:
            with without_request(_cannot_copy(self._url)):
                obstore.copy(store, f"{base}{written}", f"{base}{name}")

        with ThreadPoolExecutor(_COPIES_AT_ONCE) as threads:
            for copied in [threads.submit(copy, *path) for path in paths]:
                copied.result()
        return paths

    def _finish_here(self, told: Sequence[Told]) -> Mapping[str, str]:
        kept = {told[rank].files[number].written for rank, number in kept_files(told)}
        empty = [file.written for file in self._files if file.written not in kept]
        if empty:
            self._delete(empty)
        old = self._replaced(kept) if self._transport.rank == 0 and kept else []
        self._transport.allgather_bytes(b"listed", op=self._first_op + 2)
        self._is_final = True  # without the old files, the new ones are all that there is
        self._delete(old)
        self._transport.allgather_bytes(b"deleted", op=self._first_op + 3)
        return {path: path for path in (f"{self._url}/{name}" for name in kept)}

    def _replaced(self, kept: Iterable[str]) -> list[str]:
        """Return the files there that have the names of ours but for the token, or that one process would so name."""
        pattern = re.compile(
            rf"(?:(\d{{5}})-)?([0-9a-f]{{8}})(?:\.([0-9a-f]{{12}}))?\.{re.escape(self._ending)}"
        )

        def place(name: str) -> tuple[str, int, str] | None:
            folder, _, file = name.rpartition("/")
            found = pattern.fullmatch(file)
            return None if found is None else (folder, int(found[1] or 0), found[2])

        ours = {place(name) for name in kept}
        return [
            name
            for name in self._names_there()
            if f".{self._token}." not in name and (spot := place(name)) is not None and spot in ours
        ]

    def _names_there(self) -> list[str]:
        store, base = self._store()
        return [path[len(base) :] for path in list_objects(store, base, self._url)]

    def _store(self) -> tuple[Any, str]:
        try:
            return open_store(f"{self._url}/", self._access)
        except FileUnreadableError as error:
            raise NotImplementedError(f"several ranks cannot sink to this folder: {error}") from None

    def _delete(self, names: Sequence[str]) -> None:
        if not names:
            return
        store, base = self._store()
        delete_objects(store, [f"{base}{name}" for name in names], base, self._url)

    def _remove(self) -> None:
        if self._is_final or not self._files:
            return
        with contextlib.suppress(Exception):
            store, base = self._store()
            delete_late_objects(store, [f"{base}{file.written}" for file in self._files], base, self._url)


def _cannot_copy(url: str) -> str:
    return f"files of {shown_path(url)} cannot be copied"


class _Reader(io.RawIOBase):
    """An object as a file."""

    def __init__(self, file: Any, url: str) -> None:
        self._file, self._url = file, url

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        with without_request(_cannot_copy(self._url)):
            return bytes(self._file.read(None if size < 0 else size))
