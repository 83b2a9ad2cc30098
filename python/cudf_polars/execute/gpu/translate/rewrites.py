"""Other ways to say the same that a GPU runs faster."""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from cudf_polars.plan import expressions as ex
from cudf_polars.plan import nodes
from cudf_polars.plan.properties import columns, substitute

__all__ = ["as_one_source", "several_values"]

_ONE = {
    # n_unique op 1, said of "there is one value"
    (ex.Operator.EQ, 1): True,
    (ex.Operator.LE, 1): True,
    (ex.Operator.LT, 2): True,
    (ex.Operator.NE, 1): False,
    (ex.Operator.GT, 1): False,
    (ex.Operator.GE, 2): False,
}


def several_values(node: nodes.Filter, needed: set[str]) -> tuple[nodes.Filter, nodes.GroupBy] | None:
    """Ask for the least and the greatest value of groups, where only matters whether they have several.

    The number of different values of a group cannot be added up over parts of it, so all rows would have to be kept.

    Parameters
    ----------
    needed
        The columns of the result that are used.

    Returns
    -------
    tuple or None
        The filter and its group-by with ``min(x) == max(x)`` for ``n_unique(x) == 1``, if that may be said.
    """
    group = node.child
    if not isinstance(group, nodes.GroupBy) or group.slice is not None:
        return None
    counted = {e.name: e.expr for e in group.aggs if e.name not in needed and _is_simple_count(e.expr)}
    tests: dict[ex.Expr, ex.Expr] = {}
    aggs: list[ex.NamedExpr] = []
    for test in _comparisons(node.predicate):
        name = test.left.name if isinstance(test.left, ex.Column) else ""
        if name not in counted or not isinstance(test.right, ex.Literal):
            continue
        one = _ONE.get((test.op, test.right.value)) if isinstance(test.right.value, int) else None
        if one is None:
            continue
        agg = counted[name]
        assert isinstance(agg, ex.Agg)
        ends = [
            ex.NamedExpr(f"{kind} of {name}", ex.Agg(kind, agg.child, dtype=agg.child.dtype))
            for kind in ("min", "max")
        ]
        nulls = ex.NamedExpr(f"nulls of {name}", ex.Function("null_count", (agg.child,), dtype=pl.UInt32()))
        aggs += [*ends, nulls]
        tests[test] = _is_one(*(ex.Column(e.name, dtype=e.expr.dtype) for e in (*ends, nulls)))
        if not one:
            tests[test] = ex.Function("not_", (tests[test],), dtype=pl.Boolean())
    predicate = substitute(node.predicate, tests)
    left = {name for name in counted if name in columns(predicate)}
    if not aggs or left:
        return None
    kept = [e for e in group.aggs if e.name not in counted]
    unique = list({e.name: e for e in aggs}.values())
    schema = {name: t for name, t in group.schema.items() if name not in counted}
    schema |= {e.name: e.expr.dtype for e in unique if e.expr.dtype is not None}
    anew = replace(group, aggs=(*kept, *unique), schema=schema)
    return replace(node, child=anew, predicate=predicate, schema=schema), anew


def _is_one(least: ex.Expr, most: ex.Expr, nulls: ex.Expr) -> ex.Expr:
    """Return whether a group has one value, where null is one: equal ends and no null, or nothing but nulls."""
    boolean = pl.Boolean()
    zero = ex.Literal(0, dtype=pl.UInt32())
    equal = ex.BinaryOp(ex.Operator.EQ, least, most, dtype=boolean)
    whole = ex.BinaryOp(ex.Operator.EQ, nulls, zero, dtype=boolean)
    empty = ex.Function("is_null", (least,), dtype=boolean)
    some = ex.BinaryOp(ex.Operator.AND, whole, equal, dtype=boolean)
    return ex.BinaryOp(ex.Operator.OR, empty, some, dtype=boolean)


def _is_simple_count(expr: ex.Expr) -> bool:
    return (
        isinstance(expr, ex.Agg)
        and expr.name == "n_unique"
        and isinstance(expr.child, ex.Column)
        and expr.child.dtype is not None
        and (
            expr.child.dtype.is_integer() or isinstance(expr.child.dtype, pl.Date | pl.Decimal | pl.Datetime)
        )
    )


def _comparisons(predicate: ex.Expr) -> list[ex.BinaryOp]:
    """Return the comparisons of a predicate that are joined by "and" and "or"."""
    if not isinstance(predicate, ex.BinaryOp):
        return []
    if predicate.op in (ex.Operator.AND, ex.Operator.OR):
        return [*_comparisons(predicate.left), *_comparisons(predicate.right)]
    return [predicate]


def as_one_source(node: nodes.Union) -> nodes.Node | None:
    """Return one scan or one frame for the rows of several, ``None`` if that is not what a union has."""
    scans, frames = [], []
    for below in node.inputs:
        while isinstance(below, nodes.SimpleProjection):
            below = below.child
        if isinstance(below, nodes.Scan):
            scans.append(below)
        elif isinstance(below, nodes.DataFrameScan):
            frames.append(below)
    names = list(node.schema)
    if len(frames) == len(node.inputs):
        rows = pl.concat([below.frame.select(names) for below in frames], how="vertical")
        return nodes.DataFrameScan(rows, schema=node.schema)
    if len(scans) < len(node.inputs):
        return None
    first = scans[0]
    if not all(_may_follow(first, scan) for scan in scans[1:]):
        return None
    if any(dict(node.schema) != {n: scan.schema[n] for n in names} for scan in scans):
        return None
    return replace(first, paths=tuple(path for scan in scans for path in scan.paths), schema=node.schema)


def _may_follow(first: nodes.Scan, scan: nodes.Scan) -> bool:
    plain = not any(s.slice or s.row_index or s.include_file_paths or s.hive_columns for s in (first, scan))
    return plain and scan.kind == first.kind == "parquet" and scan.predicate == first.predicate
