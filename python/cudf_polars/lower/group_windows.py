"""Windows of aggregates, as groups that are joined with the rows: ``sum("x").over("k")``, ``x - mean("x").over("k")``.

Where there are few groups, each rank gets all of them, and no row moves. That reads files twice, but the rows stay in
their order; sent to the ranks of their groups, they would all have to be put back into it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import polars as pl

from cudf_polars.lower.aggregates import decompose
from cudf_polars.lower.context import Context
from cudf_polars.lower.group_counts import count_groups
from cudf_polars.lower.shape import over_wide_rows, windows, with_values_of_windows
from cudf_polars.plan.expressions import Column, Expr, Literal, NamedExpr, Window
from cudf_polars.plan.nodes import Filter, GroupBy, HStack, Join, Node, Select
from cudf_polars.plan.properties import columns, is_elementwise, is_scalar

__all__ = ["as_joined_groups"]

_KEY = "__rr_group_key"
_VALUE = "__rr_group_value"
_ROWS_PER_GROUP = 8
"""Of fewer rows in each group, groups are many."""


@dataclass
class _Aggregates:
    """The aggregates of windows with the same keys, with the columns that they become."""

    prefix: str
    names: dict[Expr, str] = field(default_factory=dict)

    def beside_rows(self, expr: Expr) -> Expr | None:
        """Return ``expr`` with columns for its aggregates; ``None`` if what is around these is not row-wise."""
        if isinstance(expr, Literal) or (columns(expr) and is_elementwise(expr)):
            return expr
        if is_scalar(expr):
            if expr.dtype is None:
                return None
            return Column(self.names.setdefault(expr, f"{self.prefix}{len(self.names)}"), dtype=expr.dtype)
        parts = [self.beside_rows(child) for child in expr.children]
        if not parts or None in parts:
            return None
        around = expr.with_children([part for part in parts if part is not None])
        return around if is_elementwise(around) else None


def as_joined_groups(ctx: Context, node: Select | HStack | Filter) -> Node | None:
    """Return a node with some of its windows as columns of a join; ``None`` if none of them is better so."""
    if not ctx.properties.is_row_pipeline(node.child):
        return None
    found = [window for expr in node.expressions for window in windows(expr)]
    tried: set[tuple[Expr, ...]] = set()
    for window in found:
        keys = window.partition_by
        if keys in tried or not _has_plain_keys(window):
            continue
        tried.add(keys)
        together = [other for other in dict.fromkeys(found) if other.partition_by == keys]
        steps = _joined(ctx, node, keys, together)
        if steps is not None:
            return steps
    return None


def _has_plain_keys(window: Window) -> bool:
    return bool(window.partition_by) and all(
        key.dtype is not None and is_elementwise(key) and bool(columns(key)) for key in window.partition_by
    )


def _joined(
    ctx: Context, node: Select | HStack | Filter, keys: tuple[Expr, ...], together: list[Window]
) -> Node | None:
    rows = node.child
    depth = sum(name.startswith(_VALUE) for name in rows.schema)
    aggregates = _Aggregates(f"{_VALUE}{depth}_")
    values: dict[Window, Expr] = {}
    for window in together:
        before = dict(aggregates.names)
        value = None
        if window.mapping == "group_to_rows" and window.order_by is None:
            value = aggregates.beside_rows(window.child)
        outputs = tuple(NamedExpr(name, leaf) for leaf, name in aggregates.names.items())
        if value is None or len(aggregates.names) == len(before) or decompose(outputs) is None:
            aggregates.names = before
        else:
            values[window] = value
    if not values or not _are_few(ctx, rows, keys):
        return None
    computed = tuple(
        NamedExpr(f"{_KEY}{depth}_{n}", key) for n, key in enumerate(keys) if not isinstance(key, Column)
    )
    named = {named.expr: named.name for named in computed}
    columns_of_keys = [Column(named[key], dtype=key.dtype) if key in named else key for key in keys]
    keyed = HStack(rows, computed, schema={**rows.schema, **_types(computed)}) if computed else rows
    left = tuple(NamedExpr(column.name, column) for column in columns_of_keys if isinstance(column, Column))
    right = tuple(replace(key, name=f"{_KEY}{n}") for n, key in enumerate(left))
    aggs = tuple(NamedExpr(name, leaf) for leaf, name in aggregates.names.items())
    groups = GroupBy(keyed, right, aggs, schema=_types(right) | _types(aggs))
    rest = with_values_of_windows(node, values)
    # Windows that are left may look at rows in their order.
    in_order = ctx.ordered(node) or not all(map(is_elementwise, rest.expressions))
    wide = Join(
        keyed,
        groups,
        "left",
        left,
        tuple(NamedExpr(key.name, Column(key.name, dtype=key.expr.dtype)) for key in right),
        nulls_equal=True,
        coalesce=True,
        maintain_order="left" if in_order else "none",
        schema={**keyed.schema, **_types(aggs)},
    )
    return over_wide_rows(rest, wide)


def _types(named: Iterable[NamedExpr]) -> dict[str, pl.DataType]:
    return {each.name: each.expr.dtype for each in named if each.expr.dtype is not None}


def _are_few(ctx: Context, rows: Node, keys: Sequence[Expr]) -> bool:
    """Whether the groups of the rows are so few that these need not move."""
    stream = ctx.lower(rows)
    names = [key.name for key in keys if isinstance(key, Column)]
    if ctx.builder.is_whole(stream) or (names and stream.partitioning.collocates(names)):
        return False
    count = count_groups(ctx, rows, stream.estimate.rows, keys)
    return count is not None and count.per_row(stream.estimate.rows) * _ROWS_PER_GROUP <= 1
