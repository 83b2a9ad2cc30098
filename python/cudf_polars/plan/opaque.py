"""Expressions that Polars does not show: the original, over other inputs than its own columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from cudf_polars.plan.expressions import OpaqueSource
from cudf_polars.plan.serialized import deserialize_expr, serialize_expr

__all__ = ["expression_over"]


def expression_over(source: OpaqueSource, inputs: Sequence[pl.Expr]) -> pl.Expr:
    """Return the original expression with ``inputs`` in place of its root columns.

    Parameters
    ----------
    source
        The original.
    inputs
        One expression for each of ``source.roots``.
    """
    changed = {
        root: given
        for root, given in zip(source.roots, inputs, strict=True)
        if not (given.meta.is_column() and given.meta.output_name() == root)
    }
    if not changed:
        return source.expr
    return deserialize_expr(
        _replace_columns(serialize_expr(source.expr), {n: serialize_expr(e) for n, e in changed.items()})
    )


def _replace_columns(form: Any, new: Mapping[str, Any]) -> Any:
    if isinstance(form, dict):
        if len(form) == 1 and "Column" in form and form["Column"] in new:
            return new[form["Column"]]
        return {key: _replace_columns(value, new) for key, value in form.items()}
    if isinstance(form, list) and form and not isinstance(form[0], int):  # bytes are lists of integers
        return [_replace_columns(value, new) for value in form]
    return form
