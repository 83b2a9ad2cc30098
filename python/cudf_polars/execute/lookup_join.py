"""Joins by lookup: where the keys of a side are integers that lie close together, a key's value says where its row is.

To find a row there takes a fraction of the time that it takes in a hash table, and the rows of the other side stay in
their order. They pass through functions that work row by row, so that Polars optimises what is around the join as
before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import polars as pl

from cudf_polars.execute.key_table import KeyTable
from cudf_polars.lower.physical import Local
from cudf_polars.plan.expressions import Column
from cudf_polars.plan.nodes import Join

__all__ = ["LookupJoin"]

_ROW = "__rr_found_row"


@dataclass(frozen=True)
class LookupJoin:
    """A join whose rows of one side are found by the value of the key.

    Attributes
    ----------
    node
        The join.
    table
        Says which row of the side has a key.
    key
        The key of the other side.
    columns
        Those of the result: each with the column of the other side that it is, or the values of those that are found.
    height
        How many rows the side has.
    """

    node: Join
    table: KeyTable
    key: str
    columns: dict[str, str | pl.Series]
    height: int

    @classmethod
    def of(cls, local: Local, rows: dict[str, pl.Series]) -> LookupJoin | None:
        """Return the join that a step is, with the rows of the side that is found; ``None`` if their keys forbid it.

        Parameters
        ----------
        local
            A step with a :attr:`~cudf_polars.lower.physical.Local.lookup_side`.
        rows
            By name, the columns of the side. They are taken one by one, unless the keys forbid it: each becomes one
            piece of memory, and is not held twice for longer than that takes.
        """
        node, side = local.node, local.lookup_side
        assert isinstance(node, Join)
        left, right = node.left_on[0].expr, node.right_on[0].expr
        assert isinstance(left, Column)
        assert isinstance(right, Column)
        keys = left.name, right.name
        found_key, key = keys if side == "left" else keys[::-1]
        only_whether = node.how in ("semi", "anti")
        table = KeyTable.of(rows[found_key], nulls_equal=node.nulls_equal, unique=not only_whether)
        if table is None:
            return None
        names = _sources(node, keys)
        if names is None:
            return None
        height = rows[found_key].len()
        needed = {name for origin, name in names.values() if origin == side}
        found = {name: rows.pop(name).rechunk() for name in list(rows) if name in needed}
        rows.clear()
        columns: dict[str, str | pl.Series] = {}
        for result, (origin, name) in names.items():
            if origin != side:
                columns[result] = name
            elif node.how == "inner" and name == found_key:
                columns[result] = key
            else:
                columns[result] = found[name]
        return cls(node, table, key, columns, height)

    def build(self, others: pl.LazyFrame) -> pl.LazyFrame:
        """Return the join of rows of the other side."""
        find = pl.col(self.key).map_batches(self.table.find, return_dtype=pl.UInt32, is_elementwise=True)
        numbered, row = others.with_columns(find.alias(_ROW)), pl.col(_ROW)
        if self.node.how == "anti":
            numbered = numbered.filter(row.is_null())
        elif self.node.how in ("inner", "semi"):
            numbered = numbered.filter(row.is_not_null())
        return numbered.select(
            (
                pl.col(column)
                if isinstance(column, str)
                else row.map_batches(_taking(column), return_dtype=column.dtype, is_elementwise=True)
            ).alias(name)
            for name, column in self.columns.items()
        )


def _taking(values: pl.Series) -> Callable[[pl.Series], pl.Series]:
    return lambda rows: values.gather(rows)


def _sources(node: Join, keys: tuple[str, str]) -> dict[str, tuple[str, str]] | None:
    """Return, by column of the result, its side and its name there; ``None`` if the result has other columns."""
    left, right = list(node.left.schema), list(node.right.schema)
    if node.how in ("semi", "anti"):
        right = []
    elif node.coalesce and node.how == "right":
        left.remove(keys[0])
    elif node.coalesce:
        right.remove(keys[1])
    sources = {name: ("left", name) for name in left}
    for name in right:
        sources[name + node.suffix if name in left else name] = ("right", name)
    schemas = {"left": node.left.schema, "right": node.right.schema}
    expected = {result: schemas[side][name] for result, (side, name) in sources.items()}
    return sources if list(expected.items()) == list(node.schema.items()) else None
