"""Delta tables of ranks in an object store: hidden in the real table's folder, where their files stay.

A store cannot move objects without copying them. So the real table's log names the files where the ranks wrote them;
what goes after the commit are the logs of the ranks' tables.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from cudf_polars.engine.store_objects import delete_objects, list_objects
from cudf_polars.lower.byte_files import open_store
from cudf_polars.plan.cloud import access_of_options

__all__ = ["StoreFolder", "storage_of"]

_LOG = "/_delta_log/"


def storage_of(arguments: Mapping[str, Any]) -> dict[str, str] | None:
    """Return how a store is reached, as deltalake wants it: what Polars makes of the arguments of ``sink_delta``."""
    from polars.io.cloud.credential_provider._builder import _init_credential_provider_builder
    from polars.io.cloud.credential_provider._providers import _get_credentials_from_provider_expiry_aware

    options = arguments.get("storage_options")
    provider = arguments.get("credential_provider", "auto")
    builder = _init_credential_provider_builder(provider, arguments["target"], options, "sink_delta")
    built = None if builder is None else builder.build_credential_provider()
    given = {} if built is None else _get_credentials_from_provider_expiry_aware(built) or {}
    return None if options is None and builder is None else {**(options or {}), **given}


class StoreFolder:
    """A folder in an object store.

    Parameters
    ----------
    url
        Its URL.
    storage
        How the store is reached.

    Raises
    ------
    FileUnreadableError
        If the package obstore, which lists and deletes, is not installed, or cannot reach the store.
    """

    def __init__(self, url: str, storage: Mapping[str, str] | None) -> None:
        self.url = url.rstrip("/")
        options = {} if storage is None else {"storage_options": dict(storage)}
        access = access_of_options(f"{self.url}/x.parquet", options)
        self._store, key = open_store(f"{self.url}/x", access)
        self._prefix = key[: -len("x")]

    @staticmethod
    def beside_files(target: str) -> str:
        """Return the URL of a new folder in that of a table; no other has its name."""
        return f"{target.rstrip('/')}/riverrun-{secrets.token_hex(8)}"

    def names(self) -> list[str]:
        """Return the names of all objects in it."""
        return list_objects(self._store, self._prefix, self.url)

    def logs(self) -> list[str]:
        """Return the entries of the log of a table in this folder, in order."""
        import obstore

        log = f"{self._prefix}{_LOG[1:]}"
        names = sorted(name for name in self.names() if name.startswith(log) and name.endswith(".json"))
        return [bytes(obstore.get(self._store, name).bytes()).decode() for name in names]

    def remove_logs(self) -> None:
        """Remove the logs of all tables in this folder, if the store lets us: they are not read any more."""
        with contextlib.suppress(Exception):
            self._delete([name for name in self.names() if _LOG in name])

    def remove(self) -> None:
        """Remove everything, if the store lets us."""
        with contextlib.suppress(Exception):
            self._delete(self.names())

    def _delete(self, names: Sequence[str]) -> None:
        delete_objects(self._store, names, self._prefix, self.url)
