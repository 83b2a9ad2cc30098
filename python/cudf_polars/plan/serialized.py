"""Queries and expressions in Polars' own JSON form, parsed. The form belongs to one version of Polars, as the views do.

A node or an expression is ``{kind: contents}``, or its kind alone. Bytes are lists of integers.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import polars as pl

from cudf_polars.plan.datasets import versions_pinned

__all__ = [
    "deserialize_expr",
    "deserialize_plan",
    "deserialize_text",
    "forms",
    "kind_of",
    "serialize_expr",
    "serialize_plan",
    "write_text",
]


def serialize_plan(lf: pl.LazyFrame) -> Any:
    """Return the parsed JSON form of a query."""
    text = io.BytesIO()
    with versions_pinned():
        write_text(lf, text)
    return json.loads(text.getvalue())


def write_text(lf: pl.LazyFrame, out: io.IOBase) -> None:
    """Write the JSON form of a query to ``out``.

    This calls below ``LazyFrame.serialize``, which warns that the form is deprecated. Suppressing that warning would
    change the warning filters of the whole process, so that warnings of other threads would be lost.
    """
    lf._ldf.serialize_json(out)


def deserialize_plan(form: Any) -> pl.LazyFrame:
    """Return the query of a JSON form."""
    return deserialize_text(json.dumps(form))


def deserialize_text(text: str) -> pl.LazyFrame:
    """Return the query of a JSON form that has not been parsed."""
    return pl.LazyFrame.deserialize(io.StringIO(text), format="json")


def serialize_expr(expr: pl.Expr) -> Any:
    """Return the parsed JSON form of an expression."""
    return json.loads(expr.meta.serialize(format="json"))


def deserialize_expr(form: Any) -> pl.Expr:
    """Return the expression of a JSON form."""
    return pl.Expr.deserialize(io.StringIO(json.dumps(form)), format="json")


def forms(form: Any, kind: str) -> Iterator[Any]:
    """Yield the contents of every ``{kind: contents}`` anywhere in a JSON form."""
    stack = [form]
    while stack:
        f = stack.pop()
        if isinstance(f, dict):
            if len(f) == 1 and kind in f:
                yield f[kind]
            stack.extend(f.values())
        elif isinstance(f, list) and f and not isinstance(f[0], int):  # bytes are lists of integers
            stack.extend(f)


def kind_of(form: Any) -> str:
    """Return the kind of a node or an expression; empty if it has none."""
    if isinstance(form, str):
        return form
    if isinstance(form, dict) and len(form) == 1:
        return str(next(iter(form)))
    return ""
