"""Finds the heavy keys of a join before its sides move: by samples of both sides."""

from __future__ import annotations

import polars as pl

from cudf_polars.lower.context import Context
from cudf_polars.lower.findings import KeyShare
from cudf_polars.lower.join_sides import Sides, materialized, other_side
from cudf_polars.lower.local_joins import COPIED_SIDES
from cudf_polars.lower.physical import Estimate, Materialize
from cudf_polars.lower.scans import pipeline_parts
from cudf_polars.lower.spreading import HeavyKeys, key_hash
from cudf_polars.plan.rebuild_expressions import to_expr

__all__ = ["find_heavy_keys"]

_PLACES, _SAMPLE_ROWS = 8, 1 << 11
"""A sample has so many rows from so many places of a rank's part of a file: neighbours often have one key."""
_SAMPLE_BYTES = 8 << 20
"""Where it is not of a file, it is the first rows of the side, of so many bytes on each rank."""
_OF_RANK, _OF_PARTITION = 0.25, 4
"""A key is heavy that has this part of the rows of a rank, or so many times the rows of one of many partitions."""
_SELDOM = 3
"""In the sample of the side that is copied, a heavy key has fewer rows than that: all of them go to each partition."""


def find_heavy_keys(ctx: Context, sides: Sides) -> dict[str, HeavyKeys] | None:
    """Return what becomes of the rows with heavy keys, by side; ``None`` if no key is heavy, or if it is not known."""
    node, settings = sides.node, ctx.builder.settings
    # A row that is spread meets copies of the rows that it matches: the other side must be one that may be copied.
    may_be_spread = [other_side(side) for side in COPIED_SIDES[node.how]]
    if not may_be_spread or node.validate != "m:m" or node.maintain_order != "none":
        return None
    spread = max(may_be_spread, key=lambda side: sides.get(side).estimate.rows)
    if sides.get(spread).estimate.rows < settings.sample_least:
        return None
    if any(
        left.expr.dtype != right.expr.dtype or not _has_hash(left.expr.dtype)
        for left, right in zip(node.left_on, node.right_on, strict=True)
    ):
        return None
    least = _least_share(settings.nranks, settings.partitions)
    found = _count(ctx, sides, spread, KeyShare(least))
    if not found:
        return None
    # Copies of many rows would cost more than they save.
    often = _count(ctx, sides, other_side(spread), KeyShare(0.0, frozenset(found)))
    heavy = [] if often is None else sorted(key for key in found if often.get(key, 0) < _SELDOM)
    if not heavy:
        return None
    hashes = pl.Series(heavy, dtype=pl.UInt64)
    return {side: HeavyKeys(hashes, copied=side != spread) for side in ("left", "right")}


def _has_hash(dtype: pl.DataType | None) -> bool:
    """Whether values of this type that are equal to a join have equal hashes in Polars."""
    return dtype is not None and (
        dtype.is_integer() or dtype.is_float() or dtype.is_temporal() or dtype == pl.String
    )


def _least_share(nranks: int, partitions: int) -> float:
    """Return the part of the rows that a key has to have to be heavy."""
    share = 1.0
    if nranks > 1:
        share = _OF_RANK / nranks
    if partitions > 1:
        share = min(share, _OF_PARTITION / (nranks * partitions))
    return min(share, 0.5)


def _count(ctx: Context, sides: Sides, side: str, asked: KeyShare) -> dict[int, int] | None:
    """Return how many rows of a sample of a side have a key, by the key's hash; ``None`` if a sample costs too much."""
    node = sides.node
    child, keys = (node.left, node.left_on) if side == "left" else (node.right, node.right_on)
    hashed = key_hash([to_expr(key.expr) for key in keys])
    rows = sides.get(side)
    if isinstance(rows, Materialize) and not rows.shared:
        return ctx.builder.findings.count_hashes(rows, hashed, asked)
    places = [place / _PLACES for place in range(_PLACES)]
    parts = pipeline_parts(ctx, child, _SAMPLE_ROWS, places)
    if parts is None:
        if rows.partitioning.keys and ctx.builder.settings.partitions > 1:
            return None  # what is there by partitions would be kept as a whole
        sampled = materialized(ctx, sides, side, "to find heavy keys")
        ctx.builder.findings.measure(sampled, min(_SAMPLE_BYTES, ctx.builder.settings.broadcast_limit))
        return ctx.builder.findings.count_hashes(sampled, hashed, asked)
    sample = ctx.builder.materialize(
        ctx.builder.local(
            "SAMPLE KEYS",
            parts,
            lambda frames, _: pl.concat([frame.select(hashed.alias("hash")) for frame in frames]),
            schema={"hash": pl.UInt64()},
            ordered=False,
            estimate=Estimate(float(_PLACES * _SAMPLE_ROWS), 8.0 * _PLACES * _SAMPLE_ROWS),
        ),
        "to find heavy keys",
    )
    ctx.builder.count(sample)
    return ctx.builder.findings.count_hashes(sample, pl.col("hash"), asked)
