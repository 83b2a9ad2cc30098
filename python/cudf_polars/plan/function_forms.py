"""Functions of a plan that are no single call of Polars' API, or not one with the options of the plan views."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import polars as pl

from cudf_polars.plan.serialized import deserialize_expr, serialize_expr

__all__ = ["FORMS", "Builder"]

Builder: TypeAlias = Callable[[Sequence[pl.Expr], tuple[Any, ...]], pl.Expr]
"""Makes a function of its inputs and of its options, in the order of the views."""


def _top_k_by(a: Sequence[pl.Expr], x: tuple[Any, ...]) -> pl.Expr:
    # the plan has bottom_k_by as top_k_by with every flag inverted
    return a[0].top_k_by(a[2:], a[1], reverse=list(x[0]))


def _sample(a: Sequence[pl.Expr], x: tuple[Any, ...], target: Any) -> pl.Expr:
    is_fraction, with_replacement, shuffle, seed = x
    amount = {"fraction" if is_fraction else "n": a[1]}
    sample: pl.Expr = target.sample(**amount, with_replacement=with_replacement, shuffle=shuffle, seed=seed)
    return sample


def _str_format(a: Sequence[pl.Expr], x: tuple[Any, ...]) -> pl.Expr:
    text, insertions = x
    pieces, last = [], 0
    raw = text.encode()  # positions are bytes
    for at in insertions:
        pieces.append(raw[last:at].decode())
        last = at
    tail = raw[last:].decode()
    parts: list[pl.Expr] = []
    for piece, e in zip(pieces, a, strict=True):
        if piece:
            parts.append(pl.lit(piece))
        parts.append(e.cast(pl.String))
    if tail:
        parts.append(pl.lit(tail))
    return pl.concat_str(parts)


def _str_replace(a: Sequence[pl.Expr], x: tuple[Any, ...]) -> pl.Expr:
    n, literal = x
    if n < 0:
        return a[0].str.replace_all(a[1], a[2], literal=literal)
    return a[0].str.replace(a[1], a[2], literal=literal, n=n)


def _rolling_corr_cov(a: Sequence[pl.Expr], x: tuple[Any, ...]) -> pl.Expr:
    size, min_samples, ddof, is_corr = x
    if is_corr:
        return pl.rolling_corr(a[0], a[1], window_size=size, min_samples=min_samples)
    return pl.rolling_cov(a[0], a[1], window_size=size, min_samples=min_samples, ddof=ddof)


def _sql(operator: str) -> Builder:
    """Return what builds an arithmetic operator of SQL, which Polars' API has as a whole expression's text only."""

    def build(a: Sequence[pl.Expr], x: tuple[Any, ...]) -> pl.Expr:
        inputs = [serialize_expr(e) for e in a]
        return deserialize_expr({"Function": {"input": inputs, "function": {"Sql": {"Binary": operator}}}})

    return build


FORMS: dict[str, Builder] = {
    "append": lambda a, x: a[0].append(a[1], upcast=False),
    "argwhere": lambda a, x: pl.arg_where(a[0]),
    "as_struct": lambda a, x: pl.struct([e.alias(n) for e, n in zip(a, x[0], strict=True)]),
    "clip": lambda a, x: a[0].clip(a[1] if x[0] else None, a[-1] if x[1] else None),
    "corr": lambda a, x: pl.corr(a[0], a[1], method="pearson"),
    "decimal_div": _sql("Div"),
    "decimal_mul": _sql("Mul"),
    "linear_spaces": lambda a, x: pl.linear_spaces(
        a[0], a[1], x[1] if len(a) < 3 else a[2], closed=x[0], as_array=len(a) < 3
    ),
    "list.sample": lambda a, x: _sample(a, x, a[0].list),
    "negate": lambda a, x: -a[0],
    "replace_strict": lambda a, x: a[0].replace_strict(
        a[1], a[2], return_dtype=x[0], **({"default": a[3]} if len(a) > 3 else {})
    ),
    "rolling_corr_cov": _rolling_corr_cov,
    "sample": lambda a, x: _sample(a, x, a[0]),
    "spearman_corr": lambda a, x: pl.corr(a[0], a[1], method="spearman", propagate_nans=x[0]),
    "str.base64_decode": lambda a, x: a[0].str.decode("base64", strict=x[0]),
    "str.base64_encode": lambda a, x: a[0].str.encode("base64"),
    "str.format": _str_format,
    "str.hex_decode": lambda a, x: a[0].str.decode("hex", strict=x[0]),
    "str.hex_encode": lambda a, x: a[0].str.encode("hex"),
    "str.normalize": lambda a, x: a[0].str.normalize(x[0].upper()),
    "str.replace": _str_replace,
    "str.split_regex": lambda a, x: a[0].str.split(a[1], inclusive=x[0], literal=False, strict=x[1]),
    "top_k": lambda a, x: a[0].bottom_k(a[1]) if x[0] else a[0].top_k(a[1]),
    "top_k_by": _top_k_by,
    "trunc_int_div": _sql("IntDiv"),
    "trunc_rem": _sql("Rem"),
}
"""By name; the table in :mod:`cudf_polars.plan.functions` says what their options are called."""
