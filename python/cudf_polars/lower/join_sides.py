"""The two inputs of a join while it is decided how their rows meet."""

from __future__ import annotations

from dataclasses import dataclass

from cudf_polars.lower.context import Context
from cudf_polars.lower.findings import Measurement
from cudf_polars.lower.join_estimates import column_pairs
from cudf_polars.lower.partitioning import Partitioning
from cudf_polars.lower.physical import Estimate, Materialize, Stream
from cudf_polars.plan.nodes import Join

__all__ = [
    "Sides",
    "corresponding",
    "has_keys_of",
    "is_hashed_by_keys",
    "materialized",
    "measured",
    "other_side",
    "pairs_from",
]


@dataclass
class Sides:
    """A join's inputs on their way, by side.

    Attributes
    ----------
    stays
        The side to whose ranges the other one is to move.
    """

    node: Join
    left: Stream
    right: Stream
    stays: str | None = None

    def get(self, side: str) -> Stream:
        """Return the rows of a side."""
        return self.left if side == "left" else self.right

    def put(self, side: str, stream: Stream) -> None:
        """Put other rows in their place."""
        if side == "left":
            self.left = stream
        else:
            self.right = stream


def other_side(side: str) -> str:
    """Return the name of the other side."""
    return "right" if side == "left" else "left"


def pairs_from(node: Join, side: str) -> list[tuple[str, str]]:
    """Return the pairs of key columns, that of ``side`` first."""
    pairs = column_pairs(node)
    return pairs if side == "left" else [(right, left) for left, right in pairs]


def corresponding(node: Join, partitioning: Partitioning, side: str) -> list[str]:
    """Return the other side's columns that match the keys by which ``side`` is distributed, in the same order."""
    pairs = pairs_from(node, side)
    return [next(theirs for ours, theirs in pairs if ours in key) for key in partitioning.keys]


def has_keys_of(node: Join, partitioning: Partitioning, side: str) -> bool:
    """Whether all columns by which ``side`` is distributed are keys of the join."""
    names = {ours for ours, _ in pairs_from(node, side)}
    return all(key & names for key in partitioning.keys)


def is_hashed_by_keys(node: Join, partitioning: Partitioning, side: str) -> bool:
    """Whether ``side`` was sent by the hash of some of the join's keys."""
    return partitioning.is_hash() and has_keys_of(node, partitioning, side)


def materialized(ctx: Context, sides: Sides, side: str, reason: str = "to choose how to join") -> Materialize:
    """Materialize a side, unless it is materialized for this join already."""
    rows = sides.get(side)
    if not isinstance(rows, Materialize) or rows.shared:
        rows = ctx.builder.materialize(rows, reason)
        sides.put(side, rows)
    return rows


def measured(ctx: Context, rows: Materialize, limit: int) -> Measurement:
    """Return what there is of ``rows``, which are read up to a limit; if that is all, they are no more estimated."""
    size = ctx.builder.findings.measure(rows, limit)
    if size.complete:
        rows.estimate = Estimate(float(size.expected_rows), float(size.nbytes), counted=True)
    return size
