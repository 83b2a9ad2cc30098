"""Queries that have been read, and how Polars optimises them and their fragments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import polars as pl

from cudf_polars.plan.dag import Plan
from cudf_polars.plan.expressions import Agg, NamedExpr
from cudf_polars.plan.nodes import Join
from cudf_polars.plan.properties import holds_choice, walk
from cudf_polars.plan.read import read_plan

__all__ = ["QUERY_FLAGS", "Query", "optimizations_of_fragments", "read_query"]

QUERY_FLAGS = tuple(n for n in inspect.signature(pl.QueryOptFlags).parameters if hasattr(pl.QueryOptFlags, n))
"""The names of Polars' optimisation flags."""


@dataclass(frozen=True)
class Query:
    """A query that has been read: what a client reads once for all ranks, and each rank for itself under SPMD.

    Attributes
    ----------
    plan
        The typed plan. Its in-memory frames are this rank's part of the rows.
    read_apart
        Reads it again, without sub-plans that several parts share; ``None`` where another process has read it.
    """

    plan: Plan
    read_apart: Callable[[], Plan] | None = field(default=None, compare=False, repr=False)


def read_query(lf: pl.LazyFrame, optimizations: pl.QueryOptFlags) -> Query:
    """Read ``lf`` with these optimisations; raises what Polars says of a query that is wrong."""
    if not optimizations.comm_subplan_elim:
        return Query(read_plan(lf, optimizations))
    apart = _copied(optimizations)
    apart.comm_subplan_elim = False
    return Query(read_plan(lf, optimizations), lambda: read_plan(lf, apart))


def optimizations_of_fragments(optimizations: pl.QueryOptFlags, plan: Plan) -> pl.QueryOptFlags:
    """Return how fragments are optimised: what they have in common, and which order is not observed, was found in the
    whole query.

    Where Polars' streaming engine shares a part of a fragment whose one reader ends early, it panics now and then; it
    drops the order of a join that only a slice observes, and of a list of values that ``when`` chooses; and it loses
    filters of what an exchange gives below a join that has a key twice on one side.
    """
    flags = _copied(optimizations)
    flags.comm_subplan_elim = False
    joins = [node for node in plan.nodes if isinstance(node, Join)]
    if any(join.maintain_order != "none" for join in joins) or _lists_choices(plan):
        flags.check_order_observe = False
    if any(_repeats(join.left_on) or _repeats(join.right_on) for join in joins):
        flags.predicate_pushdown = False
    return flags


def _lists_choices(plan: Plan) -> bool:
    parts = (part for node in plan.nodes for expr in node.expressions for part in walk(expr))
    return any(isinstance(part, Agg) and part.name == "implode" and holds_choice(part) for part in parts)


def _repeats(keys: Sequence[NamedExpr]) -> bool:
    return len({key.expr for key in keys}) < len(keys)


def _copied(optimizations: pl.QueryOptFlags) -> pl.QueryOptFlags:
    flags = pl.QueryOptFlags()
    for name in QUERY_FLAGS:
        setattr(flags, name, getattr(optimizations, name))
    return flags
