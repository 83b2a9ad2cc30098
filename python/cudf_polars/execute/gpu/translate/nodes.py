"""Plan nodes as pipelines of a program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from cudf_polars.execute.gpu.program import (
    Column,
    CudfType,
    Distinct,
    FromInput,
    Hold,
    ParquetFile,
    ParquetScan,
    Program,
    RowRange,
    Sort,
    SortKey,
    TypeId,
)
from cudf_polars.execute.gpu.translate.estimates import kept_by
from cudf_polars.execute.gpu.translate.expressions import translate_expression
from cudf_polars.execute.gpu.translate.functions import field_of
from cudf_polars.execute.gpu.translate.groups import Groups, has_aggregates
from cudf_polars.execute.gpu.translate.joins import join
from cudf_polars.execute.gpu.translate.needs import column_needs
from cudf_polars.execute.gpu.translate.ranges import Interval, Range, limits_of
from cudf_polars.execute.gpu.translate.rewrites import as_one_source, several_values
from cudf_polars.execute.gpu.translate.statistics import (
    column_range,
    file_rows,
    have_columns,
    may_hold_nulls,
    types_in_files,
)
from cudf_polars.execute.gpu.translate.streams import Pipelines, Stream
from cudf_polars.execute.gpu.translate.typed import Constants, Scope, Typed, condition
from cudf_polars.execute.gpu.translate.types import device_type, has_form, instance, is_integer, scale_of
from cudf_polars.execute.gpu.translate.untranslatable import Unsupported, UntranslatablePlan, text_of
from cudf_polars.lower.estimates import row_width
from cudf_polars.plan import expressions as ex
from cudf_polars.plan import nodes
from cudf_polars.plan.dag import walk_nodes
from cudf_polars.plan.properties import is_length_preserving, is_scalar, walk

__all__ = ["TranslatedProgram", "refusals", "translate"]

_UNKNOWN_ROWS = 1e6
_HELD_BYTES = 8e9
"""A table that is used twice and is larger than this is read twice."""


@dataclass(frozen=True)
class TranslatedProgram:
    """A program, and the frames of the plan that are its inputs.

    Attributes
    ----------
    program
        What runs.
    frames
        Inputs that the plan holds in memory: their numbers follow those of the inputs that were given.
    """

    program: Program
    frames: tuple[pl.DataFrame, ...] = ()


def translate(root: nodes.Node, inputs: Mapping[nodes.Node, int]) -> TranslatedProgram:
    """Translate a plan to a program.

    Parameters
    ----------
    root
        The plan's last node.
    inputs
        Nodes whose rows come from outside, with the numbers of these inputs, which count from 0.

    Raises
    ------
    UntranslatablePlan
        If a node has no form on a GPU.
    """
    return _Translator(root, inputs).translate()


def refusals(root: nodes.Node) -> list[UntranslatablePlan]:
    """Return all nodes of a plan that have no form on a GPU, each by itself; none if the plan has one.

    A node alone may be refused where the whole plan is not: what is known of values below it is not known then.
    """
    try:
        translate(root, {})
    except UntranslatablePlan:
        pass
    else:
        return []
    found = []
    for node in walk_nodes(root):
        below = dict.fromkeys(node.children)
        try:
            translate(node, {child: number for number, child in enumerate(below)})
        except UntranslatablePlan as refusal:
            found.append(refusal)
    return found


class _Translator:
    def __init__(self, root: nodes.Node, inputs: Mapping[nodes.Node, int]) -> None:
        self._root = root
        self._inputs = inputs
        self._needs = column_needs(root)
        self._users = dict.fromkeys(self._needs, 0)
        for node in self._users:
            for child in node.children:
                self._users[child] += 1
        self._pipelines = Pipelines()
        self._constants = Constants()
        self._groups = Groups(self._pipelines, self._constants)
        self._frames: list[pl.DataFrame] = []
        self._shared: dict[nodes.Node, tuple[int, Stream]] = {}

    def translate(self) -> TranslatedProgram:
        root = self._root
        stream = self._stream(root)
        if not root.schema:
            raise UntranslatablePlan(root, "a result without columns")
        for name, dtype in root.schema.items():
            if name not in stream.columns or _holds_structs(dtype):  # the names of fields do not come back
                raise UntranslatablePlan(root, f"the column {name!r} of {dtype} in a result")
        stream.give([stream.columns[name] for name in root.schema])
        if stream.held is None or stream.held != len(self._pipelines.done) - 1:
            self._pipelines.close(stream, Hold(in_order=True))
        program = Program(tuple(self._pipelines.done), tuple(self._constants.series), dict(root.schema))
        return TranslatedProgram(program, tuple(self._frames))

    def _stream(self, node: nodes.Node) -> Stream:
        """Return a stream of the rows of a node, with at least the columns that are used of it."""
        shared = self._shared.get(node)
        if shared is not None:
            return self._pipelines.reopen(*shared)
        try:
            stream = self._translate(node)
        except Unsupported as refused:
            text = None if refused.expression is None else text_of(refused.expression)
            raise UntranslatablePlan(node, refused.reason, text) from None
        except RecursionError:
            raise UntranslatablePlan(node, "an expression is too deep") from None
        if self._users[node] > 1 and not self._is_read_again(node, stream):
            wanted = [name for name in node.schema if name in self._needs[node]]
            stream.keep(wanted)
            held = self._pipelines.hold(stream)
            self._shared[node] = held, stream
            return self._pipelines.reopen(held, stream)
        return stream

    def _is_read_again(self, node: nodes.Node, stream: Stream) -> bool:
        """Whether rows that are used twice are read from their files twice: held, they would fill the memory."""
        below = node
        while isinstance(below, nodes.SimpleProjection | nodes.Filter) and self._users[below.child] == 1:
            below = below.child
        if not isinstance(below, nodes.Scan):
            return False
        return stream.rows * row_width(node.schema) > _HELD_BYTES

    def _translate(self, node: nodes.Node) -> Stream:
        number = self._inputs.get(node)
        if number is not None:
            return self._from_input(node, number)
        match node:
            case nodes.Scan():
                return self._scan(node)
            case nodes.DataFrameScan():
                return self._frame(node)
            case nodes.Select():
                return self._select(node)
            case nodes.HStack():
                return self._hstack(node)
            case nodes.Filter():
                return self._filter(node)
            case nodes.SimpleProjection():
                return self._projection(node)
            case nodes.HintSorted():
                return self._stream(node.child)
            case nodes.GroupBy():
                return self._group_by(node)
            case nodes.Distinct():
                return self._distinct(node)
            case nodes.Sort():
                return self._sort(node)
            case nodes.Slice():
                return self._sliced(self._stream(node.child), (node.offset, node.length))
            case nodes.Join():
                return self._join(node)
            case nodes.Union():
                return self._sliced(self._union(node), node.slice)
            case nodes.Unnest():
                return self._unnest(node)
            case _:
                raise Unsupported("this node has no form on a GPU")

    def _scope(self, stream: Stream) -> Scope:
        return Scope(stream.columns, self._constants)

    # --- sources ----------------------------------------------------------------------

    def _from_input(self, node: nodes.Node, number: int) -> Stream:
        types = tuple(_arrow_type(dtype) for dtype in node.schema.values())
        columns = {
            name: Typed(Column(place, type_), dtype, Range(limits_of(dtype)))
            for place, ((name, dtype), type_) in enumerate(zip(node.schema.items(), types, strict=True))
        }
        return Stream(FromInput(number, types), types, columns, _UNKNOWN_ROWS, _UNKNOWN_ROWS)

    def _frame(self, node: nodes.DataFrameScan) -> Stream:
        names = [name for name, dtype in node.schema.items() if name in self._needs[node] and has_form(dtype)]
        frame, schema = node.frame.select(names), node.schema
        if not names:  # who only counts rows
            names, schema = [""], {"": pl.Int8()}
            frame = pl.select(pl.repeat(0, node.frame.height, dtype=pl.Int8).alias(""))
        types = tuple(_arrow_type(schema[name]) for name in names)
        number = len(self._inputs) + len(self._frames)
        columns = {
            name: Typed(
                Column(place, types[place]),
                schema[name],
                _range_of_series(frame[name]),
                nullable=frame[name].null_count() > 0,
            )
            for place, name in enumerate(names)
        }
        self._frames.append(frame)
        rows = float(frame.height)
        return Stream(FromInput(number, types), types, columns, rows, rows, one_row=frame.height == 1)

    def _scan(self, node: nodes.Scan) -> Stream:
        if node.kind != "parquet":
            raise Unsupported(f"files of the kind {node.kind!r}")
        for what, value in (
            ("a row index", node.row_index),
            ("a slice of a scan", node.slice),
            ("paths as a column", node.include_file_paths),
            ("hive partitions", node.hive_columns or None),
        ):
            if value is not None:
                raise Unsupported(f"{what} has no form on a GPU")
        if any("://" in path for path in node.paths):
            raise Unsupported("files that are not local")
        read = self._needs[node] | (set() if node.predicate is None else set(_columns_of(node.predicate)))
        types_of = self._file_schema(node)
        names = [name for name in types_of if name in read and has_form(types_of[name])] or _cheapest(
            node.schema
        )
        given = node.options.get("schema")
        if len(node.paths) > 1 or given is not None:  # else the plan has them of the file
            if not have_columns(node.paths, given):
                raise Unsupported("files of different columns")
            for name in names:
                if types_in_files(node.paths, name) != {types_of[name]}:
                    raise Unsupported(f"files in which the column {name!r} is not there, or of other types")
        types = tuple(device_type(types_of[name]) for name in names)
        columns = {
            name: Typed(
                Column(place, types[place]),
                types_of[name],
                column_range(node.paths, name, types_of[name]),
                may_hold_nulls(node.paths, name),
            )
            for place, name in enumerate(names)
        }
        rows = file_rows(node.paths)
        rows = _UNKNOWN_ROWS if rows is None else rows
        files = tuple(ParquetFile(path) for path in node.paths)
        stream = Stream(ParquetScan(files, tuple(names), types), types, columns, rows, rows)
        if node.predicate is not None:
            self._filter_stream(stream, node.predicate)
        return stream

    def _file_schema(self, node: nodes.Scan) -> Mapping[str, pl.DataType]:
        """Return the types of the scan's columns and of those that only its predicate reads."""
        if node.predicate is None:
            return node.schema
        types = dict(node.schema)
        for e in walk(node.predicate):
            if isinstance(e, ex.Column) and e.name not in types:
                if e.dtype is None:
                    raise Unsupported(f"the type of the column {e.name!r} is not known")
                types[e.name] = e.dtype
        return types

    # --- row-wise nodes ----------------------------------------------------------------------

    def _filter(self, node: nodes.Filter) -> Stream:
        stream, predicate = self._filtered(node)
        if has_aggregates(predicate):
            stream, (predicate,) = self._groups.beside(stream, [predicate], self._needs[node])
        self._filter_stream(stream, predicate)
        wanted = self._needs[node]
        stream.keep(wanted)
        return stream

    def _filtered(self, node: nodes.Filter) -> tuple[Stream, ex.Expr]:
        """Return the rows that a filter reads, and its predicate; both may be said in another way."""
        other = None if self._users[node.child] > 1 else several_values(node, self._needs[node])
        if other is not None:
            changed, group = other
            old = node.child.schema
            self._needs[group] = {
                name for name in group.schema if name in self._needs[node.child] or name not in old
            }
            return self._group_by(group), changed.predicate
        return self._stream(node.child), node.predicate

    def _filter_stream(self, stream: Stream, predicate: ex.Expr) -> None:
        mask = translate_expression(predicate, self._scope(stream))
        if not isinstance(mask.dtype, pl.Boolean):
            raise Unsupported(f"a predicate of {mask.dtype}", predicate)
        if mask.literal is True:
            return
        if mask.literal is False or mask.is_null_literal:
            some = stream.any_column()
            tests = [condition(op, some, nullable=False) for op in ("is_null", "is_valid")]
            mask = condition("null_logical_and", *tests)
        stream.filter(mask, kept_by(predicate))

    def _projection(self, node: nodes.SimpleProjection) -> Stream:
        stream = self._stream(node.child)
        stream.keep(name for name in node.schema if name in self._needs[node])
        return stream

    def _select(self, node: nodes.Select) -> Stream:
        stream = self._stream(node.child)
        if all(is_scalar(e.expr) for e in node.exprs):
            return self._groups.reduce(stream, node.exprs)
        wanted = [e for e in node.exprs if e.name in self._needs[node]] or list(node.exprs[:1])
        # What is not wanted may still say how many rows there are.
        for e in node.exprs:
            if e not in wanted and not (is_scalar(e.expr) or is_length_preserving(e.expr)):
                raise Unsupported("the number of rows of a column that is not used", e.expr)
        return self._row_wise(stream, wanted, {})

    def _hstack(self, node: nodes.HStack) -> Stream:
        stream = self._stream(node.child)
        needed = self._needs[node]
        new = {e.name for e in node.exprs}
        kept = {name: t for name, t in stream.columns.items() if name in needed and name not in new}
        wanted = [e for e in node.exprs if e.name in needed]
        return self._row_wise(stream, wanted, kept) if wanted else stream

    def _row_wise(self, stream: Stream, exprs: Sequence[ex.NamedExpr], kept: Mapping[str, Typed]) -> Stream:
        """Compute expressions, beside columns that are kept."""
        for e in exprs:
            parts = list(walk(e.expr))
            # A series has rows of its own, one too; a column beside it must have as many.
            if any(isinstance(part, ex.Literal) and not part.scalar for part in parts) and not any(
                isinstance(part, ex.Column) for part in parts
            ):
                raise Unsupported("a series as a column", e.expr)
        if any(has_aggregates(e.expr) for e in exprs):
            used = {name for e in exprs for name in _columns_of(e.expr)}
            stream, changed = self._groups.beside(stream, [e.expr for e in exprs], used | set(kept))
            exprs = [e.with_expr(expr) for e, expr in zip(exprs, changed, strict=True)]
            kept = {name: stream.columns[name] for name in kept if name in stream.columns}
        scope = self._scope(stream)
        made = {e.name: translate_expression(e.expr, scope) for e in exprs}
        stream.select({**kept, **made})
        return stream

    # --- aggregations ----------------------------------------------------------------------

    def _group_by(self, node: nodes.GroupBy) -> Stream:
        if node.dynamic is not None or node.rolling is not None:
            raise Unsupported("groups by time windows have no form on a GPU")
        stream = self._stream(node.child)
        wanted = [e for e in node.aggs if e.name in self._needs[node]]
        out = self._groups.group(stream, node.keys, wanted, in_order=node.maintain_order)
        return self._sliced(out, node.slice)

    def _distinct(self, node: nodes.Distinct) -> Stream:
        stream = self._stream(node.child)
        names = list(node.child.schema) if node.subset is None else list(node.subset)
        for name in names:
            if name not in stream.columns or node.child.schema[name].is_nested():
                raise Unsupported(f"distinct rows of {node.child.schema[name]}")
        wanted = self._needs[node] | set(names)
        kept = {name: typed for name, typed in stream.columns.items() if name in wanted}
        keys = tuple(stream.place(kept, [kept[name] for name in names]))
        # where order matters, any row of equals must be the one whose place Polars means: the first
        keep = "first" if node.keep == "any" and node.maintain_order else node.keep
        number = self._pipelines.close(stream, Distinct(keys, keep, node.maintain_order))
        return self._sliced(self._pipelines.reopen(number, stream), node.slice)

    # --- order ----------------------------------------------------------------------

    def _sort(self, node: nodes.Sort) -> Stream:
        stream = self._stream(node.child)
        scope = self._scope(stream)
        by = [translate_expression(e.expr, scope) for e in node.by]
        for key, e in zip(by, node.by, strict=True):
            if key.dtype.is_nested():
                raise Unsupported(f"a sort by {key.dtype}", e.expr)
        kept = {name: typed for name, typed in stream.columns.items() if name in self._needs[node]}
        places = stream.place(kept, by)
        keys = tuple(
            SortKey(place, descending, not nulls_last)
            for place, descending, nulls_last in zip(places, node.descending, node.nulls_last, strict=True)
        )
        rows = None if node.slice is None else RowRange(*node.slice)
        number = self._pipelines.close(stream, Sort(keys, node.maintain_order, rows))
        out = self._pipelines.reopen(number, stream)
        if node.slice is not None:
            out.rows = min(out.rows, float(node.slice[1]))
        out.one_row = False
        return out

    def _sliced(self, stream: Stream, rows: tuple[int, int] | None) -> Stream:
        if rows is None:
            return stream
        number = self._pipelines.close(stream, Hold(in_order=True, range=RowRange(*rows)))
        out = self._pipelines.reopen(number, stream)
        out.rows, out.one_row = min(out.rows, float(rows[1])), False
        return out

    def _unnest(self, node: nodes.Unnest) -> Stream:
        stream = self._stream(node.child)
        made: list[tuple[str, Typed]] = []
        for name, typed in stream.columns.items():
            if name not in node.columns:
                made.append((name, typed))
                continue
            assert isinstance(typed.dtype, pl.Struct)
            prefix = "" if node.separator is None else name + node.separator
            for place, struct_field in enumerate(typed.dtype.fields):
                made.append((prefix + struct_field.name, field_of(typed, place)))
        if len(dict(made)) < len(made):
            raise Unsupported("fields of the same name as other columns")  # Polars says which
        stream.select({name: typed for name, typed in made if name in self._needs[node]})
        return stream

    # --- several inputs ----------------------------------------------------------------------

    def _join(self, node: nodes.Join) -> Stream:
        left, right = self._stream(node.left), self._stream(node.right)
        out = join(node, left, right, self._needs[node], self._pipelines, self._constants)
        return self._sliced(out, node.slice)

    def _union(self, node: nodes.Union) -> Stream:
        one = as_one_source(node)
        if one is None:
            raise Unsupported("rows of several inputs one after another, unless all are files or all frames")
        self._needs[one] = self._needs[node]
        return self._translate(one)


def _arrow_type(dtype: pl.DataType) -> CudfType:
    """Return the type on the device of what comes from the host: decimals have 128 bits there."""
    if isinstance(dtype, pl.Decimal):
        return CudfType(TypeId.DECIMAL128, -scale_of(dtype))
    return device_type(dtype)


def _range_of_series(series: pl.Series) -> Range:
    """Return the range of a column in memory; its values are looked at when that is asked for."""
    if not isinstance(series.dtype, pl.Decimal) and not is_integer(series.dtype):
        return Range(limits_of(series.dtype))

    def learn() -> Interval | None:
        units = series.to_physical() if isinstance(series.dtype, pl.Decimal) else series
        low, high = units.min(), units.max()
        return (0, 0) if low is None or high is None else (int(low), int(high))  # type: ignore[arg-type]

    return Range(limits_of(series.dtype), learn)


def _cheapest(schema: Mapping[str, pl.DataType]) -> list[str]:
    """Return the column that is the least work, for who only counts rows."""
    schema = {name: dtype for name, dtype in schema.items() if has_form(dtype)}
    if not schema:
        raise Unsupported("a table without columns that have a form on a GPU")
    return [min(schema, key=lambda name: (schema[name].is_nested(), row_width({name: schema[name]})))]


def _holds_structs(dtype: pl.DataType) -> bool:
    inner = instance(dtype.inner) if isinstance(dtype, pl.List) else dtype
    return isinstance(inner, pl.Struct) or (inner is not dtype and _holds_structs(inner))


def _columns_of(expr: ex.Expr) -> list[str]:
    return [e.name for e in walk(expr) if isinstance(e, ex.Column)]
