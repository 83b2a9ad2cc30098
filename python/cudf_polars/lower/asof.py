"""As-of joins whose right side is too large to copy: by a range exchange of the sorted key, or a shuffle by ``by``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from cudf_polars.lower.aggregates import ORDER
from cudf_polars.lower.context import Context
from cudf_polars.lower.estimates import row_width
from cudf_polars.lower.grouping import key_columns
from cudf_polars.lower.partitioning import ARBITRARY
from cudf_polars.lower.physical import Estimate, NeighbourExchange, SortedExchange, SortKey, Stream
from cudf_polars.plan.expressions import Column, NamedExpr
from cudf_polars.plan.nodes import AsofOptions, Join
from cudf_polars.plan.properties import is_elementwise
from cudf_polars.plan.rebuild_expressions import to_expr

__all__ = ["lower_asof"]

_OPERATION = "asof_join"
"""What Polars calls it in its errors."""
_KEY = "__rr_asof_key"
"""The left side's key without nulls."""


def lower_asof(ctx: Context, node: Join, left: Stream, right: Stream, *, ordered: bool) -> Stream | None:
    """Return the join without copying the right side to every rank; ``None`` if it needs the copy.

    Parameters
    ----------
    ordered
        Whether the order of the left side's rows is wanted.
    """
    assert node.asof is not None
    if node.asof.left_by:
        return _by_groups(ctx, node, node.asof, left, right, ordered=ordered)
    return _by_ranges(ctx, node, node.asof, left, right)


def _by_groups(
    ctx: Context, node: Join, asof: AsofOptions, left: Stream, right: Stream, *, ordered: bool
) -> Stream | None:
    """Shuffle both sides by the ``by`` keys, and join each partition with its rows in their order."""
    if any(left.schema[a] != right.schema[b] for a, b in zip(asof.left_by, asof.right_by, strict=True)):
        return None
    builder = ctx.builder

    def moved(side: Stream, keys: Sequence[str]) -> Stream:
        return builder.sort_locally(builder.shuffle(builder.attach_order(side), keys), [ORDER])

    others = builder.select(moved(right, asof.right_by), list(right.schema))
    numbered = replace(node, schema={**node.schema, ORDER: pl.UInt64()})
    joined = _joined(ctx, numbered, moved(left, asof.left_by), others)
    if ordered:
        return builder.restore_order(joined, [ORDER])
    joined.ordered = False
    return builder.select(joined, list(node.schema))


def _by_ranges(ctx: Context, node: Join, asof: AsofOptions, left: Stream, right: Stream) -> Stream | None:
    """Join ranges of the key, each with the rows of the right side beside it."""
    keys = [key.expr for key in (*node.left_on, *node.right_on)]
    if not asof.check_sortedness or not left.ordered or not right.ordered:
        return None  # rows may be in any order, of which all of the right side is a part
    if (
        not all(is_elementwise(key) and _has_ranges(key.dtype) for key in keys)
        or keys[0].dtype != keys[1].dtype
    ):
        return None
    assert keys[0].dtype is not None
    left_rows, (left_key,) = key_columns(ctx, left, keys[:1], "__rr_left_key")
    right_rows, (right_key,) = key_columns(ctx, right, keys[1:], "__rr_right_key")
    own = SortedExchange(
        schema={**left_rows.schema, _KEY: keys[0].dtype}, filled=left_key, **_exchanged(left_rows, _KEY)
    )
    others = NeighbourExchange(
        schema=right_rows.schema,
        like=own,
        # Of right rows with equal keys, "nearest" takes the last one, as "backward" does, and "forward" the first.
        beside="last" if asof.strategy == "nearest" else "first",
        **_exchanged(right_rows, right_key),
    )
    builder = ctx.builder
    # With nulls in the key of the left side, Polars' streaming engine gives other rows now and then, and its check of
    # the order, which was made here, refuses some.
    by_filled = replace(
        node,
        left_on=(NamedExpr(_KEY, Column(_KEY, dtype=keys[0].dtype)),),
        coalesce=node.coalesce and isinstance(keys[0], Column),
        asof=replace(asof, check_sortedness=False),
        schema={**node.schema, _KEY: keys[0].dtype},
    )
    joined = _joined(
        ctx, by_filled, builder.select(own, [*left.schema, _KEY]), builder.select(others, list(right.schema))
    )
    has_key = to_expr(keys[0]).is_not_null()
    columns = [
        pl.col(name) if name in left.schema else pl.when(has_key).then(pl.col(name)).alias(name)
        for name in node.schema
    ]
    return builder.local(
        "ROWS WITHOUT A KEY match none",
        [joined],
        lambda frames, _: frames[0].select(columns),
        schema=node.schema,
    )


def _exchanged(rows: Stream, key: str) -> dict[str, Any]:
    """Return what the exchanges of both sides have in common."""
    return {
        "inputs": (rows,),
        "partitioning": ARBITRARY,
        "ordered": True,
        "estimate": rows.estimate,
        "keys": (SortKey(key, descending=False, nulls_last=False),),
        "operation": "asof_join",
    }


def _has_ranges(dtype: pl.DataType | None) -> bool:
    return dtype is not None and (dtype.is_numeric() or dtype.is_temporal() or dtype == pl.String)


def _joined(ctx: Context, node: Join, left: Stream, right: Stream) -> Stream:
    rows = left.estimate.rows
    return ctx.apply(
        node,
        [left, right],
        partitioning=ARBITRARY,
        ordered=True,
        estimate=Estimate(rows, rows * row_width(node.schema)),
    )
