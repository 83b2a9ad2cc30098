"""A program: what a fragment of a query does on a GPU, as data.

The same as ``rapidsmpf/compute/detail/program.hpp``, which explains the parts. A program holds no closures and
compares by value. What it calls are primitives of libcudf with *libcudf's* semantics
(:mod:`cudf_polars.execute.gpu.primitives` lists them); that the whole means what Polars means is the business of
:mod:`cudf_polars.execute.gpu.translate`.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import polars as pl

__all__ = [
    "Aggregate",
    "Build",
    "Call",
    "Column",
    "Constant",
    "CudfType",
    "Distinct",
    "Filter",
    "FromInput",
    "FromJoin",
    "FromPipeline",
    "Group",
    "Hold",
    "ParquetFile",
    "ParquetScan",
    "Pipeline",
    "Probe",
    "Program",
    "Project",
    "RowRange",
    "Sink",
    "Sort",
    "SortKey",
    "Source",
    "Step",
    "TypeId",
    "Value",
]


class TypeId(enum.IntEnum):
    """The numbers of ``cudf::type_id`` (a test compares them with the library's)."""

    EMPTY = 0
    INT8 = 1
    INT16 = 2
    INT32 = 3
    INT64 = 4
    UINT8 = 5
    UINT16 = 6
    UINT32 = 7
    UINT64 = 8
    FLOAT32 = 9
    FLOAT64 = 10
    BOOL8 = 11
    TIMESTAMP_DAYS = 12
    TIMESTAMP_SECONDS = 13
    TIMESTAMP_MILLISECONDS = 14
    TIMESTAMP_MICROSECONDS = 15
    TIMESTAMP_NANOSECONDS = 16
    DURATION_DAYS = 17
    DURATION_SECONDS = 18
    DURATION_MILLISECONDS = 19
    DURATION_MICROSECONDS = 20
    DURATION_NANOSECONDS = 21
    DICTIONARY32 = 22
    STRING = 23
    LIST = 24
    DECIMAL32 = 25
    DECIMAL64 = 26
    DECIMAL128 = 27
    STRUCT = 28


@dataclass(frozen=True, slots=True)
class CudfType:
    """A type of libcudf; ``scale`` is cudf's (-2: two digits after the point), 0 but for decimals.

    Lists and structs say their children in ``children``; C++ does not need them.
    """

    id: TypeId
    scale: int = 0
    children: tuple[CudfType, ...] = ()


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the chunk, by its place."""

    index: int
    type: CudfType


@dataclass(frozen=True, slots=True)
class Constant:
    """A value of :attr:`Program.constants` by its place: a scalar if it has one row, else a set for ``contains``."""

    index: int
    type: CudfType


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a primitive."""

    op: str
    args: tuple[Value, ...]
    type: CudfType
    options: tuple[int | float | str, ...] = ()


Value = Column | Constant | Call


@dataclass(frozen=True, slots=True)
class ParquetFile:
    """Some row groups of a file; ``None``: all of them."""

    path: str
    row_groups: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class ParquetScan:
    """Rows of Parquet files, file by file: ``columns`` in this order."""

    files: tuple[ParquetFile, ...]
    columns: tuple[str, ...]
    types: tuple[CudfType, ...]


@dataclass(frozen=True, slots=True)
class FromInput:
    """Rows from outside: the input of this number, whose columns have these types."""

    input: int
    types: tuple[CudfType, ...]


@dataclass(frozen=True, slots=True)
class FromPipeline:
    """What an earlier pipeline gave."""

    pipeline: int


@dataclass(frozen=True, slots=True)
class FromJoin:
    """A join that needs all of both sides (``"full"``, ``"cross"``): left's columns, then right's."""

    kind: str
    left: int
    right: int
    left_keys: tuple[int, ...] = ()
    right_keys: tuple[int, ...] = ()
    nulls_equal: bool = False


Source = ParquetScan | FromInput | FromPipeline | FromJoin


@dataclass(frozen=True, slots=True)
class Filter:
    """Keeps rows where ``mask`` is true."""

    mask: Value


@dataclass(frozen=True, slots=True)
class Project:
    """New columns in place of the old ones."""

    columns: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Probe:
    """Joins chunks with what pipeline ``build`` built: ``"inner"``, ``"left"``, ``"semi"``, ``"anti"``.

    Gives the chunk's columns and, for inner and left, the build's ``payload`` columns after them. Rows come in any
    order, but a left join with keys that the build has once leaves each row where it is.
    """

    build: int
    kind: str
    keys: tuple[int, ...]
    payload: tuple[int, ...] = ()


Step = Filter | Project | Probe


@dataclass(frozen=True, slots=True)
class Build:
    """A hash table over the ``keys``; all columns stay for :attr:`Probe.payload`."""

    keys: tuple[int, ...]
    nulls_equal: bool = False


@dataclass(frozen=True, slots=True)
class Aggregate:
    """An aggregate of libcudf.

    Attributes
    ----------
    kind
        ``sum min max count_valid count_all mean nunique nunique_valid var std median quantile first last any product``.
    column
        What is aggregated; ``count_all`` takes any.
    type
        What the result is cast to.
    options
        ``var``, ``std``: ddof. ``quantile``: the quantile and ``linear lower higher midpoint nearest``.
    """

    kind: str
    column: int
    type: CudfType
    options: tuple[int | float | str, ...] = ()


@dataclass(frozen=True, slots=True)
class Group:
    """Groups by ``keys`` (null is a group) and aggregates: the keys, then the aggregates; without keys one row.

    An aggregate of no valid value is null, counts are 0. Groups come in any order, unless ``in_order``: by first rows.
    """

    keys: tuple[int, ...]
    aggregates: tuple[Aggregate, ...]
    in_order: bool = False


@dataclass(frozen=True, slots=True)
class SortKey:
    """``nulls_first`` says where nulls come in the result, whatever the direction. NaN is larger than all numbers."""

    column: int
    descending: bool = False
    nulls_first: bool = True


@dataclass(frozen=True, slots=True)
class RowRange:
    """Rows from ``offset`` (from the end when negative); ``length`` ``None``: all that follow."""

    offset: int
    length: int | None


@dataclass(frozen=True, slots=True)
class Sort:
    """All rows sorted, then a range of them."""

    keys: tuple[SortKey, ...]
    stable: bool = False
    range: RowRange | None = None


@dataclass(frozen=True, slots=True)
class Distinct:
    """One row for each value of ``keys``; ``keep`` is ``any first last none``."""

    keys: tuple[int, ...]
    keep: str = "any"
    in_order: bool = False


@dataclass(frozen=True, slots=True)
class Hold:
    """All rows; with ``in_order`` in the order of the source, which a ``range`` needs."""

    in_order: bool = False
    range: RowRange | None = None


Sink = Build | Group | Sort | Distinct | Hold


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A source, steps that each chunk goes through, a sink; ``types`` are those of the sink's result."""

    source: Source
    steps: tuple[Step, ...]
    sink: Sink
    types: tuple[CudfType, ...]


@dataclass(frozen=True)
class Program:
    """Pipelines in the order in which they may run; the last one's result is the program's.

    Attributes
    ----------
    constants
        The values that expressions name, a series each.
    schema
        Names and Polars types of the result's columns. The types on the device may differ (Categorical as strings,
        decimals of 18 digits as 64 bits); the rows are cast when they come back.
    """

    pipelines: tuple[Pipeline, ...]
    constants: tuple[pl.Series, ...]
    schema: Mapping[str, pl.DataType] = field(default_factory=dict)

    def values(self) -> Iterator[Value]:
        """Yield the expressions of all steps."""
        for pipeline in self.pipelines:
            for step in pipeline.steps:
                match step:
                    case Filter(mask):
                        yield mask
                    case Project(columns):
                        yield from columns
                    case _:
                        pass
