"""Selections that keep, drop or reorder whole rows, as the steps over tables that do the same.

``select(pl.all().head(3))`` is a slice of a selection, ``select(pl.all().sort_by("k"))`` a selection of a sorted table,
and ``select(pl.col("x").unique())`` the distinct rows of one column. The steps have distributed forms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import polars as pl

from cudf_polars.lower.aggregates import is_row_source
from cudf_polars.plan.expressions import (
    BinaryOp,
    Column,
    Expr,
    Function,
    Literal,
    NamedExpr,
    Operator,
    SortBy,
)
from cudf_polars.plan.expressions import Filter as FilterExpr
from cudf_polars.plan.expressions import Slice as SliceExpr
from cudf_polars.plan.expressions import Sort as SortExpr
from cudf_polars.plan.nodes import Distinct, Filter, Node, RowIndex, Select, Slice, Sort
from cudf_polars.plan.properties import columns, is_elementwise

__all__ = ["PLACES", "RESHAPES", "as_steps", "is_of_parts"]

RESHAPES = ("unique", "reverse", "gather_every", "drop_nulls", "drop_nans")
"""The functions that are steps over tables where a selection has nothing else."""
PLACES = ("arg_sort", "arg_unique")
"""The same, of which the numbers of rows are left."""
_NUMBER, _VALUE = "__rr_number", "__rr_value"
# As plans write it.
_OPEN_END = 2**32 - 1
E = TypeVar("E", bound=Expr)


def is_of_parts(node: Select) -> bool:
    """Whether the rows that a selection makes of parts of a table are, one below the other, those of the table.

    Its columns then leave out the same rows of each part, or it has one.
    """
    exprs = node.expressions
    if not exprs or not all(map(is_row_source, exprs)):
        return False
    if len(exprs) == 1:
        return True
    filters = [expr for expr in exprs if isinstance(expr, FilterExpr) and is_elementwise(expr.child)]
    return len(filters) == len(exprs) and len({expr.predicate for expr in filters}) == 1


def as_steps(node: Select) -> Node | None:
    """Return a selection as steps over tables; ``None`` if it is none of these."""
    exprs = [output.expr for output in node.exprs]
    if not exprs:
        return None
    if (peeled := _peeled(node)) is not None:
        return peeled
    if slices := _all(exprs, SliceExpr):
        return _sliced(node, slices)
    if sorts := _all(exprs, SortBy):
        return _sorted_by(node, sorts)
    if len(exprs) == 1 and isinstance(exprs[0], SortExpr):
        return _sorted(node, exprs[0])
    functions = _all(exprs, Function)
    if not functions or len({(each.name, each.args) for each in functions}) != 1:
        return None
    first = functions[0]
    match first:
        case Function("unique", (_,), (maintain_order,)) if len(exprs) == 1:
            rows = _of(node, node.child, [first.inputs[0]])
            return rows and Distinct(
                rows, None, "first" if maintain_order else "any", maintain_order, schema=node.schema
            )
        case Function("reverse"):
            return _reversed(node, functions)
        case Function("arg_sort" | "arg_unique") if len(exprs) == 1:
            return _places(node, first)
        case Function("gather_every", (_,), (int() as offset, int() as step)) if (
            0 < step <= _OPEN_END and offset <= _OPEN_END  # in the type that numbers rows
        ):
            return _every(node, functions, step, offset)
    return None


def _peeled(node: Select) -> Select | None:
    """Return a selection that does something to the rows of another one, over that: ``x.sort_by(k).reverse()``."""
    exprs = [output.expr for output in node.exprs]
    if not all(
        isinstance(expr, SliceExpr | SortExpr) or (isinstance(expr, Function) and expr.name in RESHAPES)
        for expr in exprs
    ) or any(not isinstance(child, Literal) for expr in exprs for child in expr.children[1:]):
        return None
    rows = [expr.children[0] for expr in exprs]
    if all(map(is_elementwise, rows)) or any(expr.dtype is None for expr in rows):
        return None
    schema = {o.name: e.dtype for o, e in zip(node.exprs, rows, strict=True) if e.dtype is not None}
    outputs = tuple(o.with_expr(e) for o, e in zip(node.exprs, rows, strict=True))
    inner = replace(node, exprs=outputs, schema=schema)
    if not is_of_parts(inner) and as_steps(inner) is None:
        return None
    over = tuple(
        o.with_expr(o.expr.with_children((Column(o.name, dtype=schema[o.name]), *o.expr.children[1:])))
        for o in node.exprs
    )
    return replace(node, child=inner, exprs=over)


def _all(exprs: Sequence[Expr], kind: type[E]) -> list[E]:
    found = [expr for expr in exprs if isinstance(expr, kind)]
    return found if len(found) == len(exprs) else []


def _of(node: Select, child: Node, exprs: Sequence[Expr]) -> Select | None:
    """Return row-wise expressions of ``child`` under the names of the selection."""
    if not all(is_elementwise(expr) and columns(expr) for expr in exprs):
        return None
    outputs = tuple(NamedExpr(o.name, e) for o, e in zip(node.exprs, exprs, strict=True))
    return replace(node, child=child, exprs=outputs)


def _whole_number(expr: Expr) -> int | None:
    value = expr.value if isinstance(expr, Literal) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _sliced(node: Select, slices: Sequence[SliceExpr]) -> Node | None:
    offset, length = _whole_number(slices[0].offset), _whole_number(slices[0].length)
    if isinstance(slices[0].length, Literal) and slices[0].length.value is None:
        length = _OPEN_END
    if offset is None or length is None or length < 0 or len({(s.offset, s.length) for s in slices}) != 1:
        return None  # Polars' engines read a negative length in different ways.
    rows = _of(node, node.child, [s.child for s in slices])
    return rows and Slice(rows, offset, length, schema=node.schema)


def _sorted_by(node: Select, sorts: Sequence[SortBy]) -> Node | None:
    first = sorts[0]
    if any(replace(each, child=first.child) != first for each in sorts):
        return None
    if not all(is_elementwise(key) and columns(key) for key in first.by):
        return None
    keys = tuple(NamedExpr(f"{_NUMBER}{n}", key) for n, key in enumerate(first.by))
    rows = Sort(
        node.child, keys, first.descending, first.nulls_last, first.maintain_order, schema=node.child.schema
    )
    return _of(node, rows, [each.child for each in sorts])


def _sorted(node: Select, expr: SortExpr) -> Node | None:
    rows = _of(node, node.child, [expr.child])
    if rows is None:
        return None
    (output,) = node.exprs
    key = NamedExpr(output.name, Column(output.name, dtype=expr.child.dtype))
    return Sort(rows, (key,), (expr.descending,), (expr.nulls_last,), expr.maintain_order, schema=node.schema)


def _numbered(child: Node) -> tuple[RowIndex, Column]:
    number = pl.UInt32()
    schema = {_NUMBER: number, **child.schema}
    return RowIndex(child, _NUMBER, 0, schema=schema), Column(_NUMBER, dtype=number)


def _reversed(node: Select, functions: Sequence[Function]) -> Node | None:
    rows, number = _numbered(node.child)
    backwards = Sort(rows, (NamedExpr(_NUMBER, number),), (True,), (True,), False, schema=rows.schema)
    return _of(node, backwards, [each.inputs[0] for each in functions])


def _places(node: Select, call: Function) -> Node | None:
    """Number the rows, and leave the numbers of the sorted or of the distinct ones."""
    (values,) = call.inputs
    dtype = values.dtype
    if dtype is None or dtype.is_nested() or not (is_elementwise(values) and columns(values)):
        return None
    numbered, number = _numbered(node.child)
    value = NamedExpr(_VALUE, Column(_VALUE, dtype=dtype))
    place = NamedExpr(_NUMBER, number)
    rows: Node = Select(
        numbered, (place, NamedExpr(_VALUE, values)), schema={_NUMBER: pl.UInt32(), _VALUE: dtype}
    )
    if call.name == "arg_sort":
        descending, nulls_last = call.args
        rows = Sort(rows, (value,), (descending,), (nulls_last,), True, schema=rows.schema)
    else:
        rows = Distinct(rows, (_VALUE,), "first", True, schema=rows.schema)
    (output,) = node.exprs
    return Select(rows, (NamedExpr(output.name, number),), schema=node.schema)


def _every(node: Select, functions: Sequence[Function], step: int, offset: int) -> Node | None:
    rows, number = _numbered(node.child)

    def constant(value: int) -> Literal:
        return Literal(value, dtype=number.dtype)

    behind = BinaryOp(Operator.GE, number, constant(offset), dtype=pl.Boolean())
    place = BinaryOp(Operator.SUB, number, constant(offset), dtype=number.dtype)
    rest = BinaryOp(Operator.MOD, place, constant(step), dtype=number.dtype)
    chosen = BinaryOp(Operator.EQ, rest, constant(0), dtype=pl.Boolean())
    both = BinaryOp(Operator.AND, behind, chosen, dtype=pl.Boolean())
    return _of(node, Filter(rows, both, schema=rows.schema), [each.inputs[0] for each in functions])
