"""Splits aggregations in two: a partial one where the rows are, and a final one over the partial results.

An aggregation's outputs are expressions over a group's columns. Each aggregate in them (``sum``, ``mean``, ...)
is replaced by a column, computed by a final aggregation of columns that the partial one made; what remains around
them (``sum(a) / sum(b)``) is row-wise over the final result. Aggregates without such a split make the whole
aggregation undecomposable: its raw rows travel instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import polars as pl

from cudf_polars.plan.expressions import Agg, Column, Expr, Filter, Function, Len, Literal, NamedExpr
from cudf_polars.plan.properties import columns, is_elementwise
from cudf_polars.plan.rebuild_expressions import to_expr

__all__ = ["DISTINCT", "ORDER", "Decomposition", "decompose"]

ORDER = "__rr_order"
"""A column (UInt64) that grows with the position of a row over all ranks."""
DISTINCT = "__rr_distinct"
"""The column whose distinct values are counted, as a key of the partial aggregation."""


_MERGED_BY = {
    "null_count": "sum",
    "product": "itself",
    "any": "itself",
    "all": "itself",
    "bitwise_and": "itself",
    "bitwise_or": "itself",
    "bitwise_xor": "itself",
    "has_nulls": "any",
    "is_empty": "all",
}
"""How the partial results of functions are merged."""


@dataclass
class Decomposition:
    """An aggregation split in two.

    Attributes
    ----------
    partial
        Aggregates over the rows of one rank.
    final
        Aggregates over the partial results, by the same keys.
    outputs
        The aggregation's outputs, row-wise over the final columns.
    needs_order
        Whether ``partial`` reads :data:`ORDER`.
    distinct
        If given, this expression, named :data:`DISTINCT`, is a further key of the partial aggregation.
    """

    partial: list[pl.Expr] = field(default_factory=list)
    final: list[pl.Expr] = field(default_factory=list)
    outputs: list[NamedExpr] = field(default_factory=list)
    needs_order: bool = False
    distinct: Expr | None = None


class _Undecomposable(Exception):
    """Some aggregate has no partial form."""


def decompose(outputs: Sequence[NamedExpr]) -> Decomposition | None:
    """Return how to compute ``outputs`` in two aggregations, or ``None`` if that is not possible."""
    splitter = _Splitter()
    try:
        for output in outputs:
            splitter.result.outputs.append(NamedExpr(output.name, splitter.rewrite(output.expr)))
    except _Undecomposable:
        return None
    return splitter.result


class _Splitter:
    def __init__(self) -> None:
        self.result = Decomposition()
        self._finals: dict[Expr, Column] = {}
        self._partials: dict[tuple[str, Expr], str] = {}

    def rewrite(self, expr: Expr) -> Expr:
        """Replace the aggregates of ``expr`` by columns of the final result."""
        if (known := self._finals.get(expr)) is not None:
            return known
        if isinstance(expr, Literal):
            return expr
        final = self._split(expr)
        if final is not None:
            if expr.dtype is None:
                raise _Undecomposable
            name = f"__rr_final{len(self._finals)}"
            self.result.final.append(final.cast(expr.dtype).alias(name))
            column = Column(name, dtype=expr.dtype)
            self._finals[expr] = column
            return column
        if not expr.children:
            raise _Undecomposable
        rewritten = expr.with_children(tuple(self.rewrite(child) for child in expr.children))
        if not is_elementwise(rewritten):
            raise _Undecomposable
        return rewritten

    def _partial(self, kind: str, source: Expr, make: Callable[[], pl.Expr]) -> pl.Expr:
        """Return the column of a partial aggregate, adding it if it is new."""
        key = (kind, source)
        if key not in self._partials:
            name = f"__rr_partial{len(self._partials)}"
            self._partials[key] = name
            self.result.partial.append(make().alias(name))
        return pl.col(self._partials[key])

    def _split(self, expr: Expr) -> pl.Expr | None:
        """Return the final aggregate that computes ``expr``, or ``None`` if it is not an aggregate."""
        if isinstance(expr, Len):
            return self._partial("len", expr, pl.len).sum()
        if isinstance(expr, Function):
            return self._split_function(expr)
        if not isinstance(expr, Agg):
            return None
        (source, *_) = expr.children
        if not _is_row_source(source):
            raise _Undecomposable
        dtype = source.dtype
        values = to_expr(source)
        match expr.name:
            case "sum" | "sum_or_null":
                if dtype is None or dtype.is_nested():
                    raise _Undecomposable
                total = self._partial("sum", source, values.sum).sum()
                if expr.name == "sum":
                    return total
                return pl.when(self._partial("count", source, values.count).sum() > 0).then(total)
            case "count" | "len":
                return self._partial(expr.name, source, lambda: to_expr(expr)).sum()
            case "min" | "max" | "nan_min" | "nan_max":
                if dtype is None or dtype.is_nested() or isinstance(dtype, pl.Categorical):
                    raise _Undecomposable
                return self._same_again(expr, source)
            case "mean":
                return self._mean(source)
            case "std" | "var" if _is_plain_number(dtype):
                return self._variance(expr, source)
            case "first" | "last" | "first_non_null" | "last_non_null":
                return self._positional(expr, source)
            case "n_unique":
                return self._n_unique(source)
            case _:
                raise _Undecomposable

    def _split_function(self, expr: Function) -> pl.Expr | None:
        merged = _MERGED_BY.get(expr.name)
        if merged is None:
            return None
        (source,) = expr.children
        if not _is_row_source(source) or (
            # each multiplication of decimals is rounded; Polars' plan and its result have other types for UInt128
            expr.name == "product" and (source.dtype is None or source.dtype in (pl.Decimal, pl.UInt128))
        ):
            raise _Undecomposable
        if merged == "itself":
            return self._same_again(expr, source)
        part = self._partial(f"{expr.name}{expr.args}", source, lambda: to_expr(expr))
        return {"sum": part.sum, "any": part.any, "all": part.all}[merged]()

    def _same_again(self, expr: Agg | Function, source: Expr) -> pl.Expr:
        """Aggregate the partial results by the aggregate that made them."""
        args = expr.options if isinstance(expr, Agg) else expr.args
        partial = self._partial(f"{expr.name}{args}", source, lambda: to_expr(expr))
        return to_expr(expr.with_children((Column(partial.meta.output_name(), dtype=expr.dtype),)))

    def _mean(self, source: Expr) -> pl.Expr:
        dtype, values = source.dtype, to_expr(source)
        if isinstance(dtype, pl.Decimal):
            total = self._partial("sum", source, values.sum).sum().cast(pl.Float64)
            count = self._partial("number", source, values.count).sum()
            return pl.when(count > 0).then(total / count)
        if dtype is not None and dtype.is_temporal():
            # the sum of many points in time is larger than their integers; the mean is not
            physical = values.to_physical().cast(pl.Int128)
            total = self._partial("sum of points", source, physical.sum).sum().cast(pl.Float64)
            count = self._partial("number", source, values.count).sum()
            unit = 86_400_000_000 if dtype == pl.Date else 1
            return pl.when(count > 0).then((total / count * unit).cast(pl.Int64))
        if not _is_plain_number(dtype):
            raise _Undecomposable
        total, number = self._moments(source)
        return pl.when(number.sum() > 0).then(total.sum() / number.sum())

    def _moments(self, source: Expr) -> tuple[pl.Expr, pl.Expr]:
        values = to_expr(source).cast(pl.Float64)
        return self._partial("total", source, values.sum), self._partial("number", source, values.count)

    def _variance(self, expr: Agg, source: Expr) -> pl.Expr:
        """Merge the squared deviations of the parts (Chan, Golub and LeVeque, 1979)."""
        total, count = self._moments(source)
        values = to_expr(source).cast(pl.Float64)
        squares = self._partial(
            "squares", source, lambda: (values.var(ddof=0) * values.count()).fill_null(0.0)
        )
        mean = total.sum() / count.sum()
        between = pl.when(count > 0).then(count * (total / count - mean) ** 2).otherwise(0.0)
        freedom = count.sum().cast(pl.Int64) - int(expr.options[0])
        variance = (squares.sum() + between.sum()) / freedom
        return pl.when(freedom > 0).then(variance.sqrt() if expr.name == "std" else variance)

    def _positional(self, expr: Agg, source: Expr) -> pl.Expr:
        """Take the value of the part whose row comes first (or last) over all ranks."""
        values = to_expr(source)
        position = pl.col(ORDER)
        for mask in _masks(source):
            position = position.filter(to_expr(mask))
        if expr.name.endswith("_non_null"):
            position = position.filter(values.is_not_null())
        self.result.needs_order = True
        last = expr.name.startswith("last")
        kind = "last" if last else "first"
        value = self._partial(f"value {expr.name}", source, lambda: to_expr(expr))
        where = self._partial(f"position {expr.name}", source, lambda: getattr(position, kind)())
        # A rank whose filter keeps no row of the group has no position.
        present = where.is_not_null()
        ordered = value.filter(present).sort_by(where.filter(present))
        return ordered.last() if last else ordered.first()

    def _n_unique(self, source: Expr) -> pl.Expr:
        if isinstance(source, Filter) or self.result.distinct not in (None, source):
            raise _Undecomposable
        self.result.distinct = source
        return pl.col(DISTINCT).n_unique()


def _masks(source: Expr) -> list[Expr]:
    """Return the predicates that ``source`` filters by, innermost first."""
    masks: list[Expr] = []
    while isinstance(source, Filter):
        masks.insert(0, source.children[1])
        source = source.children[0]
    return masks


def _is_row_source(expr: Expr) -> bool:
    """Whether ``expr`` makes its values row by row from columns, perhaps leaving some rows out."""
    while isinstance(expr, Filter):
        if not is_elementwise(expr.children[1]):
            return False
        expr = expr.children[0]
    # Without a column the value is one per group, however many rows the group has on each rank.
    return is_elementwise(expr) and bool(columns(expr))


def _is_plain_number(dtype: pl.DataType | None) -> bool:
    return dtype is not None and (dtype.is_numeric() or dtype == pl.Boolean)
