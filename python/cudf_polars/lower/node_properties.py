"""What the planner asks about the nodes of a plan: found in one pass before any is lowered, and kept by number."""

from __future__ import annotations

from collections.abc import Mapping

from cudf_polars.lower.order import order_demands
from cudf_polars.lower.physical import Estimate
from cudf_polars.plan.dag import Plan
from cudf_polars.plan.nodes import Distinct, Filter, HStack, Join, Node, Scan, Select, SimpleProjection, Slice
from cudf_polars.plan.properties import calls_python, is_elementwise, is_scalar

__all__ = ["NodeProperties", "is_row_step"]


class NodeProperties:
    """The properties of a plan's nodes.

    Parameters
    ----------
    plan
        The plan.
    frame_sizes
        By number, rows and bytes of in-memory frames over all ranks.
    """

    def __init__(self, plan: Plan, frame_sizes: Mapping[int, Estimate]) -> None:
        self._plan = plan
        self._frame_sizes = frame_sizes
        self._ordered = order_demands(plan)
        self._scans: list[Scan | None] = []
        self._filtered: list[bool] = []
        for node in plan.nodes:  # inputs come first
            self._scans.append(_pipeline_scan(node, [self.pipeline_scan(child) for child in node.children]))
            self._filtered.append(_filters(node) or any(map(self.is_filtered, node.children)))
        self._left_out = self._find_left_out()

    def number(self, node: Node) -> int | None:
        """Return a node's number in the plan; ``None`` for a copy that is not the plan's."""
        return self._plan.number(node)

    def users(self, node: Node) -> int:
        """Return how many inputs of other nodes this one is; 0 for a copy that is not the plan's."""
        number = self._plan.number(node)
        return 0 if number is None else self._plan.users[number]

    def frame_size(self, node: Node) -> Estimate:
        """Return rows and bytes of an in-memory frame over all ranks."""
        number = self._plan.number(node)
        unknown = Estimate(0.0, 0.0)
        return unknown if number is None else self._frame_sizes.get(number, unknown)

    def is_ordered(self, node: Node) -> bool:
        """Whether the order of the node's rows matters; taken for granted of a copy that is not the plan's."""
        number = self._plan.number(node)
        return True if number is None else self._ordered[number]

    def pipeline_scan(self, node: Node) -> Scan | None:
        """Return the scan from which a row pipeline starts, ``None`` if ``node`` ends none.

        A row pipeline only reads files and works row by row, so that it can be run anywhere, any number of times.
        """
        number = self._plan.number(node)
        if number is not None:
            return self._scans[number]
        return _pipeline_scan(node, [self.pipeline_scan(child) for child in node.children])

    def is_row_pipeline(self, node: Node) -> bool:
        """Whether ``node`` ends a row pipeline."""
        return self.pipeline_scan(node) is not None

    def is_filtered(self, node: Node) -> bool:
        """Whether ``node``, or one below it, leaves out rows by what is in them."""
        number = self._plan.number(node)
        if number is not None:
            return self._filtered[number]
        return _filters(node) or any(map(self.is_filtered, node.children))

    def is_left_out(self, node: Node) -> bool:
        """Whether a join above ``node`` leaves out some of its rows, by the keys of a side that is filtered.

        Nothing is known of a copy that is not the plan's.
        """
        number = self._plan.number(node)
        return number is not None and self._left_out[number]

    def _find_left_out(self) -> list[bool]:
        found = [False] * len(self._plan.nodes)
        for number in reversed(range(len(found))):  # what is above comes first
            node = self._plan.nodes[number]
            for child in node.children:
                if found[number] and (isinstance(node, Join) or is_row_step(node)):
                    below = True
                else:
                    below = (
                        isinstance(node, Join)
                        and node.how in ("inner", "semi")
                        and any(self.is_filtered(other) for other in node.children if other is not child)
                    )
                position = self._plan.number(child)
                assert position is not None
                found[position] = found[position] or below
        return found


def _pipeline_scan(node: Node, below: list[Scan | None]) -> Scan | None:
    if isinstance(node, Scan):
        return node
    return below[0] if len(below) == 1 and is_row_step(node) else None


def is_row_step(node: Node) -> bool:
    """Whether ``node`` works row by row, so that it gives the same for the same rows whenever and wherever it runs."""
    if isinstance(node, SimpleProjection):
        return True
    if not isinstance(node, Filter | Select | HStack) or not all(map(is_elementwise, node.expressions)):
        return False
    # What a function of the user's gives may differ when it is called again.
    if any(map(calls_python, node.expressions)):
        return False
    # Constants alone make one row, not a row for each of the input's.
    return not (isinstance(node, Select) and all(map(is_scalar, node.expressions)))


def _filters(node: Node) -> bool:
    return isinstance(node, Filter | Slice | Distinct) or getattr(node, "predicate", None) is not None
