"""Running aggregates of SQL: of all rows up to the last one that is equal in the order, its last peer.

Polars' SQL computes them row by row and then takes each row's value from the place of its last peer. Over rows in their
order, that value is the next one of those that stand at a last peer.
"""

from __future__ import annotations

import polars as pl

from cudf_polars.plan.expressions import BinaryOp, Column, Expr, Function, Gather, Literal, Operator, Ternary

__all__ = ["from_last_peer"]


def from_last_peer(expr: Gather) -> Expr | None:
    """Return values that are taken from the places of last peers, as values that are filled backwards.

    ``None`` if the places are others.
    """
    match expr.indices:
        case Function(
            "cum_min",
            (
                Ternary(
                    BinaryOp(
                        Operator.OR,
                        BinaryOp(Operator.EQ, Function("int_range"), BinaryOp(Operator.SUB)),
                        BinaryOp(
                            Operator.NE_MISSING,
                            Column() as value,
                            Function("shift", (Column() as same, Literal(-1)), _) as following,
                        ) as differs,
                    ),
                    Function("int_range"),
                    BinaryOp(Operator.SUB),
                ),
            ),
            (True,),
        ) if value == same:
            pass
        case _:
            return None
    if expr.dtype is None:
        return None
    boolean = pl.Boolean()
    # Behind the last row there is nothing, which is null here only.
    present = Function("is_not_null", (value,), dtype=boolean)
    behind = Function("shift", (present, following.inputs[1]), dtype=boolean)
    is_last = Function("is_null", (behind,), dtype=boolean)
    stands_there = BinaryOp(Operator.OR, is_last, differs, dtype=boolean)

    def filled(values: Expr, dtype: pl.DataType) -> Expr:
        at_peers = Ternary(stands_there, values, Literal(None, dtype=dtype), dtype=dtype)
        return Function("fill_null_with_strategy", (at_peers,), ("backward", None), dtype=dtype)

    # A null at the place is the value, and not to be filled.
    is_null = filled(Function("is_null", (expr.child,), dtype=boolean), boolean)
    nothing = Literal(None, dtype=expr.dtype)
    return Ternary(is_null, nothing, filled(expr.child, expr.dtype), dtype=expr.dtype)
