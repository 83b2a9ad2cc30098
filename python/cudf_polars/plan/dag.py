"""A plan as a whole: its nodes in order, numbered once, and made anew from the leaves up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from cudf_polars.plan.nodes import Node

__all__ = ["Plan", "map_nodes", "walk_nodes"]


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """A query as Riverrun sees it.

    Attributes
    ----------
    root
        Its last node.
    opaque
        The expressions that only Polars can evaluate, by number.
    notes
        What could not be learnt of the query, in words, for ``explain``.
    nodes
        Its nodes, each once, inputs before their users. A node's place here is its number, by which tables of a plan
        are made.
    users
        By number, how many inputs of other nodes each node is.
    """

    root: Node
    opaque: Mapping[int, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    nodes: tuple[Node, ...] = field(init=False, repr=False)
    users: tuple[int, ...] = field(init=False, repr=False)
    _numbers: Mapping[Node, int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Number the nodes."""
        nodes = tuple(walk_nodes(self.root))
        numbers = {node: number for number, node in enumerate(nodes)}
        users = [0] * len(nodes)
        for node in nodes:
            for child in node.children:
                users[numbers[child]] += 1
        object.__setattr__(self, "nodes", nodes)
        object.__setattr__(self, "users", tuple(users))
        object.__setattr__(self, "_numbers", numbers)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle what the rest follows from."""
        return Plan, (self.root, self.opaque, self.notes)

    def number(self, node: Node) -> int | None:
        """Return a node's number, ``None`` if it is not the plan's, such as a copy that ``replace`` made."""
        return self._numbers.get(node)


def walk_nodes(root: Node) -> Iterator[Node]:
    """Yield every node below and including ``root`` once, inputs before their users."""
    seen: set[Node] = set()
    stack: list[tuple[Node, bool]] = [(root, False)]
    while stack:
        node, expanded = stack.pop()
        if expanded:
            yield node
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            stack.extend((child, False) for child in reversed(node.children))


def map_nodes(nodes: Iterable[Node], change: Callable[[Node, Node], Node]) -> Node:
    """Make a plan anew from the leaves up, each node once, and return its last node.

    Parameters
    ----------
    nodes
        What :func:`walk_nodes` yields.
    change
        Called with each node, and the same over its new inputs; returns what takes its place.
    """
    done: dict[Node, Node] = {}
    for node in nodes:
        done[node] = change(node, node.with_children([done[child] for child in node.children]))
    return done[node]
