"""Lowering: turns a typed plan into streams while the query runs. Which operator lowers which node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from cudf_polars.lower.builder import Settings, StreamBuilder
from cudf_polars.lower.context import Context, Operator
from cudf_polars.lower.findings import Findings
from cudf_polars.lower.footers import Footers
from cudf_polars.lower.gathered import Gathered
from cudf_polars.lower.grouping import lower_distinct, lower_group_by
from cudf_polars.lower.joins import lower_join
from cudf_polars.lower.key_ranges import KeyRange
from cudf_polars.lower.merges import lower_merge_sorted
from cudf_polars.lower.node_properties import NodeProperties
from cudf_polars.lower.physical import Estimate, Stream
from cudf_polars.lower.rows import (
    lower_expressions,
    lower_hconcat,
    lower_one_to_one,
    lower_row_index,
    lower_slice,
    lower_union,
    lower_unpivot,
)
from cudf_polars.lower.scans import lower_frame_scan, lower_python_scan, lower_scan
from cudf_polars.lower.sorts import lower_sort
from cudf_polars.lower.text_cuts import TextCutsOf
from cudf_polars.lower.time_windows import lower_time_windows
from cudf_polars.plan import nodes
from cudf_polars.plan.dag import Plan
from cudf_polars.plan.nodes import Node
from cudf_polars.plan.properties import is_process_local

__all__ = ["AdaptivePlanner"]


class AdaptivePlanner:
    """Turns a typed plan into streams, and runs parts of the query meanwhile where real sizes decide what follows.

    Parameters
    ----------
    settings
        What it decides by.
    findings
        Runs materialized streams and says what is known of their rows.
    footers
        Reads the row groups of a Parquet file.
    text_cuts
        Says where a text file is cut.
    key_ranges
        By number of the node, which scans are split by values of a column.
    joined_rows
        By number of the node, how many rows joins give that have several times those of their sides, as estimated.
    """

    def __init__(
        self,
        settings: Settings,
        findings: Findings,
        *,
        footers: Footers,
        text_cuts: TextCutsOf,
        key_ranges: Mapping[int, KeyRange],
        joined_rows: Mapping[int, float],
    ) -> None:
        self._builder = StreamBuilder(settings, findings)
        self._footers = footers
        self._text_cuts = text_cuts
        self._key_ranges = key_ranges
        self._joined_rows = joined_rows

    @property
    def fallbacks(self) -> list[str]:
        """The steps that run on one rank for want of a distributed form, in the order met."""
        return self._builder.fallbacks

    def plan(self, plan: Plan, frame_sizes: Mapping[int, Estimate]) -> Stream:
        """Return the stream of the plan's answer; most of the query may have run by then.

        Parameters
        ----------
        plan
            What to plan.
        frame_sizes
            By number of the node, what the in-memory frames of all ranks hold together.
        """
        (root,) = self.plan_each(plan, [plan.root], frame_sizes)
        return root

    def plan_each(
        self, plan: Plan, roots: Sequence[Node], frame_sizes: Mapping[int, Estimate]
    ) -> Iterator[Stream]:
        """Yield the stream of each of these nodes of a plan. A caller may run one before it asks for the next."""
        properties = NodeProperties(plan, frame_sizes)
        ctx = Context(
            self._builder,
            properties,
            self._footers,
            self._text_cuts,
            self._key_ranges,
            _lower_node,
            {plan.nodes[number]: rows for number, rows in self._joined_rows.items()},
        )
        return map(ctx.lower, roots)


def _lower_node(ctx: Context, node: Node) -> Stream:
    operator = _OPERATORS.get(type(node), _on_one_rank)
    if node.children and any(map(is_process_local, node.expressions)):
        inputs = [ctx.lower(child) for child in node.children]
        return ctx.on_one_rank(node, inputs, Gathered.CATEGORY_CODES)
    return operator(ctx, node)


def _on_one_rank(ctx: Context, node: Node) -> Stream:
    return ctx.on_one_rank(node, [ctx.lower(child) for child in node.children], Gathered.NO_FORM)


def _lower_groups(ctx: Context, node: Node) -> Stream:
    assert isinstance(node, nodes.GroupBy)
    if node.dynamic is not None or node.rolling is not None:
        return lower_time_windows(ctx, node)
    return lower_group_by(ctx, node)


def _lower_sink(ctx: Context, node: Node) -> Stream:
    """Let rank 0 write: the target is one file or directory of the user's choice."""
    return ctx.on_one_rank(node, [ctx.lower(child) for child in node.children], Gathered.ONE_WRITES)


def _lower_opaque(ctx: Context, node: Node) -> Stream:
    """Let rank 0 run what only Polars can read; a source without inputs is distributed by the next exchange."""
    assert isinstance(node, nodes.OpaqueNode)
    inputs = [ctx.lower(child) for child in node.inputs]
    if not inputs:
        ctx.builder.fall_back(f"OPAQUE {node.name} ({node.reason})" if node.reason else f"OPAQUE {node.name}")
    return ctx.on_one_rank(node, inputs, Gathered.HIDDEN, node.reason)


_OPERATORS: dict[type[Node], Operator] = {
    nodes.Scan: lower_scan,
    nodes.DataFrameScan: lower_frame_scan,
    nodes.PythonScan: lower_python_scan,
    nodes.Select: lower_expressions,
    nodes.HStack: lower_expressions,
    nodes.Filter: lower_expressions,
    nodes.SimpleProjection: lower_one_to_one,
    nodes.Explode: lower_one_to_one,
    nodes.Unnest: lower_one_to_one,
    nodes.HintSorted: lower_one_to_one,
    nodes.Unpivot: lower_unpivot,
    nodes.RowIndex: lower_row_index,
    nodes.GroupBy: _lower_groups,
    nodes.Distinct: lower_distinct,
    nodes.Join: lower_join,
    nodes.Sort: lower_sort,
    nodes.Slice: lower_slice,
    nodes.Union: lower_union,
    nodes.HConcat: lower_hconcat,
    nodes.MergeSorted: lower_merge_sorted,
    nodes.Sink: _lower_sink,
    nodes.OpaqueNode: _lower_opaque,
}
