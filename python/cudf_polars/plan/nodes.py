"""Nodes of a typed plan: what the optimised Polars plan says, as frozen dataclasses.

Nodes compare by identity. A subplan that the query uses twice is *one object* with two parents (Polars'
``Cache`` nodes are resolved into that), so the plan is a DAG (:mod:`cudf_polars.plan.dag`, where its nodes have
numbers). Every node's ``schema`` holds its output columns in order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

import polars as pl

from cudf_polars.plan.cloud import CloudAccess, shown_path
from cudf_polars.plan.expressions import Expr, NamedExpr
from cudf_polars.plan.tree import Tree

__all__ = [
    "AsofOptions",
    "DataFrameScan",
    "Distinct",
    "DynamicOptions",
    "Explode",
    "Filter",
    "GatherRows",
    "GroupBy",
    "HConcat",
    "HStack",
    "HintSorted",
    "Join",
    "MapFunction",
    "MergeSorted",
    "Node",
    "OpaqueNode",
    "PythonScan",
    "RollingOptions",
    "RowIndex",
    "Scan",
    "Schema",
    "Select",
    "SimpleProjection",
    "Sink",
    "Slice",
    "Sort",
    "Union",
    "Unnest",
    "Unpivot",
]

Schema = Mapping[str, pl.DataType]
"""Column names, in order, with their types."""


@dataclass(frozen=True, slots=True, eq=False)
class Node(Tree["Node"]):
    """Base of all nodes.

    Attributes
    ----------
    schema
        Output columns.
    """

    _child_fields: ClassVar[tuple[str, ...]] = ("child",)
    _expr_fields: ClassVar[tuple[str, ...]] = ()

    schema: Schema = field(kw_only=True, repr=False)

    @property
    def expressions(self) -> tuple[Expr, ...]:
        """Expressions of this node itself (not of its inputs)."""
        out: list[Expr] = []
        for name in self._expr_fields:
            value = getattr(self, name)
            if value is None:
                continue
            items = (value,) if isinstance(value, Expr | NamedExpr) else value
            out.extend(v.expr if isinstance(v, NamedExpr) else v for v in items)
        return tuple(out)


@dataclass(frozen=True, slots=True, eq=False)
class Scan(Node):
    """Read files.

    The order of effects is: read (with ``row_index`` counted over all files), ``slice``, ``predicate``,
    projection to ``schema``.

    Attributes
    ----------
    kind
        ``"parquet"``, ``"csv"``, ``"ndjson"``, ``"ipc"`` or ``"lines"``.
    paths
        Files in order, globs and folders resolved by Polars.
    predicate
        Rows to keep, or ``None``.
    slice
        ``(offset, length)`` in rows over all files before the predicate; the offset may be negative.
    row_index
        ``(name, first value)`` or ``None``.
    include_file_paths
        Name of a column that holds each row's path, or ``None``.
    options
        Keyword arguments of ``pl.scan_<kind>`` beyond those above.
    hive_columns
        Columns that come from the paths, with their types; ``None`` when the scan has no hive partitions.
    hive_parts
        One row a file with the values of ``hive_columns``, or ``None``.
    file_sizes
        Bytes of each file, if Polars shows them.
    cloud
        How to reach the files, if they are in an object store that has to be told.
    """

    _child_fields = ()
    _expr_fields = ("predicate",)

    kind: str
    paths: tuple[str, ...]
    predicate: Expr | None = None
    slice: tuple[int, int] | None = None
    row_index: tuple[str, int] | None = None
    include_file_paths: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    hive_columns: Schema | None = None
    hive_parts: pl.DataFrame | None = field(default=None, repr=False)
    file_sizes: tuple[int, ...] | None = None
    cloud: CloudAccess | None = None

    def __repr__(self) -> str:
        """Return its contents without what is secret in its paths."""
        values = {entry.name: getattr(self, entry.name) for entry in fields(self) if entry.repr}
        values["paths"] = tuple(map(shown_path, self.paths))
        return f"Scan({', '.join(f'{name}={value!r}' for name, value in values.items())})"


@dataclass(frozen=True, slots=True, eq=False)
class DataFrameScan(Node):
    """A frame in memory; ``schema`` names the columns of ``frame`` that are used."""

    _child_fields = ()

    frame: pl.DataFrame = field(repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class PythonScan(Node):
    """A source written in Python (``register_io_source``, a pyarrow data set).

    Attributes
    ----------
    function
        What Polars calls to read.
    pyarrow
        The function takes a pyarrow predicate (``"pyarrow"`` source).
    predicate
        Rows to keep, or ``None``.
    n_rows
        Read the first ``n_rows`` only, or ``None``.
    """

    _child_fields = ()
    _expr_fields = ("predicate",)

    function: Callable[..., Any]
    pyarrow: bool
    predicate: Expr | None = None
    n_rows: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Select(Node):
    """New columns from expressions; with ``broadcast``, those of one row repeat to the others' length."""

    _expr_fields = ("exprs",)

    child: Node
    exprs: tuple[NamedExpr, ...]
    broadcast: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class HStack(Node):
    """``with_columns``."""

    _expr_fields = ("exprs",)

    child: Node
    exprs: tuple[NamedExpr, ...]
    broadcast: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class Filter(Node):
    """Rows where the predicate holds."""

    _expr_fields = ("predicate",)

    child: Node
    predicate: Expr


@dataclass(frozen=True, slots=True, eq=False)
class SimpleProjection(Node):
    """The columns of ``schema``, out of the input's."""

    child: Node


@dataclass(frozen=True, slots=True)
class DynamicOptions:
    """Options of ``group_by_dynamic``; durations are strings."""

    index_column: str
    every: str
    period: str
    offset: str
    label: str
    include_boundaries: bool
    closed: str
    start_by: str


@dataclass(frozen=True, slots=True)
class RollingOptions:
    """Options of ``LazyFrame.rolling``; durations are strings."""

    index_column: str
    period: str
    offset: str
    closed: str


@dataclass(frozen=True, slots=True, eq=False)
class GroupBy(Node):
    """Aggregate groups.

    Attributes
    ----------
    maintain_order
        Groups come in the order of their first rows.
    dynamic, rolling
        Set for time windows; then ``index_column`` is no part of ``keys``.
    slice
        ``(offset, length)`` of the result's rows, or ``None``.
    """

    _expr_fields = ("keys", "aggs")

    child: Node
    keys: tuple[NamedExpr, ...]
    aggs: tuple[NamedExpr, ...]
    maintain_order: bool = False
    dynamic: DynamicOptions | None = None
    rolling: RollingOptions | None = None
    slice: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class AsofOptions:
    """Options of an as-of join.

    Attributes
    ----------
    tolerance
        Number in the key's own unit, a duration string, or ``None``.
    left_by, right_by
        Keys that must be equal; none is an empty tuple.
    """

    strategy: str
    tolerance: Any
    left_by: tuple[str, ...]
    right_by: tuple[str, ...]
    allow_exact_matches: bool
    check_sortedness: bool


@dataclass(frozen=True, slots=True, eq=False)
class Join(Node):
    """Join two inputs.

    Attributes
    ----------
    how
        ``"inner"``, ``"left"``, ``"right"``, ``"full"``, ``"semi"``, ``"anti"``, ``"cross"``, ``"asof"`` or
        ``"ie"`` (inequality join: ``left_on[i] ie_operators[i] right_on[i]`` must hold for each i).
    predicate
        For ``"inner"`` and ``"cross"``, what must hold of a pair beyond the keys. Its columns are those of
        the joined table: the right side's carry ``suffix`` where both sides have the name.
    coalesce
        Key pairs become one column.
    maintain_order
        ``"none"``, ``"left"``, ``"right"``, ``"left_right"`` or ``"right_left"``.
    validate
        ``"m:m"`` (no check), ``"m:1"``, ``"1:m"`` or ``"1:1"``.
    slice
        ``(offset, length)`` of the result's rows, or ``None``.
    build_side
        The side of which the hash table is made: ``"left"``, ``"right"``, or ``"auto"``: Polars buffers rows of both
        sides until it knows which one has fewer.
    """

    _child_fields = ("left", "right")
    _expr_fields = ("left_on", "right_on", "predicate")

    left: Node
    right: Node
    how: str
    left_on: tuple[NamedExpr, ...] = ()
    right_on: tuple[NamedExpr, ...] = ()
    predicate: Expr | None = None
    nulls_equal: bool = False
    suffix: str = "_right"
    coalesce: bool = False
    maintain_order: str = "none"
    validate: str = "m:m"
    slice: tuple[int, int] | None = None
    asof: AsofOptions | None = None
    ie_operators: tuple[str, ...] = ()
    build_side: str = "auto"


@dataclass(frozen=True, slots=True, eq=False)
class Sort(Node):
    """Sort rows; flags are per key.

    Attributes
    ----------
    slice
        ``(offset, length)`` of the sorted rows (top-k), or ``None``.
    maintain_order
        The sort is stable.
    """

    _expr_fields = ("by",)

    child: Node
    by: tuple[NamedExpr, ...]
    descending: tuple[bool, ...]
    nulls_last: tuple[bool, ...]
    maintain_order: bool = False
    slice: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Distinct(Node):
    """One row of each group of equal rows.

    Attributes
    ----------
    subset
        Columns to compare; ``None`` is all.
    keep
        ``"any"``, ``"first"``, ``"last"`` or ``"none"`` (only rows that have no double).
    maintain_order
        Rows stay in the input's order.
    slice
        ``(offset, length)`` of the result's rows, or ``None``.
    """

    child: Node
    subset: tuple[str, ...] | None
    keep: str
    maintain_order: bool = False
    slice: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Slice(Node):
    """``length`` rows from ``offset``, which is negative when counted from the end."""

    child: Node
    offset: int
    length: int


@dataclass(frozen=True, slots=True, eq=False)
class Union(Node):
    """Rows of all inputs, in their order when ``maintain_order`` is set.

    Attributes
    ----------
    slice
        ``(offset, length)`` of the result's rows, or ``None``.
    """

    _child_fields = ("inputs",)

    inputs: tuple[Node, ...]
    maintain_order: bool = True
    slice: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class HConcat(Node):
    """Columns of all inputs side by side.

    Attributes
    ----------
    strict
        Inputs must have the same number of rows; otherwise short ones are filled with nulls.
    broadcast_unit_length
        Inputs of one row are repeated.
    """

    _child_fields = ("inputs",)

    inputs: tuple[Node, ...]
    strict: bool = False
    broadcast_unit_length: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class MergeSorted(Node):
    """Merge two inputs that are sorted by ``key``."""

    _child_fields = ("left", "right")

    left: Node
    right: Node
    key: tuple[str, ...]
    maintain_order: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class GatherRows(Node):
    """Rows of ``child`` by the indices in the one column of ``indices``."""

    _child_fields = ("child", "indices")

    child: Node
    indices: Node
    null_on_oob: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class MapFunction(Node):
    """Base of the frame functions below: one input, no expressions."""

    child: Node


@dataclass(frozen=True, slots=True, eq=False)
class Explode(MapFunction):
    """One row for each element of the lists in ``columns``."""

    columns: tuple[str, ...]
    empty_as_null: bool
    keep_nulls: bool


@dataclass(frozen=True, slots=True, eq=False)
class Unnest(MapFunction):
    """Fields of struct columns as columns, with ``<column><separator>`` before if there is a separator."""

    columns: tuple[str, ...]
    separator: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Unpivot(MapFunction):
    """Columns ``on`` as rows of ``variable_name`` and ``value_name``; the rows of ``on[0]`` come first."""

    on: tuple[str, ...]
    index: tuple[str, ...]
    variable_name: str
    value_name: str


@dataclass(frozen=True, slots=True, eq=False)
class RowIndex(MapFunction):
    """Row numbers from ``offset`` as first column."""

    name: str
    offset: int


@dataclass(frozen=True, slots=True, eq=False)
class HintSorted(MapFunction):
    """The user says that the rows are sorted; each entry is ``(column, descending, nulls_last)``."""

    columns: tuple[tuple[str, bool, bool], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Sink(Node):
    """Write the input to files; the result has no rows.

    Attributes
    ----------
    method
        Name of the ``LazyFrame`` method: ``"sink_parquet"``, ``"sink_csv"``, ``"sink_ipc"``,
        ``"sink_ndjson"``.
    target
        Path, or an object that ``method`` takes instead (``pl.PartitionBy``).
    options
        Keyword arguments of ``method``.
    """

    child: Node
    method: str
    target: Any
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class OpaqueNode(Node):
    """A part of the query that only Polars can run, over inputs that are read plans.

    Attributes
    ----------
    name
        What it is, for messages: ``"map_batches"``, ``"scan_ipc"``...
    inputs
        Its inputs; none for a source.
    build
        Makes the part over one lazy frame for each input.
    reason
        Why Polars does not show it.
    digest
        What tells it from others of its name; equal on all ranks that run the same query.
    """

    _child_fields = ("inputs",)

    name: str
    inputs: tuple[Node, ...]
    build: Callable[[Sequence[pl.LazyFrame]], pl.LazyFrame] = field(repr=False)
    reason: str = ""
    digest: str = ""
