"""What the target of a sink is to the ranks: a path, the folder of an object store, or what one process writes."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from cudf_polars.engine.partition_sinks import Partitioning
from cudf_polars.plan.cloud import shown_path

__all__ = ["ByOneWriter", "UsedFolder", "destination", "folder_of", "partitioning_for_workers"]

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
"""Also what ``pathlib`` makes of a URL, with one slash; a scheme of one letter is a drive."""
_STORES = frozenset({"s3", "s3a", "gs", "gcs", "az", "azure", "adl", "abfs", "abfss"})
"""Schemes of the object stores that Polars writes to."""


@dataclass(frozen=True)
class ByOneWriter:
    """A target that one rank writes with the rows of all, which is to be reported as ``step``."""

    target: object
    step: str


@dataclass(frozen=True)
class UsedFolder:
    """A target in which the client of a cluster works: another folder in its place would leave the client in none."""

    path: str


def destination(target: object) -> object:
    """Say what the ranks can make of a sink's target.

    Parameters
    ----------
    target
        As the user gave it.

    Returns
    -------
    A ``Path`` on this machine; or text, the URL of a folder in an object store; or the target, if it is something else
    that one process writes (a file object), or ``pl.PartitionBy``.

    Raises
    ------
    NotImplementedError
        If the target is a URL that ranks cannot write to.
    """
    if not isinstance(target, str | os.PathLike):
        return target
    # Not os.fspath(): paths of cloud libraries begin to copy files when they are asked for it.
    text = str(target)
    found = _URL.match(text)
    if found is None:
        return Path(os.fspath(target))
    scheme = found[1].lower()
    if scheme == "file" and re.match(r"file:/($|[^/])|file:///", text, re.IGNORECASE):
        return Path("/" + text[len("file:") :].lstrip("/"))
    whole = isinstance(target, str) and text[found.end() :].startswith("/")
    if scheme in _STORES and whole:
        return text
    shown = shown_path(f"{found[1]}://{text[found.end() :].lstrip('/')}")
    what = (
        f"cannot sink to {shown!r}"
        if isinstance(target, str)
        else f"cannot sink to {type(target).__name__} {shown!r}"
    )
    if scheme not in _STORES:
        raise NotImplementedError(
            f"{what}: an engine's ranks write to folders of file systems, not to a URL like this. Sink to a folder that"
            " all ranks share, and copy it."
        )
    raise NotImplementedError(f"{what}: give the URL as a str, '{scheme}://...'")


def partitioning_for_workers(
    target: pl.PartitionBy, options: Mapping[str, Any], nranks: int
) -> Partitioning | str:
    """Return what the ranks of a cluster write for a client's sink to ``pl.PartitionBy``.

    Parameters
    ----------
    target
        As the user gave it.
    options
        Polars' arguments of the sink.
    nranks
        Number of ranks.

    Returns
    -------
    If the client has to write instead, the step to report.

    Raises
    ------
    NotImplementedError
        If the base path is a URL that ranks cannot write to.
    """
    parts = Partitioning.of(target)
    where = folder_of(parts)
    # One rank could write all of these, but what a user's function opens is to be written here.
    reason = parts.why_one_writer(where) if nranks > 1 or parts.provider is not None else None
    if isinstance(where, Path):
        where = where.expanduser().absolute()  # a path that does not depend on this process's folder
    return parts.for_workers(where, options) if reason is None else reason


def folder_of(parts: Partitioning) -> Path | str:
    """Return the folder of partitions as :func:`destination` does."""
    where = destination(parts.base)
    assert isinstance(where, Path | str)
    return where
