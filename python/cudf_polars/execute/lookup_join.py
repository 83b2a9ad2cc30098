"""Joins by lookup: where the keys of a side are integers that lie close together, a key's value says where its row is.

For each value from the least key to the greatest, a table has the number of the row with that key. To find a row there
takes a fraction of the time that it takes in a hash table, and the rows of the other side stay in their order. They
pass through functions that work row by row, so that Polars optimises what is around the join as before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import polars as pl

from cudf_polars.lower.physical import Local
from cudf_polars.plan.expressions import Column
from cudf_polars.plan.nodes import Join

__all__ = ["KeyTable", "LookupJoin"]

_SLOTS_PER_ROW = 8
"""A table has so many values for each key at most, of four bytes each: a hash table takes as much."""
_ROW = "__rr_found_row"


@dataclass(frozen=True)
class KeyTable:
    """Says which row has a key.

    Attributes
    ----------
    least, greatest
        The bounds of the keys, as integers.
    rows
        For each value between them, the number of the row with that key, or null. None: the rows are in the order of
        their keys, and no value is left out.
    null_row
        The number of a row whose key is null, if that matches a null.
    """

    least: int
    greatest: int
    rows: pl.Series | None
    null_row: int | None

    @classmethod
    def of(cls, keys: pl.Series, *, nulls_equal: bool, unique: bool = True) -> KeyTable | None:
        """Return the table of some keys; ``None`` if they are too far apart, or if there are none.

        Parameters
        ----------
        nulls_equal
            Whether nulls are equal.
        unique
            Whether there is no table, either, if several rows have one key. Else any of them is found.
        """
        physical = keys.to_physical()
        nulls = physical.null_count()
        numbers = pl.int_range(physical.len(), dtype=pl.UInt32, eager=True)
        null_row = None
        if nulls:
            is_null = physical.is_null()
            if nulls_equal:
                if unique and nulls > 1:
                    return None
                null_row = is_null.arg_max()
            physical, numbers = physical.drop_nulls(), numbers.filter(~is_null)
        if physical.is_empty():
            return None
        least, greatest = _bounds(physical)
        values = greatest - least + 1
        if values > _SLOTS_PER_ROW * physical.len():
            return None
        slots = _distance(physical, least)
        if values == physical.len() and not nulls and bool((slots == numbers).all()):
            return cls(least, greatest, None, None)
        rows = pl.repeat(None, values, dtype=pl.UInt32, eager=True)
        rows.scatter(slots, numbers)
        if unique and values - rows.null_count() < physical.len():
            return None
        return cls(least, greatest, rows, null_row)

    def find(self, keys: pl.Series) -> pl.Series:
        """Return the numbers of the rows that have these keys, of type UInt32: null where none has."""
        physical = keys.to_physical()
        found = self._find(physical)
        if self.null_row is not None and physical.null_count():
            null_row = pl.Series([self.null_row], dtype=pl.UInt32)
            found = found.zip_with(physical.is_not_null(), null_row)
        return found

    def _find(self, physical: pl.Series) -> pl.Series:
        if physical.null_count() == physical.len():
            return pl.repeat(None, physical.len(), dtype=pl.UInt32, eager=True)
        least, greatest = _bounds(physical)
        if least < self.least or greatest > self.greatest:
            inside = physical.is_between(self.least, self.greatest)
            physical = physical.zip_with(inside, pl.Series([None], dtype=physical.dtype))
        slots = _distance(physical, self.least)
        return slots if self.rows is None else self.rows.gather(slots)


def _bounds(values: pl.Series) -> tuple[int, int]:
    least, greatest = values.min(), values.max()
    assert isinstance(least, int)
    assert isinstance(greatest, int)
    return least, greatest


def _distance(values: pl.Series, least: int) -> pl.Series:
    """Return how far integers are from the least of them, which is less than 2**32."""
    if values.dtype not in (pl.Int64, pl.UInt64):
        values = values.cast(pl.Int64)  # the difference may exceed the type
    # Wrapping, so that nothing is checked again.
    return (values - least).cast(pl.UInt32, wrap_numerical=True)


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
    def of(cls, local: Local, rows: pl.DataFrame) -> LookupJoin | None:
        """Return the join that a step is, with the rows of the side that is found; ``None`` if their keys forbid it.

        Parameters
        ----------
        local
            A step with a :attr:`~cudf_polars.lower.physical.Local.lookup_side`.
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
        height = rows.height
        needed = dict.fromkeys(name for origin, name in names.values() if origin == side)
        rows = rows.select(list(needed)).rechunk()
        columns: dict[str, str | pl.Series] = {}
        for result, (origin, name) in names.items():
            if origin != side:
                columns[result] = name
            elif node.how == "inner" and name == found_key:
                columns[result] = key
            else:
                columns[result] = rows[name]
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
