"""Looking at the plan that Polars makes of a query.

``visit()`` holds Python's lock while Polars plans. Planning may need Python on another of Polars' threads: the table
formats (Delta, Iceberg) and credential providers are written in Python. Then neither goes on. ``collect()`` gives the
lock up and offers the same view to a callback, before anything runs; so every look goes this way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import polars as pl

__all__ = ["look"]

T = TypeVar("T")


class _Seen(Exception):
    """Ends Polars' ``collect()`` before it runs the plan."""


def look(lf: pl.LazyFrame, flags: Any, work: Callable[[Any], T]) -> T:
    """Return ``work(traverser)`` for the optimised plan of a query, which is not run.

    Parameters
    ----------
    lf
        The query.
    flags
        Polars' optimisation flags for it.
    work
        Reads the plan. The traverser and its views are valid only until it returns.

    Raises
    ------
    polars.exceptions.PolarsError
        When the query is wrong.
    """
    results: list[T] = []
    errors: list[BaseException] = []

    def callback(traverser: Any, *_: Any) -> None:
        try:
            results.append(work(traverser))
        except BaseException as error:  # Polars would keep its text only
            errors.append(error)
        raise _Seen

    try:
        lf._ldf.with_optimizations(flags).collect("in-memory", callback)
    except pl.exceptions.ComputeError:
        if not results and not errors:
            raise
    if errors:
        raise errors[0]
    return results[0]
