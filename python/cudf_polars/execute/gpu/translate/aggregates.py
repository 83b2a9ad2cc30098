"""Aggregations of Polars as aggregates of libcudf, and expressions over them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import polars as pl

from cudf_polars.execute.gpu.program import Aggregate, Column, CudfType, Value
from cudf_polars.execute.gpu.translate import decimals, operators
from cudf_polars.execute.gpu.translate.casts import cast, widen_to_float
from cudf_polars.execute.gpu.translate.expressions import choose, translate_expression
from cudf_polars.execute.gpu.translate.functions.call import where
from cudf_polars.execute.gpu.translate.ranges import Range, combine, limits_of
from cudf_polars.execute.gpu.translate.typed import Scope, Typed, call, condition, null
from cudf_polars.execute.gpu.translate.types import (
    INT8,
    decimal_type,
    device_type,
    is_float,
    is_integer,
    scale_of,
)
from cudf_polars.execute.gpu.translate.untranslatable import Unsupported
from cudf_polars.plan import expressions as ex
from cudf_polars.plan.functions import FUNCTIONS, Kind
from cudf_polars.plan.properties import walk

__all__ = ["AGGREGATE_FUNCTIONS", "AGGREGATIONS", "Aggregation", "is_aggregate"]

_MOST_ROWS = 2**33
"""No column of so many rows is added up on one GPU."""
_UINT32 = pl.UInt32()


def is_aggregate(expr: ex.Expr) -> bool:
    """Whether this expression makes one value of all rows (of a group)."""
    match expr:
        case ex.Agg() | ex.Len():
            return True
        case ex.Function():
            return FUNCTIONS[expr.name].kind is Kind.AGGREGATION
        case _:
            return False


class Aggregation:
    """The aggregates of one group-by: what goes in, what libcudf computes, and what Polars makes of it.

    Parameters
    ----------
    scope
        The columns of the rows.
    keys
        The number of keys, which come before the aggregates in the result.
    ordered
        The rows come in the order that Polars has them in, or in any if Polars promises none.
    """

    def __init__(self, scope: Scope, keys: int, *, ordered: bool) -> None:
        self._scope = scope
        self._constants = scope.constants
        self._keys = keys
        self._ordered = ordered
        self._places: dict[Value, int] = {}
        self._done: dict[ex.Expr, Typed] = {}
        self.inputs: list[Typed] = []
        self.aggregates: list[Aggregate] = []
        self.results: dict[str, Typed] = {}

    def split(self, expr: ex.Expr) -> ex.Expr:
        """Return an expression over the result, with a column of :attr:`results` for each aggregate in it.

        Raises
        ------
        Unsupported
            If an aggregate has no form.
        """
        if not is_aggregate(expr):
            children = expr.children
            return expr.with_children([self.split(child) for child in children]) if children else expr
        name = f"aggregate {len(self.results)}"
        if expr not in self._done:
            self._done[expr] = self._aggregate(expr)
        self.results[name] = self._done[expr]
        return ex.Column(name, dtype=self._done[expr].dtype)

    @property
    def types(self) -> tuple[CudfType, ...]:
        """The types of the aggregates."""
        return tuple(aggregate.type for aggregate in self.aggregates)

    def _aggregate(self, expr: ex.Expr) -> Typed:
        try:
            done = self._translate(expr)
        except Unsupported as refused:
            if refused.expression is None:
                raise Unsupported(refused.reason, expr) from None
            raise
        if expr.dtype is not None and done.dtype != expr.dtype:
            raise Unsupported(f"Polars gives it the type {expr.dtype}, not {done.dtype}", expr)
        return done

    def _translate(self, expr: ex.Expr) -> Typed:
        if isinstance(expr, ex.Len):
            return self._count_all()
        if isinstance(expr, ex.Agg):
            form = AGGREGATIONS.get(expr.name)
            if form is None:
                raise Unsupported(f"the aggregation {expr.name} has no form on a GPU")
            if expr.name == "len":
                return self._len(expr.child)
            return form(self, self._input(expr), expr)
        assert isinstance(expr, ex.Function)
        function = AGGREGATE_FUNCTIONS.get(expr.name)
        if function is None:
            raise Unsupported(f"the function {expr.name} has no form on a GPU")
        return function(self, self._rows(expr.inputs[0], expr.name), expr)

    def _rows(self, expr: ex.Expr, name: str) -> Typed:
        """Return the values of rows: what names no column has one value in Polars, however many rows there are."""
        if not any(isinstance(e, ex.Column) for e in walk(expr)):
            raise Unsupported(f"{name} of a constant")
        made = translate_expression(expr, self._scope)
        if made.literal is not None or made.is_null_literal:
            raise Unsupported(f"{name} of a constant")
        return made

    def _input(self, expr: ex.Agg) -> Typed:
        child = expr.child
        if not isinstance(child, ex.Filter):
            return self._rows(child, expr.name)
        if expr.name not in _IGNORE_NULLS:
            raise Unsupported(f"{expr.name} of filtered rows")
        kept = self._rows(child.child, expr.name)
        mask = self._rows(child.predicate, "a filter")
        made = choose(mask, kept, null(kept.dtype, kept.type), self._constants)
        if made.literal is not None or made.is_null_literal:
            raise Unsupported(f"{expr.name} of a constant")
        return made

    def _primitive(
        self,
        kind: str,
        column: Typed | None,
        dtype: pl.DataType,
        *,
        type: CudfType | None = None,
        options: tuple[int | float | str, ...] = (),
        range: Range | None = None,
        nullable: bool = True,
    ) -> Typed:
        """Return what an aggregate of libcudf gives; ``column`` is ``None`` if any will do."""
        place = 0 if column is None else self._place(column)
        type = device_type(dtype) if type is None else type
        wanted = Aggregate(kind, place, type, options)
        if wanted not in self.aggregates:
            self.aggregates.append(wanted)
        index = self._keys + self.aggregates.index(wanted)
        return Typed(
            Column(index, type), dtype, Range(limits_of(dtype)) if range is None else range, nullable
        )

    def _place(self, column: Typed) -> int:
        place = self._places.setdefault(column.value, len(self.inputs))
        if place == len(self.inputs):
            self.inputs.append(column)
        return place

    def _zero_for_null(self, t: Typed, zero: Any) -> Typed:
        if not t.nullable:
            return t
        constant = self._constants.value(zero, t.dtype, t.type)
        return call(
            "replace_nulls",
            (t, constant),
            t.dtype,
            type=t.type,
            range=operators.hull(t.range, constant.range),
            nullable=False,
        )

    def _may_be_empty(self, t: Typed) -> bool:
        """Whether a group may have no valid value: groups have rows, the whole table need not."""
        return t.nullable or self._keys == 0

    # --- counts ----------------------------------------------------------------------

    def _count_all(self) -> Typed:
        return self._primitive("count_all", None, _UINT32, range=Range((0, 2**32 - 1)), nullable=False)

    def _count(self, t: Typed, expr: ex.Expr) -> Typed:
        if not t.nullable:
            return self._count_all()
        return self._primitive("count_valid", t, _UINT32, range=Range((0, 2**32 - 1)), nullable=False)

    def _len(self, child: ex.Expr) -> Typed:
        self._rows(child.child if isinstance(child, ex.Filter) else child, "len")
        if not isinstance(child, ex.Filter):
            return self._count_all()
        mask = self._rows(child.predicate, "a filter")
        if mask.nullable:
            mask = condition(
                "replace_nulls", mask, self._constants.value(False, pl.Boolean()), nullable=False
            )
        return self._sum(mask, child)

    def _n_unique(self, t: Typed, expr: ex.Expr) -> Typed:
        if t.dtype.is_nested():
            raise Unsupported(f"n_unique of {t.dtype}")
        if is_float(t.dtype):
            t = call("normalize_nans_and_zeros", (t,), t.dtype)
        return self._primitive("nunique", t, _UINT32, range=Range((0, 2**32 - 1)), nullable=False)

    def _null_count(self, t: Typed, expr: ex.Expr) -> Typed:
        if not t.nullable:
            return self._constants.value(0, _UINT32)
        return call("sub", (self._count_all(), self._count(t, expr)), _UINT32)

    # --- sums ----------------------------------------------------------------------

    def _sum_or_null(self, t: Typed, expr: ex.Expr) -> Typed:
        dtype = t.dtype
        empty = self._may_be_empty(t)
        if isinstance(dtype, pl.Decimal):
            return self._sum_of_decimals(t, nullable=empty)
        if isinstance(dtype, pl.Boolean):
            ones = call("cast", (t,), pl.Int64(), range=Range((0, 1)))
            return self._primitive("sum", ones, _UINT32, range=Range((0, 2**32 - 1)), nullable=empty)
        if is_integer(dtype):
            wide = isinstance(dtype, pl.Int8 | pl.Int16 | pl.UInt8 | pl.UInt16)
            return self._primitive("sum", t, pl.Int64() if wide else dtype, nullable=empty)
        if is_float(dtype):
            total = widen_to_float(t, self._constants)
            range_ = _of_all_rows(total.range) if isinstance(dtype, pl.Float64) else Range()
            return self._primitive("sum", total, dtype, range=range_, nullable=empty)
        if isinstance(dtype, pl.Duration):
            ticks = call("bit_cast", (t,), pl.Int64())
            total = self._primitive("sum", ticks, pl.Int64(), nullable=empty)
            return call("bit_cast", (total,), dtype)
        raise Unsupported(f"a sum of {dtype}")

    def _sum(self, t: Typed, expr: ex.Expr) -> Typed:
        total = self._sum_or_null(t, expr)
        if isinstance(total.dtype, pl.Duration):
            zero: Any = pl.Series([0]).cast(total.dtype).item()
        else:
            zero = 0.0 if is_float(total.dtype) else 0
        return self._zero_for_null(total, zero)

    def _sum_of_decimals(self, t: Typed, *, nullable: bool) -> Typed:
        scale = scale_of(t.dtype)
        total = _of_all_rows(t.range)
        wide = not total.within(-(2**63) + 1, 2**63 - 1)
        if wide and not total.within(-(10**38) + 1, 10**38 - 1):
            raise Unsupported("a sum of decimals may exceed 38 digits; no statistics say otherwise")
        type_ = decimal_type(scale, wide=wide)
        column = decimals.retype(t, type_)
        return self._primitive(
            "sum", column, pl.Decimal(38, scale), type=type_, range=total, nullable=nullable
        )

    def _mean(self, t: Typed, expr: ex.Expr) -> Typed:
        if isinstance(t.dtype, pl.Decimal):
            total = self._sum_of_decimals(t, nullable=self._may_be_empty(t))
            total = decimals.to_float(total, self._constants)
            range_ = decimals.float_range(t)
        elif t.dtype.is_numeric() or isinstance(t.dtype, pl.Boolean):
            number = widen_to_float(t, self._constants)
            range_ = number.range
            total = self._primitive(
                "sum",
                number,
                pl.Float64(),
                range=_of_all_rows(number.range),
                nullable=self._may_be_empty(t),
            )
        else:
            raise Unsupported(f"a mean of {t.dtype}")
        count = cast(self._count(t, expr), pl.Float64(), ex.CastMode.NON_STRICT, self._constants)
        mean = call("div", (total, count), pl.Float64(), range=range_)
        return self._narrow(mean, t)

    def _narrow(self, result: Typed, t: Typed) -> Typed:
        """Return a result as Float32 if it is of Float32."""
        if isinstance(t.dtype, pl.Float32):
            return call("cast", (result,), pl.Float32(), range=Range(), nullable=True)
        return replace(result, nullable=True)

    def _spread(self, t: Typed, expr: ex.Expr) -> Typed:
        assert isinstance(expr, ex.Agg)
        if not t.dtype.is_numeric():
            raise Unsupported(f"{expr.name} of {t.dtype}")
        number = widen_to_float(t, self._constants)
        (ddof,) = expr.options
        return self._narrow(self._primitive(expr.name, number, pl.Float64(), options=(ddof,)), t)

    def _median(self, t: Typed, expr: ex.Expr) -> Typed:
        if not t.dtype.is_numeric():
            raise Unsupported(f"a median of {t.dtype}")
        number = widen_to_float(t, self._constants)
        middle = self._primitive("median", number, pl.Float64(), range=number.range)
        return self._narrow(self._between(number, 0.5, middle), t)

    def _between(self, t: Typed, part: float, middle: Typed) -> Typed:
        """Return a value between two others; between infinity and itself libcudf finds NaN."""
        if t.range.finite:
            return middle
        low, high = (
            self._primitive("quantile", t, pl.Float64(), options=(part, way), range=Range())
            for way in ("lower", "higher")
        )
        return replace(where(condition("equal", low, high), low, middle), range=Range())

    # --- extremes ----------------------------------------------------------------------

    def _extreme(self, t: Typed, expr: ex.Expr) -> Typed:
        assert isinstance(expr, ex.Agg)
        kind = expr.name.removeprefix("nan_")
        if isinstance(t.dtype, pl.Boolean):
            return condition("cast", self._smallest(kind, call("cast", (t,), pl.Int8(), type=INT8)))
        if t.dtype.is_nested():
            raise Unsupported(f"{expr.name} of {t.dtype}")
        if not t.nan:
            return self._smallest(kind, t)
        if expr.name.startswith("nan_"):
            raise Unsupported("an extreme that is NaN if there is one")
        number = self._smallest(kind, call("nans_to_nulls", (t,), t.dtype, range=Range(), nullable=True))
        is_nan = call(
            "cast", (condition("is_nan", t, nullable=False),), pl.Int8(), type=INT8, range=Range((0, 1))
        )
        some_nan = condition("cast", self._smallest("max", is_nan))
        only_nan = operators.all_of(condition("is_null", number, nullable=False), some_nan)
        nan = self._constants.value(float("nan"), t.dtype)
        return call("copy_if_else", (only_nan, nan, number), t.dtype, range=Range(), nullable=True)

    def _smallest(self, kind: str, t: Typed) -> Typed:
        return self._primitive(kind, t, t.dtype, type=t.type, range=t.range, nullable=self._may_be_empty(t))

    def _any(self, t: Typed, expr: ex.Expr) -> Typed:
        assert isinstance(expr, ex.Function)
        (ignore_nulls,) = expr.args
        if t.nullable and not ignore_nulls:
            raise Unsupported(f"{expr.name} that does not ignore nulls")
        kind, nothing = ("max", False) if expr.name == "any" else ("min", True)
        bits = call("cast", (t,), pl.Int8(), type=INT8, range=Range((0, 1)))
        return self._zero_for_null(condition("cast", self._smallest(kind, bits)), nothing)

    def _has_nulls(self, t: Typed, expr: ex.Expr) -> Typed:
        nulls = self._null_count(t, expr)
        return operators.compare(ex.Operator.GT, nulls, self._constants.value(0, _UINT32), self._constants)

    def _is_empty(self, t: Typed, expr: ex.Expr) -> Typed:
        assert isinstance(expr, ex.Function)
        (ignore_nulls,) = expr.args
        count = self._count(t, expr) if ignore_nulls else self._count_all()
        return operators.compare(ex.Operator.EQ, count, self._constants.value(0, _UINT32), self._constants)

    def _product(self, t: Typed, expr: ex.Expr) -> Typed:
        if isinstance(t.dtype, pl.Float64):
            product = self._primitive("product", t, t.dtype, nullable=self._may_be_empty(t))
            return self._zero_for_null(product, 1.0)
        if not (is_integer(t.dtype) or isinstance(t.dtype, pl.Boolean)) or isinstance(t.dtype, pl.UInt64):
            raise Unsupported(f"a product of {t.dtype}")
        number = cast(t, pl.Int64(), ex.CastMode.NON_STRICT, self._constants)
        product = self._primitive("product", number, pl.Int64(), nullable=self._may_be_empty(t))
        return self._zero_for_null(product, 1)

    def _quantile(self, t: Typed, expr: ex.Expr) -> Typed:
        assert isinstance(expr, ex.Function)
        (kind,) = expr.args
        part = expr.inputs[1]
        if kind not in ("linear", "lower", "higher", "midpoint") or not isinstance(part, ex.Literal):
            raise Unsupported(f"a quantile by {kind}")
        if not t.dtype.is_numeric() or not isinstance(part.value, int | float):
            raise Unsupported(f"a quantile of {t.dtype}")
        number = widen_to_float(t, self._constants)
        place = float(part.value)
        value = self._primitive("quantile", number, pl.Float64(), options=(place, str(kind)))
        if kind in ("linear", "midpoint"):
            value = self._between(number, place, value)
        return self._narrow(value, t)

    def _end(self, t: Typed, expr: ex.Expr) -> Typed:
        assert isinstance(expr, ex.Agg)
        if not self._ordered:
            raise Unsupported(f"{expr.name} needs the order of the rows")
        return self._primitive(expr.name, t, t.dtype, type=t.type, range=t.range)


def _of_all_rows(range_: Range) -> Range:
    """Return the range of a sum."""
    return combine(lambda i: (min(i[0], 0) * _MOST_ROWS, max(i[1], 0) * _MOST_ROWS), range_)


_IGNORE_NULLS = ("sum", "sum_or_null", "mean", "min", "max", "count", "std", "var", "median")

AGGREGATIONS: dict[str, Callable[[Aggregation, Typed, ex.Expr], Typed]] = {
    "sum": Aggregation._sum,
    "sum_or_null": Aggregation._sum_or_null,
    "mean": Aggregation._mean,
    "median": Aggregation._median,
    "min": Aggregation._extreme,
    "max": Aggregation._extreme,
    "nan_min": Aggregation._extreme,
    "nan_max": Aggregation._extreme,
    "n_unique": Aggregation._n_unique,
    "std": Aggregation._spread,
    "var": Aggregation._spread,
    "count": Aggregation._count,
    "len": Aggregation._count,
    "first": Aggregation._end,
    "last": Aggregation._end,
}
AGGREGATE_FUNCTIONS: dict[str, Callable[[Aggregation, Typed, ex.Expr], Typed]] = {
    "null_count": Aggregation._null_count,
    "has_nulls": Aggregation._has_nulls,
    "is_empty": Aggregation._is_empty,
    "product": Aggregation._product,
    "quantile": Aggregation._quantile,
    "any": Aggregation._any,
    "all": Aggregation._any,
}
