"""Which steps give the same rows on every rank, when each rank does them over all rows of a table.

Polars' threads decide the order of rows after joins and aggregations, and which of several rows is *any* of them. So
only a step whose result, as a set of rows, depends on neither can be done by every rank for itself.
"""

from __future__ import annotations

from cudf_polars.plan.nodes import (
    Distinct,
    Explode,
    Filter,
    GroupBy,
    HintSorted,
    HStack,
    Join,
    Node,
    Scan,
    Select,
    SimpleProjection,
    Sort,
    Union,
    Unnest,
    Unpivot,
)
from cudf_polars.plan.properties import (
    calls_python,
    groups_depend_on_order,
    is_deterministic,
    is_process_local,
    pair_by_order,
)

__all__ = ["is_same_on_all_ranks"]


def is_same_on_all_ranks(node: Node) -> bool:
    """Whether ``node``, over the same rows in any order, always gives the same rows in some order."""
    if any(not is_deterministic(e) or calls_python(e) or is_process_local(e) for e in node.expressions):
        return False
    if getattr(node, "slice", None) is not None and not isinstance(node, Scan):
        return False
    match node:
        case Scan() | SimpleProjection() | Explode() | Unnest() | Unpivot() | HintSorted() | Union() | Sort():
            return True
        case Select():
            return not pair_by_order(node.expressions, beside_rows=False)
        case HStack() | Filter():
            return not pair_by_order(node.expressions, beside_rows=True)
        case GroupBy():
            plain = node.dynamic is None and node.rolling is None
            keys = pair_by_order((key.expr for key in node.keys), beside_rows=True)
            return plain and not keys and not groups_depend_on_order(agg.expr for agg in node.aggs)
        case Join():
            return node.how != "asof"
        case Distinct():
            return node.keep == "none" or node.subset is None
    return False
