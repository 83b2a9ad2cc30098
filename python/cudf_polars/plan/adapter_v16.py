"""Polars' plan views of version 16 (Polars 2.1) as nodes and expressions of :mod:`cudf_polars.plan`.

Polars' ``NodeTraverser`` shows the optimised plan as views that point to each other by number. A view that
does not exist, or does not say enough, raises :class:`Unreadable`; :mod:`cudf_polars.plan.read` then reads
the query by another way.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import polars as pl

from cudf_polars.plan import expressions as ex
from cudf_polars.plan import nodes
from cudf_polars.plan.file_options_v16 import Unreadable, scan_keywords, sink_keywords, snake
from cudf_polars.plan.functions import FUNCTIONS
from cudf_polars.plan.placeholder import ROWS, rows_as_column
from cudf_polars.plan.rebuild import rebuild_scan

__all__ = ["Adapter", "Facts", "Unreadable"]

_VALIDATED = ("inner", "left", "right", "full")
_PYTHON_SCAN = {"io_plugin": False, "pyarrow": True}

_OPERATORS = {
    "Eq": ex.Operator.EQ,
    "EqValidity": ex.Operator.EQ_MISSING,
    "NotEq": ex.Operator.NE,
    "NotEqValidity": ex.Operator.NE_MISSING,
    "Lt": ex.Operator.LT,
    "LtEq": ex.Operator.LE,
    "Gt": ex.Operator.GT,
    "GtEq": ex.Operator.GE,
    "Plus": ex.Operator.ADD,
    "Minus": ex.Operator.SUB,
    "Multiply": ex.Operator.MUL,
    "Divide": ex.Operator.RUST_DIV,
    "TrueDivide": ex.Operator.TRUE_DIV,
    "TruncDivide": ex.Operator.TRUNC_DIV,
    "FloorDivide": ex.Operator.FLOOR_DIV,
    "Modulus": ex.Operator.MOD,
    "And": ex.Operator.AND,
    "LogicalAnd": ex.Operator.AND,
    "Or": ex.Operator.OR,
    "LogicalOr": ex.Operator.OR,
    "Xor": ex.Operator.XOR,
}
_CAST_MODES = (ex.CastMode.STRICT, ex.CastMode.NON_STRICT, ex.CastMode.WRAP)
_PREFIXES = {
    "BooleanFunction": "",
    "StringFunction": "str.",
    "TemporalFunction": "dt.",
    "ListFunction": "list.",
    "ArrayFunction": "arr.",
    "StructFunction": "struct.",
    "RangeFunction": "",
    "RollingFunction": "rolling_",
    "RollingFunctionBy": "rolling_",
    "EwmFunction": "ewm_",
    "BitwiseFunction": "bitwise_",
}
# where the API's name is not the view's in snake case
_RENAMED = {
    "not": "not_",
    "concat": "append",
    "str.uppercase": "str.to_uppercase",
    "str.lowercase": "str.to_lowercase",
    "str.titlecase": "str.to_titlecase",
    "str.concat_vertical": "str.join",
    "str.split_n": "str.splitn",
    "str.z_fill": "str.zfill",
    "dt.week_day": "dt.weekday",
    "dt.time_stamp": "dt.timestamp",
    "dt.d_s_t_offset": "dt.dst_offset",
    "dt.datetime_function": "dt.datetime",
    "list.length": "list.len",
    "arr.length": "arr.len",
    "struct.field_by_name": "struct.field",
    "struct.map_field_names": "struct.map_fields",
    "struct.drop_fields": "struct.drop",
}


def _duration(parts: tuple[int, int, int, int, bool, bool]) -> str:
    """Write Polars' ``(months, weeks, days, nanoseconds, is an index count, negative)`` as it parses it."""
    months, weeks, days, nanoseconds, is_index, negative = parts
    sign = "-" if negative else ""
    if is_index:
        return f"{sign}{nanoseconds}i"
    fine, unit = nanoseconds, "ns"
    # Polars takes the mention of nanoseconds in an interval for a wish to have them in the result
    for size, coarser in ((1000, "us"), (1_000_000, "ms"), (1_000_000_000, "s")):
        if nanoseconds % size == 0:
            fine, unit = nanoseconds // size, coarser
    out = "".join(f"{n}{u}" for n, u in ((months, "mo"), (weeks, "w"), (days, "d"), (fine, unit)) if n)
    return sign + out if out else "0s"


def _freeze(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(_freeze(v) for v in value)
    if type(value).__name__ == "PySeries":
        return ex.FrozenSeries(pl.Series._from_pyseries(value))
    return value


class Facts(Protocol):
    """What the views leave out of a query."""

    @property
    def null_on_oob(self) -> bool | None:
        """Value of ``null_on_oob`` of every gather; ``None`` when they differ."""
        ...

    @property
    def validations(self) -> Mapping[tuple[str, ...], str | None]:
        """Value of ``validate`` of joins by the names of their keys, left ones first.

        ``None`` where it differs among joins of the same keys.
        """
        ...


class Adapter:
    """Reads one plan.

    Parameters
    ----------
    traverser
        What ``visit()`` returned.
    facts
        Called when the query has something that the views leave out; gives ``null_on_oob`` of its gathers and
        ``validations`` of its joins by the names of their keys.
    exact_times
        Called when a time or a datetime of nanoseconds is a literal, of which the views show whole microseconds; says
        whether these are all in the plan.
    opaque_expressions, opaque_nodes
        What placeholders in the plan stand for, by their number.
    placeholder_of
        Gives the number that a Python source stands for, ``None`` for the user's own.
    """

    def __init__(
        self,
        traverser: Any,
        *,
        facts: Callable[[], Facts],
        exact_times: Callable[[], bool],
        opaque_expressions: Mapping[int, ex.OpaqueSource],
        opaque_nodes: Mapping[int, nodes.Node],
        placeholder_of: Callable[[Any], int | None],
    ) -> None:
        self._nt = traverser
        self._facts = facts
        self._exact_times = exact_times
        self._opaque_expressions = opaque_expressions
        self._opaque_nodes = opaque_nodes
        self._placeholder_of = placeholder_of
        self._by_number: dict[int, nodes.Node] = {}
        self._caches: dict[int, nodes.Node] = {}

    def read(self) -> nodes.Node:
        """Return the plan's root.

        Raises
        ------
        Unreadable
            When a part of the plan cannot be seen.
        """
        number = self._nt.get_node()
        root = self._node(number)
        self._nt.set_node(number)
        if not self._nt.get_schema() and root.schema and not isinstance(root, nodes.Sink):
            # rows without columns: their number is the answer
            return nodes.SimpleProjection(root, schema={})
        return root

    # --- nodes ----------------------------------------------------------------------

    def _node(self, number: int) -> nodes.Node:
        known = self._by_number.get(number)
        if known is not None:
            return known
        nt = self._nt
        nt.set_node(number)
        try:
            view = nt.view_current_node()
        except (NotImplementedError, ValueError) as e:
            raise Unreadable(str(e).split("\n")[0][:80]) from e
        schema: dict[str, pl.DataType] = dict(nt.get_schema())
        reader = getattr(self, "_read_" + type(view).__name__, None)
        if reader is None:
            raise Unreadable(f"plan node {type(view).__name__}")
        node: nodes.Node = reader(view, number, schema)
        self._by_number[number] = node
        return node

    def _exprs(self, items: Sequence[Any], number: int) -> tuple[ex.NamedExpr, ...]:
        return tuple(self._named(item, number) for item in items)

    def _named(self, item: Any, number: int) -> ex.NamedExpr:
        return ex.NamedExpr(item.output_name, self._expr(item.node, number))

    def _read_DataFrameScan(self, view: Any, number: int, schema: dict[str, pl.DataType]) -> nodes.Node:
        frame = pl.DataFrame._from_pydf(view.df)
        if view.selection is not None:
            raise Unreadable("a data frame with a selection")
        frame = rows_as_column(frame)
        if not schema:
            first = frame.columns[0]
            schema = {first: frame.schema[first]}
        return nodes.DataFrameScan(frame, schema=schema)

    def _read_PythonScan(self, view: Any, number: int, schema: dict[str, pl.DataType]) -> nodes.Node:
        function, _columns, source, predicate, n_rows = view.options
        expr: ex.Expr | None = None
        if predicate is not None:
            if source != "io_plugin" and predicate[0] != "polars":
                raise Unreadable("a pyarrow predicate")
            expr = self._predicate(predicate[1], number)
        if source not in _PYTHON_SCAN:
            raise Unreadable(f"python scan {source}")
        placeholder = self._placeholder_of(function)
        if placeholder is not None:
            node = self._opaque_nodes[placeholder]
            if isinstance(node, nodes.Scan):
                return _narrowed(node, expr, n_rows, schema)
            if n_rows is not None:
                node = nodes.Slice(node, 0, n_rows, schema=node.schema)
            if expr is not None:
                node = nodes.Filter(node, expr, schema=node.schema)
            if list(node.schema) != list(schema):
                node = nodes.SimpleProjection(node, schema=schema) if schema else node
            return node
        if expr is not None and n_rows is not None:
            raise Unreadable("a python scan with both a predicate and a row limit")
        if not schema:
            raise Unreadable("a python scan without columns")
        return nodes.PythonScan(
            function, pyarrow=_PYTHON_SCAN[source], predicate=expr, n_rows=n_rows, schema=schema
        )

    def _read_Scan(self, view: Any, number: int, schema: dict[str, pl.DataType]) -> nodes.Node:
        if not view.paths:  # a filter of partition columns has left no file; Polars makes no scan of none
            return nodes.DataFrameScan(pl.DataFrame(schema=schema), schema=schema)
        options = view.file_options
        for unusual in (
            "deletion_files",
            "column_mapping",
            "default_values",
            "table_statistics",
            "row_count",
        ):
            try:
                value = getattr(options, unusual)
            except NotImplementedError as e:
                raise Unreadable(f"scan with {unusual}") from e
            if value is not None:
                raise Unreadable(f"scan with {unusual}")
        predicate = None if view.predicate is None else self._predicate(view.predicate.node, number)
        hive_columns: nodes.Schema | None = None
        hive_parts: pl.DataFrame | None = None
        if view.hive_parts is not None:
            hive_parts = pl.DataFrame._from_pydf(view.hive_parts)
            hive_columns = dict(hive_parts.schema) | _unread_keys(view.paths[0], options, hive_parts, schema)
        elif options.hive_options is not None and options.hive_options["enabled"]:
            hive_columns = {}
        kind, keywords = scan_keywords(view.scan_type, options)
        node = nodes.Scan(
            kind=kind,
            paths=tuple(str(p) for p in view.paths),
            predicate=predicate,
            slice=options.n_rows,
            row_index=options.row_index,
            include_file_paths=options.include_file_paths,
            options=keywords,
            hive_columns=hive_columns,
            hive_parts=hive_parts,
            file_sizes=None if view.source_sizes is None else tuple(view.source_sizes),
            schema=schema,
        )
        return node if schema else _scan_of_one_column(node)

    def _read_Select(self, view: Any, number: int, schema: dict[str, pl.DataType]) -> nodes.Node:
        child = self._node(view.input)
        return nodes.Select(
            child, self._exprs(view.expr, view.input), broadcast=view.should_broadcast, schema=schema
        )

    def _read_Reduce(self, view: Any, number: int, schema: dict[str, pl.DataType]) -> nodes.Node:
        child = self._node(view.input)
        return nodes.Select(child, self._exprs(view.exprs, view.input), schema=schema)

    def _read_HStack(self, view: Any, number: int, schema: dict[str, pl.DataType]) -> nodes.Node:
        child = self._node(view.input)
        return nodes.HStack(
            child, self._exprs(view.exprs, view.input), broadcast=view.should_broadcast, schema=schema
        )

    def _read_Filter(self, view: Any, number: int, schema: dict[str, pl.DataType]) -> nodes.Node:
        child = self._node(view.input)
        predicate = self._predicate(view.predicate.node, view.input)
        return child if predicate is None else nodes.Filter(child, predicate, schema=child.schema)

    def _read_SimpleProjection(self, view: Any, number: int, schema: dict[str, pl.DataType]) -> nodes.Node:
        child = self._node(view.input)
        if not schema or list(schema) == list(child.schema):
            return child  # without columns only the number of rows is asked for
        return nodes.SimpleProjection(child, schema=schema)

    def _read_Cache(self, view: Any, number: int, schema: dict[str, pl.DataType]) -> nodes.Node:
        node = self._caches.get(view.id_)
        if node is None:
            node = self._caches[view.id_] = self._node(view.input)
        return node

    def _read_Sort(self, view: Any, number: int, schema: dict[str, pl.DataType]) -> nodes.Node:
        child = self._node(view.input)
        maintain_order, nulls_last, descending = view.sort_options
        by = self._exprs(view.by_column, view.input)
        return nodes.Sort(
            child,
            by,
            _per_key(descending, len(by)),
            _per_key(nulls_last, len(by)),
            maintain_order=maintain_order,
            slice=None if view.slice is None else tuple(view.slice[:2]),
            schema=child.schema,
        )

    def _read_GroupBy(self, view: Any, number: int, schema: dict[str, pl.DataType]) -> nodes.Node:
        child = self._node(view.input)
        dynamic, rolling = view.options.dynamic, view.options.rolling
        return nodes.GroupBy(
            child,
            self._exprs(view.keys, view.input),
            self._exprs(view.aggs, view.input),
            maintain_order=view.maintain_order,
            dynamic=None
            if dynamic is None
            else nodes.DynamicOptions(
                dynamic.index_column,
                _duration(dynamic.every),
                _duration(dynamic.period),
                _duration(dynamic.offset),
                _label(dynamic.label),
                dynamic.include_boundaries,
                dynamic.closed_window,
                _label(dynamic.start_by),
            ),
            rolling=None
            if rolling is None
            else nodes.RollingOptions(
                rolling.index_column,
                _duration(rolling.period),
                _duration(rolling.offset),
                rolling.closed_window,
            ),
            slice=view.options.slice,
            schema=schema,
        )

    def _read_Join(self, view: Any, number: int, schema: dict[str, pl.DataType]) -> nodes.Node:
        left, right = self._node(view.input_left), self._node(view.input_right)
        how, nulls_equal, slice_, suffix, coalesce, maintain_order = view.options
        left_on = self._exprs(view.left_on, view.input_left)
        right_on = self._exprs(view.right_on, view.input_right)
        extra: tuple[Any, ...] = ()
        if isinstance(how, tuple):
            how, *rest = how
            extra = tuple(rest)
        kind = {"AsOf": "asof", "IEJoin": "ie"}.get(how, how.lower())
        predicate: ex.Expr | None = None
        if view.predicate is not None:
            if kind not in ("inner", "cross"):
                raise Unreadable(f"{kind} join with a predicate")
            predicate = self._joined_expr(view.predicate.node, view.input_left, view.input_right, suffix)
        asof: nodes.AsofOptions | None = None
        ie_operators: tuple[str, ...] = ()
        if kind == "asof":
            strategy, tolerance, tolerance_text, left_by, right_by, exact, check = extra
            asof = nodes.AsofOptions(
                strategy,
                tolerance if tolerance_text is None else tolerance_text,
                tuple(left_by or ()),
                tuple(right_by or ()),
                exact,
                check,
            )
        elif kind == "ie":
            ie_operators = tuple(str(_OPERATORS[_variant(op)]) for op in extra if op is not None)
        elif extra and extra[0] not in ("fused_predicate", "cross_and_filter"):
            raise Unreadable(f"join {how} with {extra[0]}")
        # a side without columns still has rows, but its placeholder column must not take another's name
        if kind in ("cross", "ie"):
            left, right = self._hide(left, view.input_left), self._hide(right, view.input_right)
        validate = "m:m"
        if kind in _VALIDATED:
            names = tuple(e.name for e in (*left_on, *right_on))
            found = self._facts().validations.get(names, "m:m")
            if found is None:
                raise Unreadable("joins on the same keys with different 'validate'")
            validate = found
        return nodes.Join(
            left,
            right,
            kind,
            left_on=left_on,
            right_on=right_on,
            predicate=predicate,
            nulls_equal=nulls_equal,
            suffix=suffix,
            coalesce=coalesce,
            maintain_order=maintain_order,
            validate=validate,
            slice=None if slice_ is None else tuple(slice_[:2]),
            asof=asof,
            ie_operators=ie_operators,
            schema=schema,
        )

    def _hide(self, node: nodes.Node, number: int) -> nodes.Node:
        """Return a node of which only the number of rows is asked with one column that no other is called as."""
        self._nt.set_node(number)
        if self._nt.get_schema() or not node.schema:
            return node
        first = next(iter(node.schema))
        rows = ex.Function("is_null", (ex.Column(first, dtype=node.schema[first]),), dtype=pl.Boolean())
        return nodes.Select(node, (ex.NamedExpr(ROWS, rows),), schema={ROWS: pl.Boolean()})

    def _read_Distinct(self, view: Any, number: int, schema: dict[str, pl.DataType]) -> nodes.Node:
        child = self._node(view.input)
        keep, subset, maintain_order, slice_ = view.options
        return nodes.Distinct(
            child,
            None if subset is None else tuple(subset),
            keep,
            maintain_order=maintain_order,
            slice=None if slice_ is None else tuple(slice_[:2]),
            schema=child.schema,
        )

    def _read_Slice(self, view: Any, number: int, schema: dict[str, pl.DataType]) -> nodes.Node:
        child = self._node(view.input)
        return nodes.Slice(child, view.offset, view.len, schema=child.schema)

    def _read_Union(self, view: Any, number: int, schema: dict[str, pl.DataType]) -> nodes.Node:
        inputs = tuple(self._hide(self._node(i), i) for i in view.inputs)
        return nodes.Union(
            inputs,
            maintain_order=view.maintain_order,
            slice=None if view.slice is None else tuple(view.slice[:2]),
            schema=schema or inputs[0].schema,
        )

    def _read_HConcat(self, view: Any, number: int, schema: dict[str, pl.DataType]) -> nodes.Node:
        _parallel, strict, broadcast = view.options
        # Polars takes no notice of an input without columns and rows
        numbers = [i for i in view.inputs if not _is_nothing(self._node(i))] or view.inputs
        hidden = [self._hide(self._node(i), i) for i in numbers]
        # the column that counts rows without columns must have a name of its own in each input
        inputs = tuple(
            _renamed_rows(node, f"{ROWS}{place}") if list(node.schema) == [ROWS] else node
            for place, node in enumerate(hidden)
        )
        if not schema:
            schema = dict(inputs[0].schema)
        return nodes.HConcat(inputs, strict=strict, broadcast_unit_length=broadcast, schema=schema)

    def _read_MergeSorted(self, view: Any, number: int, schema: dict[str, pl.DataType]) -> nodes.Node:
        left, right = self._node(view.input_left), self._node(view.input_right)
        key = (view.key,) if isinstance(view.key, str) else tuple(view.key)
        return nodes.MergeSorted(left, right, key, maintain_order=view.maintain_order, schema=schema)

    def _read_Gather(self, view: Any, number: int, schema: dict[str, pl.DataType]) -> nodes.Node:
        child, indices = self._node(view.input), self._node(view.idxs)
        return nodes.GatherRows(child, indices, null_on_oob=view.null_on_oob, schema=schema)

    def _read_MapFunction(self, view: Any, number: int, schema: dict[str, pl.DataType]) -> nodes.Node:
        name, *args = view.function
        if name == "fast_count":
            return self._fast_count(args, schema)
        child = self._node(view.input)
        if name == "explode":
            columns, empty_as_null, keep_nulls = args
            return nodes.Explode(child, tuple(columns), empty_as_null, keep_nulls, schema=schema)
        if name == "unnest":
            columns, separator = args
            return nodes.Unnest(child, tuple(columns), separator, schema=schema)
        if name == "unpivot":
            index, on, variable, value = args
            return nodes.Unpivot(child, tuple(on), tuple(index), variable, value, schema=schema)
        if name == "row_index":
            return nodes.RowIndex(child, args[0], args[1], schema=schema)
        if name == "hint_sorted":
            return nodes.HintSorted(child, tuple(tuple(c) for c in args[0]), schema=schema)
        if name == "rechunk":
            return child
        raise Unreadable(f"frame function {name}")

    def _fast_count(self, args: Sequence[Any], schema: dict[str, pl.DataType]) -> nodes.Node:
        paths, scan_type, _name = args
        kind, keywords = scan_keywords(scan_type, None)
        scan = nodes.Scan(kind=kind, paths=tuple(str(p) for p in paths), options=keywords, schema={})
        ((name, dtype),) = schema.items()
        length = ex.Len(dtype=pl.Schema({name: pl.get_index_type()})[name])
        expr: ex.Expr = length if dtype == length.dtype else ex.Cast(length, dtype, dtype=dtype)
        return nodes.Select(_scan_of_one_column(scan), (ex.NamedExpr(name, expr),), schema=schema)

    def _read_Sink(self, view: Any, number: int, schema: dict[str, pl.DataType]) -> nodes.Node:
        child = self._node(view.input)
        method, target, options = sink_keywords(json.loads(view.payload))
        return nodes.Sink(child, method, target, options, schema=schema)

    # --- expressions ----------------------------------------------------------------------

    def _predicate(self, expr: int, number: int) -> ex.Expr | None:
        """Read a predicate without what Polars adds at run time (bounds of a running top-k)."""
        out = _without_dynamic(self._expr(expr, number))
        return None if isinstance(out, ex.Literal) and out.value is True else out

    def _joined_expr(self, expr: int, left: int, right: int, suffix: str) -> ex.Expr:
        nt = self._nt
        nt.set_node(left)
        types: dict[str, pl.DataType] = dict(nt.get_schema())
        nt.set_node(right)
        for name, dtype in nt.get_schema().items():
            types[name + suffix if name in types else name] = dtype
        return self._expr(expr, None, types)

    def _expr(self, number: int, at: int | None, types: Mapping[str, pl.DataType] | None = None) -> ex.Expr:
        if at is not None:
            self._nt.set_node(at)
        return self._translate(number, types)

    def _dtype(self, number: int, types: Mapping[str, pl.DataType] | None) -> pl.DataType | None:
        if types is not None:
            return None
        try:
            dtype: pl.DataType = self._nt.get_dtype(number)
        except (pl.exceptions.PolarsError, NotImplementedError, ValueError, KeyError):
            return None
        return dtype

    def _translate(self, number: int, types: Mapping[str, pl.DataType] | None) -> ex.Expr:
        try:
            view = self._nt.view_expression(number)
        except (NotImplementedError, ValueError) as e:
            raise Unreadable(str(e).split("\n")[0][:80]) from e
        dtype = self._dtype(number, types)

        def sub(child: int) -> ex.Expr:
            return self._translate(child, types)

        kind = type(view).__name__
        if kind == "Column":
            return ex.Column(view.name, dtype=dtype if types is None else types.get(view.name))
        if kind == "Literal":
            return self._literal(view)
        if kind == "Alias":
            return sub(view.expr)
        if kind == "BinaryExpr":
            return ex.BinaryOp(_OPERATORS[_variant(view.op)], sub(view.left), sub(view.right), dtype=dtype)
        if kind == "Cast":
            return ex.Cast(sub(view.expr), view.dtype, _CAST_MODES[view.options], dtype=view.dtype)
        if kind == "Agg":
            return _aggregation(view, [sub(a) for a in view.arguments], dtype)
        if kind == "Function":
            return self._function(view, [sub(a) for a in view.input], dtype)
        if kind == "Ternary":
            return ex.Ternary(sub(view.predicate), sub(view.truthy), sub(view.falsy), dtype=dtype)
        if kind == "Filter":
            return ex.Filter(sub(view.input), sub(view.by), dtype=dtype)
        if kind == "Len":
            return ex.Len(dtype=dtype)
        if kind == "Slice":
            return ex.Slice(sub(view.input), sub(view.offset), sub(view.length), dtype=dtype)
        if kind == "Sort":
            maintain_order, nulls_last, descending = view.options
            return ex.Sort(sub(view.expr), descending, nulls_last, maintain_order, dtype=dtype)
        if kind == "SortBy":
            maintain_order, nulls_last, descending = view.sort_options
            by = tuple(sub(b) for b in view.by)
            return ex.SortBy(
                sub(view.expr),
                by,
                _per_key(descending, len(by)),
                _per_key(nulls_last, len(by)),
                maintain_order,
                dtype=dtype,
            )
        if kind == "Gather":
            null_on_oob = self._facts().null_on_oob
            if null_on_oob is None:
                raise Unreadable("gathers with different 'null_on_oob'")
            return ex.Gather(sub(view.expr), sub(view.idx), view.scalar, null_on_oob, dtype=dtype)
        if kind == "Explode":
            empty_as_null, keep_nulls = view.options
            return ex.Explode(sub(view.expr), empty_as_null, keep_nulls, dtype=dtype)
        if kind == "Window":
            mapping = view.options.kind
            return ex.Window(
                sub(view.function),
                tuple(sub(p) for p in view.partition_by),
                None if view.order_by is None else sub(view.order_by),
                view.order_by_descending,
                view.order_by_nulls_last,
                {"groups_to_rows": "group_to_rows"}.get(mapping, mapping),
                dtype=dtype,
            )
        if kind == "Rolling":
            return ex.Rolling(
                sub(view.function),
                sub(view.index_column),
                _duration(view.period),
                _duration(view.offset),
                view.closed_window,
                dtype=dtype,
            )
        if kind == "StructEval":
            fields = tuple(ex.NamedExpr(e.output_name, sub(e.node)) for e in view.evaluation)
            return ex.StructEval(sub(view.expr), fields, dtype=dtype)
        raise Unreadable(f"expression {kind}")

    def _function(self, view: Any, inputs: list[ex.Expr], dtype: pl.DataType | None) -> ex.Expr:
        data = view.function_data if isinstance(view.function_data, tuple) else (view.function_data,)
        head, args = data[0], tuple(_freeze(a) for a in data[1:])
        if head == "ffi_plugin":
            return self._plugin(args, inputs, dtype)
        if isinstance(head, str):
            name = head
        else:
            family, variant = str(head).split(".")
            if family not in _PREFIXES:
                raise Unreadable(f"function {head}")
            name = _PREFIXES[family] + snake(variant)
        name = _RENAMED.get(name, name)
        if name == "dynamic_pred":
            return _TRUE
        name, args = self._amend(name, args, inputs, dtype)
        if name not in FUNCTIONS:
            raise Unreadable(f"function {name}")
        return ex.Function(name, tuple(inputs), args, dtype=dtype)

    def _amend(
        self, name: str, args: tuple[Any, ...], inputs: list[ex.Expr], dtype: pl.DataType | None
    ) -> tuple[str, tuple[Any, ...]]:
        """Put right what the views say otherwise than the API, or leave out."""
        if name == "arg_max" and args:
            return "arg_sort", args
        if name == "corr":
            method, *rest = args
            return {"pearson": "corr", "covariance": "covariance", "spearman_rank": "spearman_corr"}[
                method
            ], tuple(rest)
        if name == "list.set_operation":
            return "list.set_" + str(args[0]), ()
        if (name.startswith("rolling_") and name.endswith("_by")) or name in ("ewm_mean_by", "ewm_sum_by"):
            return name, (_duration(args[0]), *args[1:])
        if name in (
            "date_range",
            "date_ranges",
            "datetime_range",
            "datetime_ranges",
            "time_range",
            "time_ranges",
        ):
            return name, (_duration(args[0]), *args[1:])
        if name in ("as_struct", "replace_strict", "str.json_decode", "str.strptime", "str.to_integer"):
            if dtype is None:
                raise Unreadable(f"{name} without its type")
            if name == "as_struct":
                if not isinstance(dtype, pl.Struct):
                    raise Unreadable("as_struct without its type")
                return name, (tuple(f.name for f in dtype.fields),)
            if name == "str.json_decode":
                return name, (dtype,)
            if name == "str.strptime" and args[0] is None:
                name = "str.strptime_inferred"
            return name, (dtype, *args)
        if name == "to_physical" and _may_hold_categories(inputs[0].dtype):
            return "to_category_codes", args
        if name == "is_in" and not isinstance(inputs[1], ex.Literal) and inputs[0].dtype != inputs[1].dtype:
            other = inputs[1].dtype
            if not isinstance(other, pl.List | pl.Array) or other.inner != inputs[0].dtype:
                raise Unreadable("is_in of another type")
        return name, args

    def _literal(self, view: Any) -> ex.Literal:
        value, dtype = view.value, view.dtype
        if type(value).__name__ == "PySeries":
            return ex.Literal(ex.FrozenSeries(pl.Series._from_pyseries(value)), scalar=False, dtype=dtype)
        finer = isinstance(value, datetime.time) or (
            isinstance(value, datetime.datetime) and dtype.time_unit == "ns"
        )
        if finer and not self._exact_times():
            raise Unreadable("a literal of nanoseconds")
        if isinstance(value, list | dict) or isinstance(dtype, pl.Array | pl.Categorical | pl.Enum):
            # only a series holds nested values and categories exactly
            return ex.Literal(ex.FrozenSeries(pl.Series("literal", [value], dtype=dtype)), dtype=dtype)
        return ex.Literal(value, dtype=dtype)

    def _plugin(self, args: tuple[Any, ...], inputs: list[ex.Expr], dtype: pl.DataType | None) -> ex.Expr:
        _library, symbol, kwargs, *_flags = args
        if symbol != "placeholder":
            raise Unreadable(f"plugin {symbol}")
        key = int(bytes(kwargs).rsplit(b";", 1)[1])
        source = self._opaque_expressions.get(key)
        if source is None:
            raise Unreadable("a placeholder of another query")
        return ex.Opaque(source, tuple(inputs), dtype=source.dtype)


_TRUE = ex.Literal(True, dtype=pl.Boolean())


def _may_hold_categories(dtype: pl.DataType | None) -> bool:
    match dtype:
        case None | pl.Categorical():
            return True
        case pl.List() | pl.Array():
            return isinstance(dtype.inner, type) or _may_hold_categories(dtype.inner)
        case pl.Struct():
            return any(isinstance(f.dtype, type) or _may_hold_categories(f.dtype) for f in dtype.fields)
    return False


def _renamed_rows(node: nodes.Node, name: str) -> nodes.Node:
    rows = ex.NamedExpr(name, ex.Column(ROWS, dtype=node.schema[ROWS]))
    return nodes.Select(node, (rows,), broadcast=False, schema={name: node.schema[ROWS]})


def _is_nothing(node: nodes.Node) -> bool:
    """Whether this was a data frame without columns and rows."""
    return isinstance(node, nodes.DataFrameScan) and node.frame.columns == [ROWS] and not node.frame.height


def _narrowed(
    scan: nodes.Scan, predicate: ex.Expr | None, n_rows: int | None, schema: nodes.Schema
) -> nodes.Node:
    """Give a scan what Polars pushed into its placeholder."""
    if predicate is not None and n_rows is not None:
        raise Unreadable("a source with both a predicate and a row limit")
    rows = None if n_rows is None else (0, n_rows)
    out = replace(scan, predicate=predicate, slice=rows, schema=schema)
    return out if schema else _scan_of_one_column(out)


def _unread_keys(
    path: str, options: Any, hive_parts: pl.DataFrame, schema: nodes.Schema
) -> dict[str, pl.DataType]:
    """Return the columns in a file's path that the query does not use; their types do not matter, their names do."""
    start = int((options.hive_options or {}).get("hive_start_idx") or 0)
    keys = [part.partition("=")[0] for part in str(path)[start:].split("/")[:-1] if "=" in part]
    return {key: pl.String() for key in keys if key not in hive_parts.schema and key not in schema}


def _variant(enum_value: Any) -> str:
    return str(enum_value).rsplit(".", 1)[-1]


def _per_key(flags: Sequence[bool], n: int) -> tuple[bool, ...]:
    return tuple(flags) * n if len(flags) == 1 else tuple(flags)


def _label(text: str) -> str:
    return {"window_bound": "window", "data_point": "datapoint"}.get(text, text)


def _without_dynamic(expr: ex.Expr) -> ex.Expr:
    if isinstance(expr, ex.BinaryOp) and expr.op is ex.Operator.AND:
        left, right = _without_dynamic(expr.left), _without_dynamic(expr.right)
        if left is _TRUE:
            return right
        if right is _TRUE:
            return left
        return expr.with_children((left, right))
    return expr


def _aggregation(view: Any, arguments: list[ex.Expr], dtype: pl.DataType | None) -> ex.Expr:
    name, option = view.name, view.options
    if len(arguments) != 1:
        raise Unreadable(f"aggregation {name} of {len(arguments)} inputs")
    (child,) = arguments
    if name in ("min", "max"):
        return ex.Agg(f"nan_{name}" if option else name, child, dtype=dtype)
    if name == "count":
        return ex.Agg("len" if option else "count", child, dtype=dtype)
    if name in ("std", "var", "implode", "item"):
        return ex.Agg(name, child, (option,), dtype=dtype)
    if name == "sum" and option:
        return ex.Agg("sum_or_null", child, dtype=dtype)  # SQL's: null where there is nothing to add
    if name in ("sum", "mean", "median", "n_unique", "first", "last", "first_non_null", "last_non_null"):
        return ex.Agg(name, child, dtype=dtype)
    raise Unreadable(f"aggregation {name}")


def _scan_of_one_column(scan: nodes.Scan) -> nodes.Node:
    """Give a scan of which only the number of rows is asked the column that is cheapest to read."""
    found = rebuild_scan(scan, project=False).collect_schema()
    sizes = {
        pl.Boolean: 0,
        pl.Int8: 1,
        pl.UInt8: 1,
        pl.Int16: 2,
        pl.UInt16: 2,
        pl.Int32: 4,
        pl.UInt32: 4,
        pl.Date: 4,
    }
    names = sorted(found, key=lambda n: sizes.get(found[n].base_type(), 8 if found[n].is_numeric() else 16))
    if not names:
        raise Unreadable("a file without columns")
    return replace(scan, schema={names[0]: found[names[0]]})
