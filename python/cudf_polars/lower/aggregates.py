"""Splits aggregations in two: a partial one where the rows are, and a final one over the partial results.

An aggregation's outputs are expressions over a group's columns. Each aggregate in them (``sum``, ``mean``, ...)
is replaced by a column, computed by a final aggregation of columns that the partial one made; what remains around
them (``sum(a) / sum(b)``) is row-wise over the final result. Aggregates without such a split make the whole
aggregation undecomposable: its raw rows travel instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import polars as pl

from cudf_polars.lower.shape import is_rowwise_step
from cudf_polars.lower.tallies import Tally
from cudf_polars.plan.expressions import Agg, Column, Explode, Expr, Filter, Function, Len, Literal, NamedExpr
from cudf_polars.plan.functions import FUNCTIONS
from cudf_polars.plan.properties import columns, is_elementwise
from cudf_polars.plan.rebuild_expressions import to_expr

__all__ = ["DISTINCT", "ORDER", "PARTIAL_FUNCTIONS", "Decomposition", "decompose", "is_row_source"]

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


PARTIAL_FUNCTIONS = (*_MERGED_BY, "index_of", "arg_min", "arg_max", "is_sorted", "corr", "covariance")
"""The functions that a whole table is aggregated by in parts."""


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
    tallies
        By name, the aggregates of ``partial``; None: it is no count or sum.
    needs_order
        Whether ``partial`` reads :data:`ORDER`.
    distinct
        If given, this expression, named :data:`DISTINCT`, is a further key of the partial aggregation.
    """

    partial: list[pl.Expr] = field(default_factory=list)
    final: list[pl.Expr] = field(default_factory=list)
    outputs: list[NamedExpr] = field(default_factory=list)
    tallies: dict[str, Tally | None] = field(default_factory=dict)
    needs_order: bool = False
    distinct: Expr | None = None


class _Undecomposable(Exception):
    """Some aggregate has no partial form."""


def decompose(outputs: Sequence[NamedExpr], *, of_table: bool = False) -> Decomposition | None:
    """Return how to compute ``outputs`` in two aggregations, or ``None`` if that is not possible.

    Parameters
    ----------
    of_table
        The one group is the whole table. Places of rows and lists of them can be concatenated then; of many groups it
        is cheaper to send the rows.
    """
    splitter = _Splitter(of_table=of_table)
    try:
        for output in outputs:
            splitter.result.outputs.append(NamedExpr(output.name, splitter.rewrite(output.expr)))
    except _Undecomposable:
        return None
    return splitter.result


class _Splitter:
    def __init__(self, *, of_table: bool) -> None:
        self.result = Decomposition()
        self._of_table = of_table
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

    def _partial(
        self, kind: str, source: Expr, make: Callable[[], pl.Expr], tally: Tally | None = None
    ) -> pl.Expr:
        """Return the column of a partial aggregate, adding it if it is new."""
        key = (kind, source)
        if key not in self._partials:
            name = f"__rr_partial{len(self._partials)}"
            self._partials[key] = name
            self.result.partial.append(make().alias(name))
            self.result.tallies[name] = tally
        return pl.col(self._partials[key])

    def _sum(self, kind: str, source: Expr, values: pl.Expr, dtype: pl.DataType | None) -> pl.Expr:
        """Return the column of a partial sum of ``values``, which are ``source`` in the type that is summed."""
        return self._partial(kind, source, values.sum, Tally("sum", source, values, dtype))

    def _count(self, kind: str, source: Expr) -> pl.Expr:
        """Return the column of a partial count of the values that are not null."""
        values = to_expr(source)
        return self._partial(kind, source, values.count, Tally("count", source, values))

    def _split(self, expr: Expr) -> pl.Expr | None:
        """Return the final aggregate that computes ``expr``, or ``None`` if it is not an aggregate."""
        if isinstance(expr, Len):
            return self._partial("len", expr, pl.len, Tally("rows", expr, pl.len())).sum()
        if isinstance(expr, Function):
            return self._split_function(expr)
        if not isinstance(expr, Agg):
            return None
        (source, *_) = expr.children
        if not is_row_source(source):
            raise _Undecomposable
        dtype = source.dtype
        values = to_expr(source)
        match expr.name:
            case "sum" | "sum_or_null":
                if dtype is None or dtype.is_nested():
                    raise _Undecomposable
                total = self._sum("sum", source, values, dtype).sum()
                if expr.name == "sum":
                    return total
                return pl.when(self._count("count", source).sum() > 0).then(total)
            case "count":
                return self._count("count", source).sum()
            case "len":
                return self._partial("len", source, lambda: to_expr(expr)).sum()
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
            case "implode" if self._of_table:
                return self._implode(expr, source)
            case _:
                raise _Undecomposable

    def _split_function(self, expr: Function) -> pl.Expr | None:
        if self._of_table:
            match expr.name:
                case "index_of":
                    return self._index_of(expr)
                case "arg_min" | "arg_max":
                    return self._extreme_place(expr)
                case "is_sorted":
                    return self._is_sorted(expr)
                case "corr" | "covariance":
                    return self._covariance(expr)
        merged = _MERGED_BY.get(expr.name)
        if merged is None:
            return None
        (source,) = expr.children
        if not is_row_source(source) or (
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
            total = self._sum("sum", source, values, dtype).sum().cast(pl.Float64)
            count = self._count("number", source).sum()
            return pl.when(count > 0).then(total / count)
        if dtype is not None and dtype.is_temporal():
            # the sum of many points in time is larger than their integers; the mean is not
            physical = values.to_physical().cast(pl.Int128)
            total = self._sum("sum of points", source, physical, pl.Int128()).sum().cast(pl.Float64)
            count = self._count("number", source).sum()
            unit = 86_400_000_000 if dtype == pl.Date else 1
            return pl.when(count > 0).then((total / count * unit).cast(pl.Int64))
        if not _is_plain_number(dtype):
            raise _Undecomposable
        total, number = self._moments(source)
        return pl.when(number.sum() > 0).then(total.sum() / number.sum())

    def _moments(self, source: Expr) -> tuple[pl.Expr, pl.Expr]:
        values = to_expr(source).cast(pl.Float64)
        return self._sum("total", source, values, pl.Float64()), self._count("number", source)

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
        if _changes_rows(source):
            raise _Undecomposable
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

    # -- of a whole table: its parts in their order -----------------------------------------------------------

    def _in_order(self, column: pl.Expr) -> pl.Expr:
        """Return a column of the partial results in the order of the parts' rows; parts without rows come first."""
        self.result.needs_order = True
        return column.sort_by(self._partial("place", Len(), lambda: pl.col(ORDER).min()))

    def _rows_before(self, source: Expr) -> pl.Expr:
        """Return how many values the parts before each part have, in the order of the parts."""
        rows = self._partial("rows", source, lambda: to_expr(source).len().cast(pl.Int64))
        return self._in_order(rows).cum_sum() - self._in_order(rows)

    def _index_of(self, expr: Function) -> pl.Expr:
        source, value = expr.inputs
        if not is_row_source(source) or columns(value) or not is_elementwise(value):
            raise _Undecomposable
        # It says that a value was not found by null.
        found = self._partial(f"index of {value!r}", source, lambda: to_expr(expr).cast(pl.Int64))
        return (self._in_order(found) + self._rows_before(source)).drop_nulls().first()

    def _extreme_place(self, expr: Function) -> pl.Expr:
        """Choose among the extremes of the parts by the function that chose each.

        Which of equal values it is differs between Polars' engines, too.
        """
        (source,) = expr.inputs
        if not is_row_source(source) or source.dtype is None or source.dtype.is_nested():
            raise _Undecomposable
        values, place = to_expr(source), to_expr(expr)
        where = self._partial(expr.name, source, lambda: place.cast(pl.Int64))
        value = self._partial(f"value {expr.name}", source, lambda: values.get(place))
        extremes, places = self._in_order(value), self._in_order(where) + self._rows_before(source)
        chosen = extremes.arg_min() if expr.name == "arg_min" else extremes.arg_max()
        return places.filter(extremes.eq_missing(extremes.get(chosen))).min()

    def _is_sorted(self, expr: Function) -> pl.Expr:
        """Look at the ends of the parts, which are sorted themselves."""
        (source,) = expr.inputs
        if not is_row_source(source) or source.dtype is None or source.dtype.is_nested():
            raise _Undecomposable
        values = to_expr(source)
        inside = self._partial(f"{expr.name}{expr.args}", source, lambda: to_expr(expr))
        first = self._partial("first", source, values.first)
        last = self._partial("last", source, values.last)
        present = self._in_order(self._partial("rows", source, lambda: values.len().cast(pl.Int64))) > 0
        ends = pl.concat_list(self._in_order(first).filter(present), self._in_order(last).filter(present))
        sorted_ends = FUNCTIONS[expr.name].build([ends.explode(empty_as_null=False)], expr.args)
        return inside.all() & sorted_ends

    def _covariance(self, expr: Function) -> pl.Expr:
        """Merge the products of deviations of the parts, as those of one column for a variance."""
        # Of decimals and Booleans Polars' streaming engine has none, which is its to say.
        if not all(
            is_elementwise(e)
            and columns(e)
            and e.dtype is not None
            and (e.dtype.is_integer() or e.dtype.is_float())
            for e in expr.inputs
        ):
            raise _Undecomposable
        x, y = (to_expr(e).cast(pl.Float64) for e in expr.inputs)
        both = x.is_not_null() & y.is_not_null()
        x, y = pl.when(both).then(x), pl.when(both).then(y)

        def part(kind: str, make: Callable[[], pl.Expr]) -> pl.Expr:
            return self._partial(f"pairs {kind} {expr.inputs[1]!r}", expr.inputs[0], make)

        count = part("count", x.count)
        rows = count.sum()
        means = [part(f"mean {n}", v.mean) for n, v in enumerate((x, y))]
        between = [mean - (mean * count).sum() / rows for mean in means]

        def deviations(first: int, second: int) -> pl.Expr:
            a, b = ((x, y)[n] - (x, y)[n].mean() for n in (first, second))
            within = part(f"deviations {first}{second}", lambda: (a * b).sum())
            return within.sum() + (count * between[first] * between[second]).sum()

        if expr.name == "covariance":
            freedom = rows.cast(pl.Int64) - int(expr.args[0])
            return pl.when((rows > 0) & (freedom > 0)).then(deviations(0, 1) / freedom)
        # What is rounded must not look like a deviation where all values are the same.
        same = [part(f"low {n}", v.min).min() == part(f"high {n}", v.max).max() for n, v in enumerate((x, y))]
        ratio = deviations(0, 1) / (deviations(0, 0) * deviations(1, 1)).sqrt()
        constant = pl.any_horizontal(*same).fill_null(False)
        return pl.when(rows > 0).then(pl.when(constant).then(pl.lit(math.nan)).otherwise(ratio))

    def _implode(self, expr: Agg, source: Expr) -> pl.Expr:
        part = self._partial(f"list {expr.options}", source, lambda: to_expr(expr))
        return self._in_order(part).explode(empty_as_null=False).implode()

    def _n_unique(self, source: Expr) -> pl.Expr:
        # Of a group, a filter may leave nothing, and then there would be no row of the group.
        if not (self._of_table or is_elementwise(source)) or self.result.distinct not in (None, source):
            raise _Undecomposable
        self.result.distinct = source
        return pl.col(DISTINCT).n_unique()


def _changes_rows(source: Expr) -> bool:
    """Whether the values of ``source`` are others, in number, than the rows that it filters."""
    while isinstance(source, Filter):
        source = source.children[0]
    return not is_elementwise(source)


def _masks(source: Expr) -> list[Expr]:
    """Return the predicates that ``source`` filters by, innermost first."""
    masks: list[Expr] = []
    while isinstance(source, Filter):
        masks.insert(0, source.children[1])
        source = source.children[0]
    return masks


def is_row_source(expr: Expr) -> bool:
    """Whether ``expr`` makes its values row by row from columns, perhaps leaving some rows out or making several."""
    while not is_elementwise(expr):
        match expr:
            case Filter(child, predicate) if is_elementwise(predicate) and not _changes_rows(child):
                expr = child
            case Explode(child):
                expr = child
            case Function(name, (child,)) if name in ("drop_nulls", "drop_nans"):
                expr = child
            case _:
                rest = [child for child in expr.children if not isinstance(child, Literal)]
                if len(rest) != 1 or not is_rowwise_step(expr):
                    return False
                expr = rest[0]
    # Without a column the value is one per group, however many rows the group has on each rank.
    return bool(columns(expr))


def _is_plain_number(dtype: pl.DataType | None) -> bool:
    return dtype is not None and (dtype.is_numeric() or dtype == pl.Boolean)
