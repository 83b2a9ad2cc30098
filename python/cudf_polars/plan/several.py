"""Several queries as one plan, so that what they have in common is one sub-plan: what ``collect_all`` runs."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from cudf_polars.plan.dag import Plan
from cudf_polars.plan.nodes import HConcat, Node

__all__ = ["join_queries", "queries_of", "with_own_names"]

_SEPARATOR = ":"


def join_queries(lfs: Sequence[pl.LazyFrame]) -> pl.LazyFrame:
    """Return a query whose plan has the plans of all these side by side, below its last node; that is never run."""
    renamed = [
        lf.select(pl.all().name.prefix(f"{number}{_SEPARATOR}"))  # names differ, which Polars asks for
        for number, lf in enumerate(lfs)
    ]
    return pl.concat(renamed, how="horizontal")


def queries_of(plan: Plan, count: int) -> tuple[Node, ...] | None:
    """Return the last nodes of the ``count`` queries of :func:`join_queries`; ``None`` if they cannot be told apart."""
    root = plan.root
    if not isinstance(root, HConcat) or len(root.inputs) != count:
        return None
    for number, query in enumerate(root.inputs):
        if not all(name.startswith(f"{number}{_SEPARATOR}") for name in query.schema):
            return None
    return tuple(root.inputs)


def with_own_names(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the answer of one of these queries with the names that its columns have there."""
    return frame.rename({name: name.partition(_SEPARATOR)[2] for name in frame.columns})
