"""As-of joins out of core: by ranges of the sorted keys, or by the hash of the keys that must be equal."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import polars as pl

from cudf_polars.lower.context import Context
from cudf_polars.lower.estimates import row_width
from cudf_polars.lower.grouping import key_columns
from cudf_polars.lower.partitioning import ARBITRARY
from cudf_polars.lower.physical import Estimate, Schema, SortedExchange, SortKey, Stream
from cudf_polars.plan.expressions import Column, NamedExpr
from cudf_polars.plan.nodes import AsofOptions, Join
from cudf_polars.plan.properties import is_elementwise
from cudf_polars.plan.rebuild_expressions import to_expr

__all__ = ["lower_asof"]

_OPERATION = "asof_join"
"""What Polars calls it in its errors."""
_KEY = "__rr_asof_key"
_ORDER = "__rr_left_order"
_RIGHT_ORDER = "__rr_right_order"


def lower_asof(ctx: Context, node: Join, left: Stream, right: Stream, *, ordered: bool) -> Stream | None:
    """Join rows where both sides are too large to be copied; ``None`` if that cannot be done.

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
    """Join rows whose other keys are equal, where the hash of these sends them."""
    if any(left.schema[a] != right.schema[b] for a, b in zip(asof.left_by, asof.right_by, strict=True)):
        return None
    builder = ctx.builder
    left, right = builder.attach_order(left, _ORDER), builder.attach_order(right, _RIGHT_ORDER)
    left = builder.sort_locally(builder.shuffle(left, asof.left_by), [_ORDER])
    right = builder.sort_locally(builder.shuffle(right, asof.right_by), [_RIGHT_ORDER])
    right = builder.select(right, [name for name in right.schema if name != _RIGHT_ORDER])
    numbered = replace(node, schema={**node.schema, _ORDER: pl.UInt64()})
    joined = _joined(ctx, numbered, left, right)
    if ordered:
        return builder.restore_order(joined, [_ORDER])
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
    own = _moved(left_rows, _KEY, {**left_rows.schema, _KEY: keys[0].dtype}, filled=left_key)
    # Of several rows that are as near, the last one is taken.
    beside: Literal["first", "last"] = "last" if asof.strategy == "nearest" else "first"
    others = _moved(right_rows, right_key, right_rows.schema, like=own, beside=beside)
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


def _moved(rows: Stream, key: str, schema: Schema, **how: Any) -> SortedExchange:
    return SortedExchange(
        inputs=(rows,),
        schema=schema,
        partitioning=ARBITRARY,
        ordered=True,
        estimate=rows.estimate,
        keys=(SortKey(key, descending=False, nulls_last=False),),
        operation=_OPERATION,
        **how,
    )


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
