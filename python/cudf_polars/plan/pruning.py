"""Leaves out of opaque nodes and of their inputs the columns that Polars would not read.

Each input of an opaque node is a plan of its own, and Polars' optimiser does not see through the node. So a column that
no step uses would be computed, which takes time and may raise an error that Polars, which leaves it out, does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from cudf_polars.plan import nodes
from cudf_polars.plan.columns import keep_columns
from cudf_polars.plan.dag import map_nodes, walk_nodes
from cudf_polars.plan.optimized import look
from cudf_polars.plan.placeholder import frame_source, placeholder_scan, source_number
from cudf_polars.plan.properties import columns

__all__ = ["HiddenPart", "prune_opaque_nodes"]


@dataclass(frozen=True)
class HiddenPart:
    """What an opaque node stands for.

    Attributes
    ----------
    over
        Makes it over other inputs, which have the columns of ``schemas``.
    inputs
        The queries under it.
    schemas
        Their columns.
    """

    over: Callable[[Sequence[pl.LazyFrame]], pl.LazyFrame]
    inputs: tuple[pl.LazyFrame, ...]
    schemas: tuple[pl.Schema, ...]

    def build(self, names: Sequence[str] | None = None) -> Callable[[Sequence[pl.LazyFrame]], pl.LazyFrame]:
        """Return what makes it, or its columns ``names`` only, over frames that have the columns it then reads."""

        def build(frames: Sequence[pl.LazyFrame]) -> pl.LazyFrame:
            sources = [frame_source(f, s) for f, s in zip(frames, self.schemas, strict=True)]
            lf = self.over(sources)
            if names is None:
                return lf
            kept = keep_columns(lf, names)
            if not sources:
                return kept
            # What reads this may want its rows only; Polars would then ask the sources for columns of its own choice.
            return kept.map_batches(_unchanged, predicate_pushdown=True, slice_pushdown=True, streamable=True)

        return build

    def used(self, names: Sequence[str] | None, flags: Any) -> list[list[str]]:
        """Return the columns of each input that Polars reads to give all, or the columns ``names``."""
        if not self.inputs:
            return []
        lf = self.over([placeholder_scan(number, schema) for number, schema in enumerate(self.schemas)])
        flags = flags.copy()
        flags.predicate_pushdown = False  # a source's columns are then also those of the filters over it
        asked: list[set[str]] = look(
            lf if names is None else keep_columns(lf, names),
            flags,
            lambda traverser: _asked(traverser, len(self.schemas)),
        )
        return [[name for name in s if name in found] for s, found in zip(self.schemas, asked, strict=True)]


def _unchanged(frame: pl.DataFrame) -> pl.DataFrame:
    return frame


def _asked(traverser: Any, count: int) -> list[set[str]]:
    """Return the columns that an optimised plan asks each of ``count`` placeholders for."""
    asked: list[set[str]] = [set() for _ in range(count)]
    seen: set[int] = set()
    stack = [traverser.get_node()]
    while stack:
        number = stack.pop()
        if number in seen:
            continue
        seen.add(number)
        traverser.set_node(number)
        inputs = list(traverser.get_inputs())
        stack.extend(inputs)
        if inputs:
            continue
        try:
            view = traverser.view_current_node()
        except (NotImplementedError, ValueError):
            continue  # another source, which has no view
        place = source_number(view.options[0]) if type(view).__name__ == "PythonScan" else None
        if place is not None:
            traverser.set_node(number)
            asked[place].update(traverser.get_schema())
    return asked


def prune_opaque_nodes(
    root: nodes.Node,
    parts: Mapping[int, tuple[nodes.Node, HiddenPart]],
    read: Callable[[pl.LazyFrame], nodes.Node],
    flags: Any,
) -> nodes.Node:
    """Return the plan with no more columns under its opaque nodes than Polars would read.

    Parameters
    ----------
    parts
        By number, opaque nodes and what they stand for; those under an opaque node have smaller numbers.
    read
        Reads an input again.
    flags
        Polars' optimisation flags.
    """
    numbers = {node: number for number, (node, _) in parts.items()}
    needs: dict[int, set[str]] = {}
    _note_needs(root, numbers, needs)
    inputs: dict[int, tuple[list[str] | None, list[nodes.Node]]] = {}
    for number in sorted(parts, reverse=True):
        if number not in needs:
            continue
        node, part = parts[number]
        # Rows of which no column is read are counted by all of them.
        names = [n for n in node.schema if n in needs[number]] if needs[number] < set(node.schema) else None
        inputs[number] = names or None, _pruned_inputs(node, part, part.used(names or None, flags), read)
        for child in inputs[number][1]:
            _note_needs(child, numbers, needs)
    done: dict[nodes.Node, nodes.Node] = {}
    for number in sorted(inputs):
        node, part = parts[number]
        names, below = inputs[number]
        children = tuple(_replaced(child, done) for child in below)
        schema = node.schema if names is None else {name: node.schema[name] for name in names}
        assert isinstance(node, nodes.OpaqueNode)
        done[node] = replace(node, inputs=children, build=part.build(names), schema=schema)
    return _replaced(root, done)


def _pruned_inputs(
    node: nodes.Node,
    part: HiddenPart,
    used: Iterable[Sequence[str]],
    read: Callable[[pl.LazyFrame], nodes.Node],
) -> list[nodes.Node]:
    return [
        child if len(names) == len(child.schema) else read(keep_columns(lf, names))
        for child, lf, names in zip(node.children, part.inputs, used, strict=True)
    ]


def _note_needs(root: nodes.Node, numbers: Mapping[nodes.Node, int], needs: dict[int, set[str]]) -> None:
    """Add to ``needs`` the columns of opaque nodes that ``root`` reads, without looking under these."""
    order = _down_to(root, numbers)
    found: dict[nodes.Node, set[str]] = {root: set(root.schema)}
    for node in reversed(order):
        own = found[node]
        if node in numbers:
            needs.setdefault(numbers[node], set()).update(own)
            continue
        for child in node.children:
            match node:
                case nodes.SimpleProjection() if node.schema:
                    asked = set(node.schema)
                case nodes.Filter():
                    asked = own | set(columns(node.predicate))
                case nodes.Slice():
                    asked = own
                case _:
                    asked = set(child.schema)
            found.setdefault(child, set()).update(asked)


def _down_to(root: nodes.Node, leaves: Mapping[nodes.Node, int]) -> list[nodes.Node]:
    """Return the nodes of a plan down to ``leaves``, inputs before their users."""
    out: list[nodes.Node] = []
    seen: set[nodes.Node] = set()
    stack = [(root, False)]
    while stack:
        node, expanded = stack.pop()
        if expanded:
            out.append(node)
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            if node not in leaves:
                stack.extend((child, False) for child in node.children)
    return out


def _replaced(root: nodes.Node, done: Mapping[nodes.Node, nodes.Node]) -> nodes.Node:
    def change(node: nodes.Node, new: nodes.Node) -> nodes.Node:
        if node in done:
            return done[node]
        if isinstance(new, nodes.Filter | nodes.Slice) and new.child is not getattr(node, "child", None):
            return replace(new, schema=new.child.schema)
        return new

    return map_nodes(walk_nodes(root), change)
