"""Views of expressions: one method for each class of :mod:`polars._plr._expr_nodes`."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import polars as pl

from cudf_polars.plan import expressions as ex
from cudf_polars.plan.dsl_facts import DslFacts
from cudf_polars.plan.errors import Unreadable
from cudf_polars.plan.functions import FUNCTIONS
from cudf_polars.plan.polars16.function_names import fix_view, function_name
from cudf_polars.plan.polars16.values import duration, freeze, per_key, variant
from cudf_polars.plan.properties import holds_choice

__all__ = ["ExpressionReader", "operator"]

Sub = Callable[[int], ex.Expr]
"""Reads an expression below."""

_OPERATORS = {
    "Eq": ex.Operator.EQ,
    "EqValidity": ex.Operator.EQ_MISSING,
    "NotEq": ex.Operator.NE,
    "NotEqValidity": ex.Operator.NE_MISSING,
    "Lt": ex.Operator.LT,
    "LtEq": ex.Operator.LE,
    "Gt": ex.Operator.GT,
    "GtEq": ex.Operator.GE,
    "Plus": ex.Operator.ADD,
    "Minus": ex.Operator.SUB,
    "Multiply": ex.Operator.MUL,
    "Divide": ex.Operator.RUST_DIV,
    "TrueDivide": ex.Operator.TRUE_DIV,
    "TruncDivide": ex.Operator.TRUNC_DIV,
    "FloorDivide": ex.Operator.FLOOR_DIV,
    "Modulus": ex.Operator.MOD,
    "And": ex.Operator.AND,
    "LogicalAnd": ex.Operator.AND,
    "Or": ex.Operator.OR,
    "LogicalOr": ex.Operator.OR,
    "Xor": ex.Operator.XOR,
}
_CAST_MODES = (ex.CastMode.STRICT, ex.CastMode.NON_STRICT, ex.CastMode.WRAP)
_MAPPINGS = {"groups_to_rows": "group_to_rows"}
_TRUE = ex.Literal(True, dtype=pl.Boolean())


def operator(view: Any) -> ex.Operator:
    """Return the operator of a view of one."""
    return _OPERATORS[variant(view)]


class ExpressionReader:
    """Reads the expressions of one plan.

    Parameters
    ----------
    traverser
        Polars' ``NodeTraverser``.
    dsl_facts
        Called when the query has a gather; the views leave out ``null_on_oob``.
    exact_times
        Called when a time or a datetime of nanoseconds is a literal, of which the views show whole microseconds; says
        whether these are all in the plan.
    opaque_expressions
        What placeholders in the plan stand for, by their number.
    """

    def __init__(
        self,
        traverser: Any,
        *,
        dsl_facts: Callable[[], DslFacts],
        exact_times: Callable[[], bool],
        opaque_expressions: Mapping[int, ex.OpaqueSource],
    ) -> None:
        self._nt = traverser
        self._dsl_facts = dsl_facts
        self._exact_times = exact_times
        self._opaque_expressions = opaque_expressions

    def named(self, views: Sequence[Any], node: int) -> tuple[ex.NamedExpr, ...]:
        """Read expressions with their names; ``node`` is the number of the node whose columns they read."""
        self._nt.set_node(node)
        return tuple(ex.NamedExpr(view.output_name, self._read(view.node, None)) for view in views)

    def predicate(self, number: int, node: int) -> ex.Expr | None:
        """Read a predicate without what Polars adds at run time (bounds of a running top-k)."""
        self._nt.set_node(node)
        out = _without_dynamic(self._read(number, None))
        return None if isinstance(out, ex.Literal) and out.value is True else out

    def joined(self, number: int, left: int, right: int, suffix: str) -> ex.Expr:
        """Read an expression over the columns of a join of two nodes."""
        nt = self._nt
        nt.set_node(left)
        types: dict[str, pl.DataType] = dict(nt.get_schema())
        nt.set_node(right)
        for name, dtype in nt.get_schema().items():
            types[name + suffix if name in types else name] = dtype
        return self._read(number, types)

    def _read(self, number: int, types: Mapping[str, pl.DataType] | None) -> ex.Expr:
        """Read an expression over the current node, or over columns of these types."""
        try:
            view = self._nt.view_expression(number)
        except (NotImplementedError, ValueError) as e:
            raise Unreadable(str(e).split("\n")[0][:80]) from e
        kind = type(view).__name__
        reader = getattr(self, "_expr_" + kind, None)
        dtype = self._dtype(number) if types is None else types.get(view.name) if kind == "Column" else None
        if reader is None:
            raise Unreadable(f"expression {kind}")
        expr: ex.Expr = reader(view, dtype, lambda child: self._read(child, types))
        return expr

    def _dtype(self, number: int) -> pl.DataType | None:
        try:
            dtype: pl.DataType = self._nt.get_dtype(number)
        except (pl.exceptions.PolarsError, NotImplementedError, ValueError, KeyError):
            return None
        return dtype

    def _expr_Column(self, view: Any, dtype: pl.DataType | None, sub: Sub) -> ex.Expr:
        return ex.Column(view.name, dtype=dtype)

    def _expr_Literal(self, view: Any, dtype: pl.DataType | None, sub: Sub) -> ex.Expr:
        value, kind = view.value, view.dtype
        if type(value).__name__ == "PySeries":
            return ex.Literal(ex.FrozenSeries(pl.Series._from_pyseries(value)), scalar=False, dtype=kind)
        finer = isinstance(value, datetime.time) or (
            isinstance(value, datetime.datetime) and kind.time_unit == "ns"
        )
        if finer and not self._exact_times():
            raise Unreadable("a literal of nanoseconds")
        if isinstance(value, list | dict) or isinstance(kind, pl.Array | pl.Categorical | pl.Enum):
            # only a series holds nested values and categories exactly
            return ex.Literal(ex.FrozenSeries(pl.Series("literal", [value], dtype=kind)), dtype=kind)
        return ex.Literal(value, dtype=kind)

    def _expr_Alias(self, view: Any, dtype: pl.DataType | None, sub: Sub) -> ex.Expr:
        return sub(view.expr)

    def _expr_BinaryExpr(self, view: Any, dtype: pl.DataType | None, sub: Sub) -> ex.Expr:
        return ex.BinaryOp(operator(view.op), sub(view.left), sub(view.right), dtype=dtype)

    def _expr_Cast(self, view: Any, dtype: pl.DataType | None, sub: Sub) -> ex.Expr:
        return ex.Cast(sub(view.expr), view.dtype, _CAST_MODES[view.options], dtype=view.dtype)

    def _expr_Agg(self, view: Any, dtype: pl.DataType | None, sub: Sub) -> ex.Expr:
        arguments = [sub(a) for a in view.arguments]
        name, option = view.name, view.options
        if len(arguments) != 1:
            raise Unreadable(f"aggregation {name} of {len(arguments)} inputs")
        (child,) = arguments
        if name in ("min", "max"):
            return ex.Agg(f"nan_{name}" if option else name, child, dtype=dtype)
        if name == "count":
            return ex.Agg("len" if option else "count", child, dtype=dtype)
        if name == "implode":
            return ex.Agg(name, child, (option or holds_choice(child),), dtype=dtype)
        if name in ("std", "var", "item"):
            return ex.Agg(name, child, (option,), dtype=dtype)
        if name == "sum" and option:
            return ex.Agg("sum_or_null", child, dtype=dtype)  # SQL's: null where there is nothing to add
        if name in ("sum", "mean", "median", "n_unique", "first", "last", "first_non_null", "last_non_null"):
            return ex.Agg(name, child, dtype=dtype)
        raise Unreadable(f"aggregation {name}")

    def _expr_Function(self, view: Any, dtype: pl.DataType | None, sub: Sub) -> ex.Expr:
        inputs = [sub(a) for a in view.input]
        data = view.function_data if isinstance(view.function_data, tuple) else (view.function_data,)
        head, args = data[0], tuple(freeze(a) for a in data[1:])
        if head == "ffi_plugin":
            return self._plugin(args, inputs)
        name = function_name(head)
        if name == "dynamic_pred":
            return _TRUE
        name, args = fix_view(name, args, inputs, dtype)
        if name not in FUNCTIONS:
            raise Unreadable(f"function {name}")
        return ex.Function(name, tuple(inputs), args, dtype=dtype)

    def _plugin(self, args: tuple[Any, ...], inputs: list[ex.Expr]) -> ex.Expr:
        _library, symbol, kwargs, *_flags = args
        if symbol != "placeholder":
            raise Unreadable(f"plugin {symbol}")
        key = int(bytes(kwargs).rsplit(b";", 1)[1])
        source = self._opaque_expressions.get(key)
        if source is None:
            raise Unreadable("a placeholder of another query")
        return ex.Opaque(source, tuple(inputs), dtype=source.dtype)

    def _expr_Ternary(self, view: Any, dtype: pl.DataType | None, sub: Sub) -> ex.Expr:
        return ex.Ternary(sub(view.predicate), sub(view.truthy), sub(view.falsy), dtype=dtype)

    def _expr_Filter(self, view: Any, dtype: pl.DataType | None, sub: Sub) -> ex.Expr:
        return ex.Filter(sub(view.input), sub(view.by), dtype=dtype)

    def _expr_Len(self, view: Any, dtype: pl.DataType | None, sub: Sub) -> ex.Expr:
        return ex.Len(dtype=dtype)

    def _expr_Slice(self, view: Any, dtype: pl.DataType | None, sub: Sub) -> ex.Expr:
        return ex.Slice(sub(view.input), sub(view.offset), sub(view.length), dtype=dtype)

    def _expr_Sort(self, view: Any, dtype: pl.DataType | None, sub: Sub) -> ex.Expr:
        maintain_order, nulls_last, descending = view.options
        return ex.Sort(sub(view.expr), descending, nulls_last, maintain_order, dtype=dtype)

    def _expr_SortBy(self, view: Any, dtype: pl.DataType | None, sub: Sub) -> ex.Expr:
        maintain_order, nulls_last, descending = view.sort_options
        by = tuple(sub(b) for b in view.by)
        return ex.SortBy(
            sub(view.expr),
            by,
            per_key(descending, len(by)),
            per_key(nulls_last, len(by)),
            maintain_order,
            dtype=dtype,
        )

    def _expr_Gather(self, view: Any, dtype: pl.DataType | None, sub: Sub) -> ex.Expr:
        null_on_oob = self._dsl_facts().null_on_oob
        if null_on_oob is None:
            raise Unreadable("gathers of which 'null_on_oob' differs or cannot be found out")
        return ex.Gather(sub(view.expr), sub(view.idx), view.scalar, null_on_oob, dtype=dtype)

    def _expr_Explode(self, view: Any, dtype: pl.DataType | None, sub: Sub) -> ex.Expr:
        empty_as_null, keep_nulls = view.options
        return ex.Explode(sub(view.expr), empty_as_null, keep_nulls, dtype=dtype)

    def _expr_Window(self, view: Any, dtype: pl.DataType | None, sub: Sub) -> ex.Expr:
        mapping = view.options.kind
        return ex.Window(
            sub(view.function),
            tuple(sub(p) for p in view.partition_by),
            None if view.order_by is None else sub(view.order_by),
            view.order_by_descending,
            view.order_by_nulls_last,
            _MAPPINGS.get(mapping, mapping),
            dtype=dtype,
        )

    def _expr_Rolling(self, view: Any, dtype: pl.DataType | None, sub: Sub) -> ex.Expr:
        return ex.Rolling(
            sub(view.function),
            sub(view.index_column),
            duration(view.period),
            duration(view.offset),
            view.closed_window,
            dtype=dtype,
        )

    def _expr_StructEval(self, view: Any, dtype: pl.DataType | None, sub: Sub) -> ex.Expr:
        fields = tuple(ex.NamedExpr(e.output_name, sub(e.node)) for e in view.evaluation)
        return ex.StructEval(sub(view.expr), fields, dtype=dtype)


def _without_dynamic(expr: ex.Expr) -> ex.Expr:
    if isinstance(expr, ex.BinaryOp) and expr.op is ex.Operator.AND:
        left, right = _without_dynamic(expr.left), _without_dynamic(expr.right)
        if left is _TRUE:
            return right
        if right is _TRUE:
            return left
        return expr.with_children((left, right))
    return expr
