"""How many rows a join gives, and what its sides that are copied cost: what joins are planned by before they run."""

from __future__ import annotations

import math

from cudf_polars.lower.context import Context
from cudf_polars.lower.key_filters import origin_rows
from cudf_polars.lower.partitioning import Distribution
from cudf_polars.lower.physical import (
    Broadcast,
    CheckedOrder,
    Estimate,
    Local,
    Materialize,
    Shuffle,
    Stream,
    WithScalars,
)
from cudf_polars.plan.expressions import Column
from cudf_polars.plan.nodes import Join

__all__ = ["WITHOUT_EQUAL_KEYS", "column_pairs", "copied_beside", "expected_rows", "partitions_of"]

WITHOUT_EQUAL_KEYS = ("cross", "ie", "asof")
"""The kinds of joins whose rows match by something else than equal keys."""


def column_pairs(node: Join) -> list[tuple[str, str]]:
    """Return the pairs of a left and a right column whose values are equal in rows that match."""
    if node.how in WITHOUT_EQUAL_KEYS:
        return []
    return [
        (a.expr.name, b.expr.name)
        for a, b in zip(node.left_on, node.right_on, strict=True)
        if isinstance(a.expr, Column) and isinstance(b.expr, Column)
    ]


def expected_rows(ctx: Context, node: Join, left: Estimate, right: Estimate) -> float:
    """Return how many rows a join of so many rows is expected to give."""
    rows = _rows(node, left.rows, right.rows)
    for side, here, there in (("left", left, right), ("right", right, left)):
        if here.counted:
            rows = min(rows, there.rows * _matched_part(ctx, node, side, here.rows))
    return max(rows, min(ctx.joined_rows.get(node, 0.0), left.rows * right.rows))


def _matched_part(ctx: Context, node: Join, side: str, rows: float) -> float:
    """Return which part of the other side's rows is expected to match one of the ``rows`` that ``side`` has.

    It is assumed that no two rows of ``side`` have the same key, and that the other side's keys are spread evenly over
    the keys of the table that they come from.
    """
    pairs = column_pairs(node)
    if node.how != "inner" or not pairs:
        return 1.0
    # Of several keys, one may be that of a table which has the other ones for each of its values.
    tables = (
        max(origin_rows(ctx, node.left, left, of_groups=side != "left") for left, _ in pairs),
        max(origin_rows(ctx, node.right, right, of_groups=side != "right") for _, right in pairs),
    )
    return min(1.0, rows / max(1.0, min(tables))) if max(tables) < math.inf else 1.0


def _rows(node: Join, left: float, right: float) -> float:
    match node.how:
        case "cross" | "ie":
            return left * right if node.how == "cross" else left * right / 2
        case "semi" | "anti":
            return left / 2
        case "left" | "asof":
            return left
        case "right":
            return right
        case _:
            # Mostly a foreign key: each row of the larger side finds its one partner.
            return max(left, right)


def partitions_of(ctx: Context, stream: Stream) -> int:
    """Return in how many partitions of a rank what is made of ``stream`` runs."""
    settings = ctx.builder.settings
    if settings.partitions == 1 or stream.partitioning.distribution in (
        Distribution.SINGLE,
        Distribution.REPLICATED,
    ):
        return 1
    match stream:
        case Local(inputs=()):
            return stream.partitions
        case Local():
            return max(partitions_of(ctx, each) for each in stream.inputs)
        case Shuffle():
            return stream.partitions(settings.nranks, settings.partitions)
        case Materialize() if not stream.partitioning.keys:
            return 1
        case Materialize() | WithScalars() | CheckedOrder():
            return partitions_of(ctx, stream.inputs[0])
        case _:
            return settings.partitions


def copied_beside(stream: Stream) -> int:
    """Return the bytes that the fragment of ``stream`` has of sides that were copied: they are in memory together.

    So are those of the fragment before it, if its rows are not all there yet: they come while this one takes them.
    """
    match stream:
        case Broadcast():
            return int(stream.estimate.nbytes)
        case Local():
            return sum(map(copied_beside, stream.inputs))
        case Materialize() if not (stream.shared or stream.estimate.counted):
            return copied_beside(stream.inputs[0])
        case _:
            return 0
