"""``sink_delta`` and ``sink_iceberg`` with our engines: one process commits, and mostly it writes, too.

Polars asks an engine for the rows of such a sink, and then writes and commits them itself, in the process that called
it. Where each rank runs the script, every rank would commit: an overwriting one removes the rows of the others. An
engine cannot prevent that from where Polars calls it, so the two methods of ``pl.LazyFrame`` are wrapped when
:mod:`cudf_polars.engine.core` is imported, as every engine does. Queries of other engines go straight to Polars' own
methods, as they were called.

Files of a Delta table are written by all ranks where :mod:`cudf_polars.engine.delta_sinks` can.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import polars as pl
from polars.lazyframe.engine_config import get_engine_affinity_override

__all__ = ["install"]

_MARK = "_polars_own"
_NAMES = ("sink_delta", "sink_iceberg")


def install(engine_type: type[Any]) -> None:
    """Wrap the catalog sinks of ``pl.LazyFrame``; again does nothing.

    Parameters
    ----------
    engine_type
        The base class of our engines.
    """
    for name in _NAMES:
        own = getattr(pl.LazyFrame, name)
        if not hasattr(own, _MARK):
            setattr(pl.LazyFrame, name, _wrapped(own, engine_type))


def _wrapped(own: Callable[..., Any], engine_type: type[Any]) -> Callable[..., Any]:
    signature = inspect.signature(own)

    @functools.wraps(own)
    def sink(self: pl.LazyFrame, *args: Any, **kwargs: Any) -> Any:
        engine: Any = kwargs.get("engine", "auto")  # by keyword only
        if isinstance(engine, str) and engine == "auto":
            engine = get_engine_affinity_override()
        if not isinstance(engine, engine_type):
            return own(self, *args, **kwargs)
        # A wrong call is one on every rank, before anything runs.
        bound = signature.bind(self, *args, **kwargs)
        polars_kwargs = {**kwargs, "engine": "streaming"}
        # Rows that are there need no optimisation, and sink_iceberg knows of none.
        kwargs_of_rows = {key: value for key, value in polars_kwargs.items() if key != "optimizations"}

        def write(rows: pl.LazyFrame) -> Any:
            return own(rows, *args, **(polars_kwargs if rows is self else kwargs_of_rows))

        return engine.sink_catalog(
            self,
            write,
            step=own.__name__,
            optimizations=kwargs.get("optimizations") or pl.QueryOptFlags(),
            # What sink_delta returns then commits when it is told to.
            commits_later=kwargs.get("mode") == "merge",
            arguments=bound.arguments,
        )

    setattr(sink, _MARK, own)
    return sink
