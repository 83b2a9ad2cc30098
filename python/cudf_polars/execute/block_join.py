"""Joins of two sides that are both too large for memory: each block of one side with each of the other.

This is for rows whose keys cannot be told apart any more, because there are many with one key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import polars as pl

from cudf_polars.execute.rows import chunks
from cudf_polars.lower.physical import Local
from cudf_polars.plan.nodes import Join
from cudf_polars.plan.rebuild_expressions import to_expr

__all__ = ["BlockJoin", "block_join"]

_HOWS = ("inner", "left", "right", "full", "semi", "anti")


@dataclass(frozen=True)
class BlockJoin:
    """A join that can be done block by block.

    Attributes
    ----------
    local
        The step.
    how
        Its kind.
    left_on, right_on
        Its keys.
    nulls_equal
        Whether nulls are equal.
    """

    local: Local
    how: str
    left_on: tuple[pl.Expr, ...]
    right_on: tuple[pl.Expr, ...]
    nulls_equal: bool

    @classmethod
    def of(cls, local: Local) -> BlockJoin | None:
        """Return what a step is if it is such a join."""
        node = local.node
        if (
            not isinstance(node, Join)
            or node.how not in _HOWS
            or node.maintain_order != "none"
            or node.validate != "m:m"  # who counts the rows of a key has to see them all
            or node.slice is not None
        ):
            return None
        left = tuple(to_expr(key.expr) for key in node.left_on)
        right = tuple(to_expr(key.expr) for key in node.right_on)
        return cls(local, node.how, left, right, node.nulls_equal)

    def keys(self, rows: pl.LazyFrame, side: str) -> pl.LazyFrame:
        """Return the keys of rows of a side."""
        on = self.left_on if side == "left" else self.right_on
        return rows.select(key.alias(f"__rr_key_{i}") for i, key in enumerate(on))

    def together(self, left: pl.LazyFrame, right: pl.LazyFrame) -> pl.LazyFrame:
        """Return the step over some rows of both sides."""
        return self.local.build([left, right], 0)

    def matching(
        self, rows: pl.LazyFrame, side: str, keys: pl.LazyFrame, how: Literal["semi", "anti"]
    ) -> pl.LazyFrame:
        """Return the rows of a side whose keys are among ``keys``, or are not."""
        on = self.left_on if side == "left" else self.right_on
        names = keys.collect_schema().names()
        return rows.join(keys, left_on=on, right_on=names, how=how, nulls_equal=self.nulls_equal)


def block_join(
    join: BlockJoin,
    read: Callable[[str], Iterable[pl.DataFrame]],
    run: Callable[[pl.LazyFrame], Iterable[pl.DataFrame]],
    block_bytes: int,
) -> Iterator[pl.DataFrame]:
    """Join two sides and yield the rows of the result, in any order.

    Parameters
    ----------
    join
        What to do.
    read
        ``read(side)`` gives the rows of the ``"left"`` or ``"right"`` side, as often as it is asked.
    run
        Runs a query.
    block_bytes
        How many bytes of each side to take at a time.
    """
    left, right = (pl.DataFrame(schema=dict(side.schema)).lazy() for side in join.local.inputs)
    keys = {
        side: _keys(join, side, read, block_bytes).lazy() for side in ("left", "right") if _asks(join, side)
    }
    for frame in chunks(read("left"), block_bytes):
        rows = frame.lazy()
        if join.how in ("semi", "anti"):
            how: Literal["semi", "anti"] = "semi" if join.how == "semi" else "anti"
            yield from run(join.matching(rows, "left", keys["right"], how))
            continue
        if join.how in ("left", "full"):
            yield from run(join.together(join.matching(rows, "left", keys["right"], "anti"), right))
        for other in chunks(read("right"), block_bytes):
            yield from run(_matches(join, rows, other.lazy()))
    if join.how in ("right", "full"):
        for other in chunks(read("right"), block_bytes):
            alone = join.matching(other.lazy(), "right", keys["left"], "anti")
            yield from run(join.together(left, alone))


def _asks(join: BlockJoin, side: str) -> bool:
    """Whether the join has to know which keys the whole of a side has."""
    return join.how in (("left", "full", "semi", "anti") if side == "right" else ("right", "full"))


def _keys(
    join: BlockJoin, side: str, read: Callable[[str], Iterable[pl.DataFrame]], block_bytes: int
) -> pl.DataFrame:
    """Return the keys of all rows of a side, each once."""
    schema = dict(join.local.inputs[0 if side == "left" else 1].schema)
    found = join.keys(pl.DataFrame(schema=schema).lazy(), side).collect()
    for block in chunks(read(side), block_bytes):
        new = join.keys(block.lazy(), side).unique()
        found = pl.concat([found.lazy(), new]).unique().collect(engine="streaming")
    return found


def _matches(join: BlockJoin, left: pl.LazyFrame, right: pl.LazyFrame) -> pl.LazyFrame:
    """Return what an inner join of two blocks gives, made by the step itself.

    A side that the step preserves is first left with those rows only that find another.
    """

    kept_left, kept_right = left, right
    if join.how in ("left", "full"):
        kept_left = join.matching(left, "left", join.keys(right, "right"), "semi")
    if join.how in ("right", "full"):
        kept_right = join.matching(right, "right", join.keys(left, "left"), "semi")
    return join.together(kept_left, kept_right)
