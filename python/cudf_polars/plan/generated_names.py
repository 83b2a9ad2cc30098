"""Gives columns that Polars named by a counter of its process, or by a hash, names that are the same on all ranks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from typing import Any

import polars as pl

from cudf_polars.plan import expressions as ex
from cudf_polars.plan.dag import map_nodes, walk_nodes
from cudf_polars.plan.nodes import Node, OpaqueNode

__all__ = ["GENERATED", "renumber", "renumber_text"]

GENERATED = "__rr_generated"
"""How the new names begin."""

_GENERATED = re.compile(r"_+POLARS_[A-Z_]+_(?:0x[0-9a-f]+|\d+)")


def renumber_text(text: str) -> str:
    """Return a text with such names numbered in the order in which they first occur."""
    numbers: dict[str, int] = {}
    return _GENERATED.sub(lambda found: f"_generated_{numbers.setdefault(found.group(), len(numbers))}", text)


def renumber(root: Node) -> Node:
    """Return the plan with such columns numbered in the order in which they first occur.

    A plan in which only Polars can run a part that has them stays as it is: that part reads them under Polars' names.
    """
    names: dict[str, str] = {}
    all_nodes = list(walk_nodes(root))
    for node in all_nodes:
        for name in node.schema:
            for token in _GENERATED.findall(name):
                names.setdefault(token, f"{GENERATED}{len(names)}")
                if isinstance(node, OpaqueNode):
                    return root
    if not names:
        return root
    if any(name in child.schema for child in all_nodes for name in names.values()):
        return root
    return map_nodes(all_nodes, lambda _, new: _renamed_node(new, names))


def _renamed_node(node: Node, names: Mapping[str, str]) -> Node:
    kept = set(node._child_fields)
    changes = {f.name: _renamed(getattr(node, f.name), names) for f in fields(node) if f.name not in kept}
    return replace(node, **changes)


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, Enum):
        return value  # a member of a StrEnum is a str, too, and must stay what it is
    if isinstance(value, str):
        return _GENERATED.sub(lambda found: names.get(found.group(), found.group()), value)
    if isinstance(value, tuple):
        return tuple(_renamed(v, names) for v in value)
    if isinstance(value, Mapping):
        return {_renamed(k, names): _renamed(v, names) for k, v in value.items()}
    if isinstance(value, pl.DataFrame):
        # rows that Polars knew when it planned, such as none
        new = {name: _renamed(name, names) for name in value.columns if _GENERATED.search(name)}
        return value.rename(new) if new else value
    if isinstance(value, ex.Literal):
        return value  # the user's own text
    if isinstance(value, ex.Opaque):
        return value.with_children([_renamed(e, names) for e in value.inputs])
    if isinstance(value, ex.Expr | ex.NamedExpr) and is_dataclass(value):
        return replace(
            value, **{f.name: _renamed(getattr(value, f.name), names) for f in fields(value) if f.init}
        )
    return value
