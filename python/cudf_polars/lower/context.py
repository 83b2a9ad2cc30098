"""The state of lowering one query: what operators share while they turn nodes into streams."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import polars as pl

from cudf_polars.lower.builder import StreamBuilder
from cudf_polars.lower.estimates import GroupCount
from cudf_polars.lower.footers import Footers
from cudf_polars.lower.gathered import Gathered
from cudf_polars.lower.key_ranges import KeyRange
from cudf_polars.lower.node_properties import NodeProperties
from cudf_polars.lower.partitioning import SINGLE, Distribution, Partitioning, project
from cudf_polars.lower.physical import Estimate, Local, Schema, Stream
from cudf_polars.lower.replication import is_same_on_all_ranks
from cudf_polars.lower.shape import renames
from cudf_polars.lower.text_cuts import TextCutsOf
from cudf_polars.plan.cloud import shown_path
from cudf_polars.plan.columns import keep_columns
from cudf_polars.plan.expressions import Expr
from cudf_polars.plan.nodes import Filter, HStack, Node, Scan, Select
from cudf_polars.plan.rebuild import rebuild_node

__all__ = ["Context", "Operator", "node_title"]


@dataclass(frozen=True, slots=True, eq=False)
class _Input(Node):
    """Stands for a stream below a node that is rebuilt."""

    _child_fields = ()


@dataclass
class Context:
    """One query being lowered.

    Attributes
    ----------
    builder
        Makes streams.
    properties
        What is known of the plan's nodes.
    footers
        Reads the row groups of a Parquet file.
    text_cuts
        Says where a text file is cut.
    key_ranges
        By number of the node, which scans are split by values of a column.
    lower_node
        Turns one node into a stream (:mod:`cudf_polars.lower.planner`).
    joined_rows
        How many rows joins give that have several times those of their sides, as estimated.
    streams
        Those that several nodes read.
    left_out
        By what makes groups, what leaves out rows under it whose groups are in no answer
        (:mod:`cudf_polars.lower.group_filters`).
    group_counts
        By rows and keys, how many groups there are, as far as it was asked (:mod:`cudf_polars.lower.group_counts`).
    """

    builder: StreamBuilder
    properties: NodeProperties
    footers: Footers
    text_cuts: TextCutsOf
    key_ranges: Mapping[int, KeyRange]
    lower_node: Operator
    joined_rows: dict[Node, float]
    streams: dict[Node, Stream] = field(default_factory=dict)
    left_out: dict[Node, Callable[[Stream], Stream]] = field(default_factory=dict)
    group_counts: dict[tuple[Node, tuple[Expr, ...]], GroupCount | None] = field(default_factory=dict)

    def lower(self, node: Node) -> Stream:
        """Return the stream of ``node``; a node that several others read is run once and materialized."""
        if self.properties.users(node) <= 1 or self.properties.is_row_pipeline(node):
            # Reading a file again costs less than holding it, and each reader prunes its own columns.
            return self.lower_node(self, node)
        if node not in self.streams:
            stream = self.lower_node(self, node)
            self.streams[node] = self.builder.materialize(stream, "read more than once", shared=True)
        return self.streams[node]

    def lower_rows(self, groups: Node) -> Stream:
        """Return the rows of which ``groups`` makes groups, without those that are known to be of no use."""
        (child,) = groups.children
        leave_out = self.left_out.get(groups)
        return self.lower(child) if leave_out is None else leave_out(self.lower(child))

    def stands_for(self, copy: Node, node: Node) -> None:
        """Take a copy of a join to give as many rows as that."""
        if node in self.joined_rows:
            self.joined_rows[copy] = self.joined_rows[node]

    def key_range(self, node: Node) -> KeyRange | None:
        """Return how a scan is split by values of a column, if it is."""
        number = self.properties.number(node)
        return None if number is None else self.key_ranges.get(number)

    def ordered(self, node: Node) -> bool:
        """Whether the order of the node's rows matters."""
        return self.properties.is_ordered(node)

    def apply(
        self,
        node: Node,
        inputs: Sequence[Stream],
        *,
        partitioning: Partitioning | None = None,
        ordered: bool | None = None,
        estimate: Estimate | None = None,
        of_any_rows: bool = False,
    ) -> Local:
        """Return ``node`` itself as a local step over ``inputs``.

        The partitioning of ``select``, ``with_columns`` and ``filter`` follows from the columns that they keep. That of
        other nodes is ``partitioning``, by default their first input's.
        """
        whole = [stream.partitioning.distribution is Distribution.REPLICATED for stream in inputs]
        if whole and all(whole) and not is_same_on_all_ranks(node):
            inputs = [self.builder.disjoint(stream) for stream in inputs]
            partitioning = SINGLE

        if isinstance(node, Select | HStack | Filter):
            (stream,) = inputs
            partitioning = project(stream.partitioning, renames(node, stream.schema))
        if ordered is None and isinstance(node, Select) and self.ordered(node):
            # Expressions such as sort() and int_range() define an order, whatever order their input has.
            ordered = True

        compute = self.rebuilt(node, [stream.schema for stream in inputs])
        local = self.builder.local(
            node_title(node),
            inputs,
            lambda frames, _: compute(frames),
            schema=node.schema,
            partitioning=partitioning,
            ordered=ordered,
            estimate=estimate,
            of_any_rows=of_any_rows,
        )
        local.node = node
        return local

    def rebuilt(
        self, node: Node, schemas: Sequence[Schema]
    ) -> Callable[[Sequence[pl.LazyFrame]], pl.LazyFrame]:
        """Return what computes ``node`` over frames of these schemas.

        They may have more columns than the node was read with (positions, computed keys).
        """
        step = node.with_children([_Input(schema=schema) for schema in schemas])
        extended = any(
            list(schema) != list(child.schema) for schema, child in zip(schemas, node.children, strict=True)
        )
        names = list(node.schema)

        def compute(frames: Sequence[pl.LazyFrame]) -> pl.LazyFrame:
            frame = rebuild_node(step, frames)
            return keep_columns(frame, names) if extended else frame

        return compute

    def on_one_rank(self, node: Node, inputs: Sequence[Stream], why: Gathered, detail: str = "") -> Stream:
        """Return ``node`` run by rank 0 over all rows of its inputs; it is noted when rows have to move there.

        Parameters
        ----------
        why, detail
            The reason, and what it is of in this query.
        """
        if any(not self.builder.is_whole(stream) for stream in inputs):
            text = (
                detail if why is Gathered.HIDDEN and detail else ": ".join(filter(None, (why.value, detail)))
            )
            self.builder.fall_back(f"{node_title(node)} ({text})")
        return self.apply(node, [self.builder.gather(stream) for stream in inputs], partitioning=SINGLE)


Operator: TypeAlias = Callable[[Context, Node], Stream]


def node_title(node: Node) -> str:
    """Return one line that says what ``node`` does."""
    name = type(node).__name__.upper()
    match node:
        case Scan():
            more = "" if len(node.paths) == 1 else f" and {len(node.paths) - 1} more"
            first = shown_path(node.paths[0]) if node.paths else "no file"
            return f"{node.kind.upper()} SCAN {first}{more}"
        case _:
            pass
    keys = getattr(node, "keys", None)
    if keys:
        return f"{name} by {', '.join(key.name for key in keys)}"
    how = getattr(node, "how", None)
    if isinstance(how, str):
        on = ", ".join(key.name for key in getattr(node, "left_on", ()))
        return f"{how.upper()} {name}{f' on {on}' if on else ''}"
    opaque = getattr(node, "name", None)
    return f"{name} {opaque}" if isinstance(opaque, str) else name
