"""``sink_*(..., lazy=True)`` with our engines: collecting such a query writes what the eager call writes.

Of the plan of such a query Polars shows an engine not all arguments of the sink, nor the query below it. So the methods
of ``pl.LazyFrame`` are wrapped when :mod:`cudf_polars.engine.core` is imported, as every engine does: the frame that
they return remembers how they were called. To other engines it is the frame that Polars made. Polars refuses folders
as soon as the sink is called; one with the parts of a former sink is refused when another engine collects the frame.
"""

from __future__ import annotations

import functools
import inspect
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from cudf_polars.engine.folder_sinks import holds_parts
from cudf_polars.engine.sink_destinations import destination

__all__ = ["LazySink", "install", "sink_of"]

_MARK = "_polars_own"
_MEMORY = "_riverrun_lazy_sink"
_EXTENSIONS = ("parquet", "ipc", "csv", "ndjson")


class _Folder(io.RawIOBase):
    """Stands for a folder that our engines replace: to others, it is no file."""

    def __init__(self, error: IsADirectoryError) -> None:
        self._error = error

    def writable(self) -> bool:
        """Say that it can be written to; writing tells more."""
        return True

    def write(self, _: object) -> int:
        """Raise what Polars says of a folder."""
        raise IsADirectoryError(*self._error.args)


def _is_replaced(target: object) -> bool:
    """Say whether a target is a folder that has nothing but the parts of a former sink."""
    where = destination(target)
    return isinstance(where, Path) and holds_parts(where.expanduser())


@dataclass(frozen=True)
class LazySink:
    """How a sink was called.

    Attributes
    ----------
    rows
        The query.
    target
        Where to.
    extension
        Kind of file.
    options
        Polars' arguments of the sink, as far as they were given.
    """

    rows: pl.LazyFrame
    target: object
    extension: str
    options: Mapping[str, Any] = field(repr=False)  # may hold secrets


def sink_of(lf: pl.LazyFrame) -> LazySink | None:
    """Return the sink that a query is; None if it is another one, or has come from another process."""
    return getattr(lf, _MEMORY, None)


def install() -> None:
    """Wrap the sinks of ``pl.LazyFrame``; again does nothing."""
    for extension in _EXTENSIONS:
        name = f"sink_{extension}"
        own = getattr(pl.LazyFrame, name)
        if not hasattr(own, _MARK):
            setattr(pl.LazyFrame, name, _wrapped(own, extension))


def _wrapped(own: Callable[..., Any], extension: str) -> Callable[..., Any]:
    signature = inspect.signature(own)

    @functools.wraps(own)
    def sink(self: pl.LazyFrame, *args: Any, **kwargs: Any) -> Any:
        try:
            made = own(self, *args, **kwargs)
        except IsADirectoryError as error:
            bound = signature.bind(self, *args, **kwargs)
            if not bound.arguments.get("lazy") or not _is_replaced(bound.arguments["path"]):
                raise
            bound.arguments["path"] = _Folder(error)
            made = own(*bound.args, **bound.kwargs)
        if isinstance(made, pl.LazyFrame):
            options = dict(signature.bind(self, *args, **kwargs).arguments)
            for name in ("self", "lazy", "engine", "optimizations"):
                options.pop(name, None)  # the last two are those of collecting
            setattr(made, _MEMORY, LazySink(self, options.pop("path"), extension, options))
        return made

    setattr(sink, _MARK, own)
    return sink
