"""Windows over the whole table in another order: ``over(order_by=...)``, ``OVER (ORDER BY ...)``.

They are expressions over the rows of a sorted table. The rows are numbered, sorted, and put back in their order when
each has its value; the expressions have the distributed forms that they have over rows in their order.
"""

from __future__ import annotations

import polars as pl

from cudf_polars.lower.ranges import is_comparable
from cudf_polars.lower.rowwise import is_distributable
from cudf_polars.lower.shape import over_wide_rows, windows, with_values_of_windows
from cudf_polars.plan.expressions import Column, Expr, Literal, NamedExpr, Window
from cudf_polars.plan.nodes import Filter, HStack, Node, RowIndex, Select, Sort
from cudf_polars.plan.properties import columns, is_elementwise, is_scalar

__all__ = ["in_sorted_table"]

_PLACE = "__rr_sorted_place"
_VALUE = "__rr_sorted_value"


def in_sorted_table(node: Select | HStack | Filter, *, ordered: bool) -> Node | None:
    """Return a node with such windows as steps over a sorted table; ``None`` if it has none.

    Parameters
    ----------
    ordered
        Whether the order of the node's rows matters.
    """
    found = [window for expr in node.expressions for window in windows(expr) if _is_sorted_table(window)]
    if not found:
        return None
    first = found[0]
    together = [window for window in dict.fromkeys(found) if _order(window) == _order(first)]
    rows = node.child
    depth = sum(name.startswith((_PLACE, _VALUE)) for name in rows.schema)
    names = {window: f"{_VALUE}{depth + n}" for n, window in enumerate(together)}
    place, number = f"{_PLACE}{depth}", pl.UInt32()
    numbered = RowIndex(rows, place, 0, schema={place: number, **rows.schema})
    assert first.order_by is not None
    key = NamedExpr(f"{_PLACE}key", first.order_by)
    in_order = Sort(numbered, (key,), (first.descending,), (first.nulls_last,), True, schema=numbered.schema)
    values = tuple(NamedExpr(name, window.child) for window, name in names.items())
    schema = {**numbered.schema, **{name: _dtype(window) for window, name in names.items()}}
    computed = HStack(in_order, values, schema=schema)
    if not all(is_scalar(value.expr) for value in values) and not is_distributable(computed):
        return None

    columns_of = {window: Column(name, dtype=window.dtype) for window, name in names.items()}
    rest = with_values_of_windows(node, columns_of)
    wide: Node = computed
    # What is left may look at other rows, too, or have rows of equal keys in their order.
    if ordered or not all(map(is_elementwise, rest.expressions)):
        by = NamedExpr(place, Column(place, dtype=number))
        wide = Sort(wide, (by,), (False,), (False,), False, schema=schema)
    return over_wide_rows(rest, wide)


def _order(window: Window) -> tuple[Expr | None, bool, bool]:
    return window.order_by, window.descending, window.nulls_last


def _is_sorted_table(window: Window) -> bool:
    """Whether a window is over the one partition of all rows, in an order of their own values."""
    order = window.order_by
    return (
        bool(window.partition_by)
        and all(isinstance(key, Literal) and key.scalar for key in window.partition_by)
        and window.mapping == "group_to_rows"
        and window.dtype is not None
        and (bool(columns(window.child)) or not is_elementwise(window.child))
        and order is not None
        and order.dtype is not None
        and is_comparable(order.dtype)
        and is_elementwise(order)
        and bool(columns(order))
    )


def _dtype(window: Window) -> pl.DataType:
    assert window.dtype is not None
    return window.dtype
