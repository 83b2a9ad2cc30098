"""``sink_delta`` and ``sink_iceberg`` with our engines: one process commits what all ranks write.

Polars asks an engine for the rows of such a sink, and then writes and commits them itself, in the process that called
it. Where each rank runs the script, every rank would commit: an overwriting one removes the rows of the others. An
engine cannot prevent that from where Polars calls it, so the two methods of ``pl.LazyFrame`` are wrapped when
:mod:`cudf_polars.engine.core` is imported, as every engine does. Queries of other engines go straight to Polars' own
methods, as they were called.

How all ranks write is in :mod:`cudf_polars.engine.delta_sinks` and :mod:`cudf_polars.engine.iceberg_sinks`. What they
cannot share is written by the process that commits.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import polars as pl
from polars.lazyframe.engine_config import get_engine_affinity_override

from cudf_polars.engine.delta_sinks import DeltaWrite, agree_on_delta
from cudf_polars.engine.iceberg_sinks import IcebergWrite, agree_on_iceberg
from cudf_polars.engine.table_sinks import TableFormat

__all__ = ["FORMATS", "install"]

FORMATS = {
    "sink_delta": TableFormat(DeltaWrite.of, agree_on_delta),
    "sink_iceberg": TableFormat(IcebergWrite.of, agree_on_iceberg),
}
"""How tables are written by all ranks, by the name of the user's method."""

_MARK = "_polars_own"


def install(engine_type: type[Any]) -> None:
    """Wrap the catalog sinks of ``pl.LazyFrame``; again does nothing.

    Parameters
    ----------
    engine_type
        The base class of our engines.
    """
    for name in FORMATS:
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
