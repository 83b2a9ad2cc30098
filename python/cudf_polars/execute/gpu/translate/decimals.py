"""Decimals as Polars has them: products keep the larger scale, rounded half to even; an overflow is an error.

A GPU computes modulo 2**64 or 2**128, so a decimal is computed only where the ranges of its inputs prove that it
fits, and with 64 bits where they prove that.
"""

from __future__ import annotations

import decimal
from dataclasses import replace

import polars as pl

from cudf_polars.execute.gpu.program import CudfType, TypeId
from cudf_polars.execute.gpu.translate.ranges import Interval, Range, combine
from cudf_polars.execute.gpu.translate.typed import Constants, Typed, call
from cudf_polars.execute.gpu.translate.types import (
    FLOAT64,
    INT64,
    decimal_type,
    scale_of,
)
from cudf_polars.execute.gpu.translate.untranslatable import Unsupported
from cudf_polars.plan.expressions import Operator

__all__ = ["align", "arithmetic", "float_range", "rescale", "retype", "round_to", "to_float"]

_INT64 = (-(2**63) + 1, 2**63 - 1)
_DIGITS38 = (-(10**38) + 1, 10**38 - 1)
_INT128 = (-(2**127) + 1, 2**127 - 1)
_EXACT = decimal.Context(prec=100)


def arithmetic(op: Operator, a: Typed, b: Typed, constants: Constants) -> Typed:
    """Return the sum, difference or product of two decimals.

    Raises
    ------
    Unsupported
        If it is another operation, or may overflow.
    """
    scales = scale_of(a.dtype), scale_of(b.dtype)
    scale = max(scales)
    dtype = pl.Decimal(38, scale)
    match op:
        case Operator.ADD | Operator.SUB:
            wanted = combine(_ADDITIVE[op], _scaled(a, scale), _scaled(b, scale))
            wide = not _fit64(_scaled(a, scale), _scaled(b, scale), wanted)
            if wide and not wanted.within(*_DIGITS38):
                raise Unsupported("a sum of decimals may exceed 38 digits")
            a, b = (rescale(t, scale, wide=wide, constants=constants) for t in (a, b))
            type_ = decimal_type(scale, wide=wide)
            return call("add" if op is Operator.ADD else "sub", (a, b), dtype, type=type_, range=wanted)
        case Operator.MUL:
            exact = combine(_product, a.range, b.range)
            wide = not _fit64(a.range, b.range, exact)
            if wide and not exact.within(*_INT128):
                raise Unsupported("a product of decimals may exceed 38 digits; no statistics say otherwise")
            a, b = (
                rescale(t, s, wide=wide, constants=constants) for t, s in zip((a, b), scales, strict=True)
            )
            type_ = decimal_type(sum(scales), wide=wide)
            product = call("mul", (a, b), pl.Decimal(38, sum(scales)), type=type_, range=exact)
            return round_to(product, dtype)
        case _:
            raise Unsupported(f"decimals have no form of {op} on a GPU")


def round_to(t: Typed, dtype: pl.DataType) -> Typed:
    """Return a decimal with the scale of ``dtype``, which is not finer, rounded half to even."""
    drop = scale_of(t.dtype) - scale_of(dtype)
    if drop == 0:
        return replace(t, dtype=dtype)
    unit = 10**drop
    wide = t.type.id is TypeId.DECIMAL128
    return call(
        "round_decimal",
        (t,),
        dtype,
        (scale_of(dtype), "half_even"),
        type=decimal_type(scale_of(dtype), wide=wide),
        range=combine(lambda i: (-(-i[0] // unit) - 1, i[1] // unit + 1), t.range),
    )


def _scaled(t: Typed, scale: int) -> Range:
    """Return the range of a decimal in units of a finer scale."""
    factor = 10 ** (scale - scale_of(t.dtype))
    return t.range if factor == 1 else combine(lambda i: (i[0] * factor, i[1] * factor), t.range)


def rescale(t: Typed, scale: int, *, wide: bool, constants: Constants) -> Typed:
    """Return a decimal with at least as many digits after the point, and in so many bits; it must fit."""
    type_ = decimal_type(scale, wide=wide)
    if t.type == type_:
        return t
    if t.literal is not None:
        value = t.literal.quantize(decimal.Decimal(1).scaleb(-scale), context=_EXACT)
        constant = constants.value(value, pl.Decimal(38 if wide else 18, scale), type_)
        return replace(constant, dtype=t.dtype if scale == scale_of(t.dtype) else pl.Decimal(38, scale))
    dtype = pl.Decimal(38, scale) if scale != scale_of(t.dtype) else t.dtype
    return retype(replace(t, range=_scaled(t, scale), dtype=dtype), type_)


def retype(t: Typed, type_: CudfType) -> Typed:
    """Return a decimal in another type of the device, whose scale must be at least as fine."""
    return t if t.type == type_ else call("cast", (t,), t.dtype, type=type_, range=t.range)


def align(values: list[Typed], constants: Constants) -> list[Typed]:
    """Return decimals in one type of the device.

    Raises
    ------
    Unsupported
        If one may not fit.
    """
    scale = max(scale_of(t.dtype) for t in values)
    ranges = [_scaled(t, scale) for t in values]
    # what is narrow stays so, and what is wide becomes narrow only if that needs no reading of statistics
    wide = not all(r.known is not None and _fit64(r) for r in ranges) and not (
        all(t.type.id is TypeId.DECIMAL64 or t.literal is not None for t in values) and _fit64(*ranges)
    )
    if wide and not all(r.within(*_INT128) for r in ranges):
        raise Unsupported("decimals of different scales may exceed 38 digits")
    return [rescale(t, scale, wide=wide, constants=constants) for t in values]


def to_float(t: Typed, constants: Constants) -> Typed:
    """Return a decimal as Float64: its digits as an integer, divided by a power of ten, as Polars does it."""
    scale = scale_of(t.dtype)
    range_ = float_range(t)
    if t.literal is not None:
        return constants.value(float(t.literal), pl.Float64())
    if t.type.id is TypeId.DECIMAL128:
        if not _fit64(t.range):
            return call("cast", (t,), pl.Float64(), range=range_)
        t = retype(t, decimal_type(scale, wide=False))
    digits = call("bit_cast", (t,), pl.Int64(), type=INT64, range=t.range)
    number = call("cast", (digits,), pl.Float64(), type=FLOAT64, range=range_)
    if scale == 0:
        return number
    return call("div", (number, constants.value(float(10**scale), pl.Float64())), pl.Float64(), range=range_)


def float_range(t: Typed) -> Range:
    """Return the range of a decimal as floats."""
    unit = 10 ** scale_of(t.dtype)
    return combine(lambda i: (float(i[0]) / unit, float(i[1]) / unit), t.range)


def _fit64(*ranges: Range) -> bool:
    return all(r.within(*_INT64) for r in ranges)


def _product(a: Interval, b: Interval) -> Interval:
    corners = [x * y for x in a for y in b]
    return (min(corners), max(corners))


_ADDITIVE = {
    Operator.ADD: lambda a, b: (a[0] + b[0], a[1] + b[1]),
    Operator.SUB: lambda a, b: (a[0] - b[1], a[1] - b[0]),
}
