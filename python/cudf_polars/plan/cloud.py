"""How files of an object store are reached: Polars' options of a scan, which may hold secrets.

They are given again to Polars as they were, and are shown nowhere: not in plans, fingerprints or errors.
"""

from __future__ import annotations

import functools
import json
import pickle
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from cudf_polars.plan.memory_files import MemoryFile
from cudf_polars.plan.serialized import deserialize_plan, serialize_plan

__all__ = [
    "CloudAccess",
    "access_of_options",
    "is_remote",
    "read_access",
    "shown_path",
    "with_access",
    "without_secrets",
]

_HEADER_BYTES = 3
"""Before a pickled provider, Polars writes how it was pickled and by which Python."""
_PLAIN_PICKLE = 0
_REMOTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


def is_remote(path: str) -> bool:
    """Whether a path is the URL of a store."""
    return _REMOTE.match(path) is not None and not path.startswith("file://")


def shown_path(path: str) -> str:
    """Return a path for messages and plans, without the user and the query of a URL, which may be secret.

    For a file in memory, whose path differs between processes, return its size and digest.
    """
    if isinstance(path, MemoryFile):
        return path.name
    if not is_remote(path):
        return path
    path, _, query = path.partition("?")
    path = re.sub(r"(?<=://)[^/@]*@", "", path)
    return f"{path}?..." if query else path


_USER = re.compile(r"(?<=://)[^\s/@'\"()<>]+@")
_QUERY = re.compile(r"(?<=[\w.*/\]-])\?[\w.~%+-]+=[^\s'\"()<>]*")


def without_secrets(text: str) -> str:
    """Return an error's text without the users and queries of the URLs in it, such as Polars' errors hold."""
    if "://" not in text and "object-store" not in text:
        return text
    return _QUERY.sub("?...", _USER.sub("", text))


@dataclass(frozen=True)
class CloudAccess:
    """Options of one scan for its object store.

    Attributes
    ----------
    text
        Polars' own form of them, as JSON. It may hold secrets.
    """

    text: str = field(repr=False)

    @property
    def store(self) -> str:
        """The kind of store, if a configuration names it; else an empty text."""
        config = self.options["config"]
        return "" if config is None else str(next(iter(config)))

    @property
    def options(self) -> dict[str, Any]:
        """All options."""
        options: dict[str, Any] = json.loads(self.text)
        return options

    @property
    def encrypts(self) -> bool:
        """Whether they say how the store encrypts objects that are written."""
        entries = next(iter(config.values())) if (config := self.options["config"]) else []
        return any(isinstance(key, dict) and "Encryption" in key for key, _ in entries)

    def credentials(self) -> Mapping[str, str]:
        """Return what the credential provider of these options says now; nothing if there is none, or it fails.

        Polars' own provider fails where the options have the keys already.
        """
        provider = self.options["credential_provider"]
        if provider is None:
            return {}
        builder = pickle.loads(bytes(provider["Builder"][_HEADER_BYTES:]))
        try:
            built = builder.build_credential_provider()
            said = {} if built is None else built()[0]
        except Exception:  # if they are needed, Polars says why when it reads the files
            return {}
        return {key: value for key, value in said.items() if value is not None}

    def __repr__(self) -> str:
        """Say nothing of the contents."""
        return f"CloudAccess({self.store})"


def read_access(text: str) -> CloudAccess | None:
    """Return the options that Polars shows of a scan; ``None`` if a scan without any would do the same.

    Parameters
    ----------
    text
        The options, as JSON.

    Raises
    ------
    ValueError
        If their form is unknown.
    """
    options = json.loads(text)
    if options is None:
        return None
    provider = options.get("credential_provider")
    if provider is not None:
        if not isinstance(provider, dict) or set(provider) != {"Builder"}:
            raise ValueError("a credential provider of an unknown form")
        options["credential_provider"] = {"Builder": _shared(bytes(provider["Builder"]))}
    elif options.get("config") is None:
        return None
    return CloudAccess(json.dumps(options))


def access_of_options(url: str, options: Mapping[str, Any]) -> CloudAccess | None:
    """Return how a URL is reached by the arguments of a scan or sink.

    Parameters
    ----------
    options
        ``storage_options`` and ``credential_provider`` are taken, others left.
    """
    chosen = {name: options[name] for name in ("storage_options", "credential_provider") if name in options}
    form = serialize_plan(pl.scan_parquet(url, schema={}, glob=False, **chosen))
    return read_access(json.dumps(form["Scan"]["unified_scan_args"]["cloud_options"]))


def with_access(lf: pl.LazyFrame, access: CloudAccess | None) -> pl.LazyFrame:
    """Return a query that is one scan, with these options."""
    if access is None:
        return lf
    form = serialize_plan(lf)
    arguments = {**form["Scan"]["unified_scan_args"], "cloud_options": access.options}
    return deserialize_plan({"Scan": {**form["Scan"], "unified_scan_args": arguments}})


# --- providers -------------------------------------------------------------------------------------------------


class _Shared:
    """Is unpickled to one object of a process, however often: it keeps credentials until they expire."""

    def __init__(self, pickled: bytes) -> None:
        self._pickled = pickled

    def __reduce__(self) -> tuple[Any, ...]:
        return _provider_of_process, (self._pickled,)


def _shared(packed: bytes) -> list[int]:
    """Return a pickled provider, as Polars packs it, whose copies of one process are one."""
    header = bytes([_PLAIN_PICKLE]) + packed[1:_HEADER_BYTES]
    return list(header + pickle.dumps(_Shared(packed[_HEADER_BYTES:])))


def _provider_of_process(pickled: bytes) -> Any:
    return pickle.loads(pickled) if _is_named(pickled) else _kept(pickled)


@functools.lru_cache(maxsize=64)
def _kept(pickled: bytes) -> Any:
    return pickle.loads(pickled)


@functools.lru_cache(maxsize=64)
def _is_named(pickled: bytes) -> bool:
    """Say whether a pickle has its provider by name.

    It is one object then in any case, and another one when the user has defined the name again, in a notebook, with
    other credentials.
    """
    first, second = (_function_of(pickle.loads(pickled)) for _ in range(2))
    return first is not None and first is second


def _function_of(builder: Any) -> Any:
    return getattr(getattr(builder, "credential_provider_init", None), "credential_provider", None)
