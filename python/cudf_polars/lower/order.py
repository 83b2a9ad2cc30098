"""Where in a plan the order of rows matters: what must be kept through exchanges, and what need not."""

from __future__ import annotations

from cudf_polars.plan.dag import Plan
from cudf_polars.plan.nodes import (
    DataFrameScan,
    Distinct,
    Explode,
    Filter,
    GroupBy,
    HintSorted,
    HStack,
    Join,
    MapFunction,
    Node,
    PythonScan,
    Scan,
    Select,
    SimpleProjection,
    Sort,
    Union,
    Unnest,
    Unpivot,
)
from cudf_polars.plan.properties import RowOrder, groups_depend_on_order, pair_by_order, row_order

__all__ = ["order_demands"]


def order_demands(plan: Plan) -> list[bool]:
    """Return, by number, whether a user of a node depends on the order of its rows.

    The answer's own order counts: the user of the query sees it.
    """
    demands = dict.fromkeys(plan.nodes, False)
    demands[plan.root] = True
    for node in reversed(plan.nodes):
        for child, demand in zip(node.children, _child_demands(node, demands[node]), strict=True):
            demands[child] |= demand
    return list(demands.values())


def _child_demands(node: Node, wanted: bool) -> list[bool]:
    match node:
        case Scan() | DataFrameScan() | PythonScan():
            return []
        case Select():
            if pair_by_order(node.expressions, beside_rows=False):
                return [True]
            # sorted values, say, are in an order of their own
            follow = (RowOrder.ALIGNED, RowOrder.SUBSET)
            return [wanted and any(row_order(expr) in follow for expr in node.expressions)]
        case HStack() | Filter():
            return [wanted or pair_by_order(node.expressions, beside_rows=True)]
        case SimpleProjection() | Explode() | Unnest() | Unpivot() | HintSorted():
            return [wanted]
        case GroupBy():
            if node.dynamic is not None or node.rolling is not None:
                return [True]
            ordered = node.maintain_order and (wanted or node.slice is not None)
            keys = pair_by_order((key.expr for key in node.keys), beside_rows=True)
            return [ordered or keys or groups_depend_on_order(agg.expr for agg in node.aggs)]
        case Join(how="asof"):
            return [True, True]
        case Join():
            kept = wanted or node.slice is not None
            left = kept and node.maintain_order in ("left", "left_right", "right_left")
            right = kept and node.maintain_order in ("right", "left_right", "right_left")
            return [
                left or pair_by_order((key.expr for key in node.left_on), beside_rows=True),
                right or pair_by_order((key.expr for key in node.right_on), beside_rows=True),
            ]
        case Sort():
            return [node.maintain_order or pair_by_order(node.expressions, beside_rows=True)]
        case Distinct():
            ordered = node.maintain_order and (wanted or node.slice is not None)
            return [ordered or node.keep in ("first", "last")]
        case Union():
            return [node.maintain_order and (wanted or node.slice is not None)] * len(node.inputs)
        case MapFunction():
            return [True]
        case _:
            return [True] * len(node.children)
