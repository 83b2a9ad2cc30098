"""Files as bytes at positions: local ones, and those of object stores, which are asked for ranges.

Polars reads the files of queries itself. What is read here says where a scan can be cut: footers, ends of records.
"""

from __future__ import annotations

import contextlib
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from cudf_polars.plan.cloud import CloudAccess, is_remote, shown_path

__all__ = ["ByteFile", "FileUnreadableError", "kind_of_error", "open_bytes", "open_store", "without_request"]


class FileUnreadableError(OSError):
    """A file cannot be read here. The message holds no secret."""


class ByteFile(ABC):
    """A file that is open for reading; a context manager.

    Attributes
    ----------
    size
        In bytes.
    version
        What is another when the file has been written anew.
    """

    size: int
    version: str

    @abstractmethod
    def read(self, start: int, stop: int) -> bytes:
        """Return the bytes from ``start`` to before ``stop``, fewer at the file's end."""

    @abstractmethod
    def close(self) -> None:
        """Release what the open file holds."""

    def __enter__(self) -> ByteFile:
        """Return the file."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()


def open_bytes(path: str, cloud: CloudAccess | None) -> ByteFile:
    """Open a file.

    Parameters
    ----------
    path
        As in a scan.
    cloud
        How to reach it.

    Raises
    ------
    FileUnreadableError
        If it is missing, or its store cannot be asked for ranges.
    """
    return _RemoteFile(path, cloud) if is_remote(path) else _LocalFile(path.removeprefix("file://"))


class _LocalFile(ByteFile):
    def __init__(self, path: str) -> None:
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise FileUnreadableError(f"{path}: {error.strerror}") from None
        found = os.fstat(self._descriptor)
        self.size = found.st_size
        self.version = f"{found.st_dev}:{found.st_ino}:{found.st_size}:{found.st_mtime_ns}"

    def read(self, start: int, stop: int) -> bytes:
        parts = []
        while start < stop and (part := os.pread(self._descriptor, stop - start, start)):
            parts.append(part)
            start += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def close(self) -> None:
        os.close(self._descriptor)


class _RemoteFile(ByteFile):
    def __init__(self, path: str, cloud: CloudAccess | None) -> None:
        self._shown = shown_path(path)
        self._store, self._key = open_store(path, cloud)
        import obstore

        with without_request(self._shown, FileUnreadableError):
            found = obstore.head(self._store, self._key)
        self.size = found["size"]
        self.version = f"{found['size']}:{found['e_tag'] or found['last_modified']}"

    def read(self, start: int, stop: int) -> bytes:
        import obstore

        stop = min(stop, self.size)
        if stop <= start:
            return b""
        with without_request(self._shown, FileUnreadableError):
            return bytes(obstore.get_range(self._store, self._key, start=start, end=stop))

    def close(self) -> None:
        pass  # the store's connections end with it


# --- object stores ---------------------------------------------------------------------------------------------

_IRREGULAR = {"ImdsV1Fallback": "imdsv1_fallback", "Checksum": "checksum_algorithm"}


def kind_of_error(error: Exception) -> str:
    """Return what an error of obstore is, without its text, which may hold the request."""
    status = re.search(r"status code: (\d{3}(?: [A-Z][A-Za-z]*)*)", str(error))
    return type(error).__name__ if status is None else f"{type(error).__name__}, {status[1]}"


@contextlib.contextmanager
def without_request(what: str, kind: type[OSError] = OSError) -> Iterator[None]:
    """Raise an error of obstore as ``kind``: what has failed, and :func:`kind_of_error`."""
    try:
        yield
    except Exception as error:  # of many kinds; their texts may hold the request
        raise kind(f"{what}: {kind_of_error(error)}") from None


def open_store(path: str, cloud: CloudAccess | None) -> tuple[Any, str]:
    """Return an object store, as the package obstore has it, and the name of an object in it.

    Parameters
    ----------
    path
        The object's URL.
    cloud
        Polars' options for the store, which are obstore's, too.

    Raises
    ------
    FileUnreadableError
        If there is no such store, or obstore is not installed.
    """
    shown = shown_path(path)
    try:
        from obstore.store import from_url
    except ImportError:
        raise FileUnreadableError(
            f"{shown}: ranges of remote files are read with the package obstore: pip install obstore"
        ) from None
    found = urlsplit(path)
    if found.scheme not in ("s3", "s3a", "gs", "gcs", "az", "azure", "adl", "abfs", "abfss", "http", "https"):
        raise FileUnreadableError(f"{shown}: ranges of a {found.scheme} file are not read here")
    if found.query:
        raise FileUnreadableError(f"{shown}: ranges of a URL with a query are not read here")
    key = path.split("://", 1)[1].partition("/")[2]
    config, client = _configuration(cloud)
    try:
        credentials = {} if cloud is None else dict(cloud.credentials())
        token = credentials.pop("bearer_token", None)
        if token is not None:
            config["token"] = token
        config |= credentials
        url = f"{found.scheme}://{found.netloc}"
        if found.scheme.startswith("http"):
            config = {}
        if found.scheme == "http":
            client.setdefault("allow_http", True)  # as Polars does: the user's URL says so
        if found.scheme in ("gs", "gcs") and token is not None:
            del config["token"]
            bearer = {"token": token, "expires_at": None}
            store = from_url(url, config=config, client_options=client, credential_provider=lambda: bearer)
        else:
            store = from_url(url, config=config, client_options=client)
    except Exception as error:  # of many kinds; their texts may hold the options
        raise FileUnreadableError(f"{shown}: its store cannot be opened ({type(error).__name__})") from None
    return store, key


def _configuration(cloud: CloudAccess | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the options of the store and those of its client, by the names that texts have."""
    config: dict[str, Any] = {}
    client: dict[str, Any] = {}
    options = None if cloud is None else cloud.options["config"]
    entries = next(iter(options.values())) if options else []
    if not isinstance(entries, list):
        return config, client
    for key, value in entries:
        if isinstance(key, str):
            config[_snake(key)] = value
        elif "Client" in key:
            client[_snake(key["Client"])] = value
        # What is left says how objects are encrypted when they are written.
    return config, client


def _snake(name: str) -> str:
    return _IRREGULAR.get(name) or re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
