"""A text of a plan that is the same on all ranks, to detect ranks that run different queries.

It holds what the query does, and nothing of where it runs: no addresses, no contents of data frames in memory
(each rank has its own rows), no numbers that Polars makes up as it goes.
"""

from __future__ import annotations

import enum
import hashlib
import itertools
import re
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

import polars as pl

from cudf_polars.plan import expressions as ex
from cudf_polars.plan import nodes
from cudf_polars.plan.cloud import shown_path
from cudf_polars.plan.dag import Plan
from cudf_polars.plan.functions import FUNCTIONS

__all__ = ["dump", "dump_expr", "fingerprint", "first_difference"]

_ADDRESS = re.compile(r"0x[0-9a-fA-F]+")


def dump(plan: Plan) -> str:
    """Return the plan as text, a node a line, inputs indented below; what is used twice is shown once."""
    lines: list[str] = []
    users = dict(zip(plan.nodes, plan.users, strict=True))
    shown: dict[nodes.Node, int] = {}
    stack: list[tuple[nodes.Node, int]] = [(plan.root, 0)]
    while stack:
        node, depth = stack.pop()
        indent = "  " * depth
        if node in shown:
            lines.append(f"{indent}SAME AS #{shown[node]}")
            continue
        mark = ""
        if users[node] > 1:
            shown[node] = len(shown) + 1
            mark = f"#{shown[node]} "
        lines.append(indent + mark + _node(node))
        stack.extend((child, depth + 1) for child in reversed(node.children))
    return "\n".join(lines)


def fingerprint(plan: Plan) -> bytes:
    """Return a hash of :func:`dump`: 16 bytes, equal on all ranks that run the same query."""
    return hashlib.blake2b(dump(plan).encode(), digest_size=16).digest()


def first_difference(text_a: str, text_b: str) -> str:
    """Return the first line in which two dumps differ, with the line before it, for an error message.

    Returns
    -------
    str
        Empty when the texts are equal.
    """
    before = "(start of the plan)"
    for number, (a, b) in enumerate(itertools.zip_longest(text_a.splitlines(), text_b.splitlines()), start=1):
        if a != b:
            ends = ["(end of the plan)" if line is None else line.strip() for line in (a, b)]
            return f"line {number}, after {before.strip()!r}:\n  one rank: {ends[0]}\n  another:  {ends[1]}"
        before = a
    return ""


def _schema(schema: Mapping[str, pl.DataType]) -> str:
    return "[" + ", ".join(f"{name}: {dtype}" for name, dtype in schema.items()) + "]"


def _node(node: nodes.Node) -> str:
    parts: list[str] = []
    skipped = {"schema", *node._child_fields}
    for f in fields(node):
        if f.name in skipped:
            continue
        value = getattr(node, f.name)
        if isinstance(node, nodes.Scan) and f.name == "paths":
            value = tuple(shown_path(path) for path in node.paths)
        if isinstance(node, nodes.OpaqueNode) and f.name in ("build", "reason"):
            continue
        if isinstance(node, nodes.DataFrameScan) and f.name == "frame":
            continue
        if value is None or (isinstance(value, tuple) and not value):
            continue
        parts.append(f"{f.name}={_value(value)}")
    return f"{type(node).__name__}({', '.join(parts)}) -> {_schema(node.schema)}"


def _value(value: Any) -> str:
    if isinstance(value, ex.Expr):
        return dump_expr(value)
    if isinstance(value, ex.NamedExpr):
        return f"{value.name}: {dump_expr(value.expr)}"
    if isinstance(value, ex.FrozenSeries):
        return _series(value.series)
    if isinstance(value, pl.DataFrame):
        return f"frame {_schema(value.schema)} of {value.height} rows"
    if isinstance(value, pl.Series):
        return _series(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{k}: {_value(v)}" for k, v in value.items()) + "}"
    if isinstance(value, tuple | list):
        return "[" + ", ".join(_value(v) for v in value) + "]"
    if isinstance(value, enum.Enum):
        return str(value.value)
    if isinstance(value, bool | int | float | str | bytes | pl.DataType) or value is None:
        return repr(value)
    if callable(value):
        return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', type(value).__name__)}"
    return _ADDRESS.sub("0x", repr(value))


def _series(series: pl.Series) -> str:
    """Write a literal's values; long ones by their hash."""
    if len(series) <= 16:
        return f"{series.dtype}{series.to_list()!r}"
    digest = hashlib.blake2b(repr(series.to_list()).encode(), digest_size=8).hexdigest()
    return f"{series.dtype} of {len(series)} values ({digest})"


_AGG_OPTIONS = {"std": "ddof", "var": "ddof", "implode": "maintain_order", "item": "allow_empty"}


def _call(expr: ex.Function | ex.Agg, options: Iterable[tuple[str, Any]]) -> str:
    inputs = [dump_expr(e) for e in expr.children]
    return f"{expr.name}({', '.join([*inputs, *(f'{name}={_value(value)}' for name, value in options)])})"


def dump_expr(expr: ex.Expr) -> str:
    """Return an expression as text."""
    match expr:
        case ex.Column():
            return f"col({expr.name!r})"
        case ex.Literal():
            return f"lit({_value(expr.value)}: {expr.dtype})"
        case ex.BinaryOp():
            return f"({dump_expr(expr.left)} {expr.op} {dump_expr(expr.right)})"
        case ex.Opaque():
            inputs = ", ".join(dump_expr(e) for e in expr.inputs)
            functions = f" with functions {expr.source.functions}" if expr.source.functions else ""
            return f"opaque({expr.source.text!r} over {inputs}{functions})"
        case ex.Function():
            return _call(expr, FUNCTIONS[expr.name].named_options(expr.args))
        case ex.Agg():
            return _call(expr, [(_AGG_OPTIONS[expr.name], option) for option in expr.options])
    parts = []
    for f in fields(expr):
        if f.name != "dtype":
            value = getattr(expr, f.name)
            if value is not None:
                parts.append(f"{f.name}={_value(value)}")
    return f"{type(expr).__name__}({', '.join(parts)})"
