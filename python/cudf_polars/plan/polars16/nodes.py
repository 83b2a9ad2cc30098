"""Views of plan nodes: one method for each class of :mod:`polars._plr._ir_nodes`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from cudf_polars.plan import expressions as ex
from cudf_polars.plan import nodes
from cudf_polars.plan.cloud import is_remote
from cudf_polars.plan.dsl_facts import DslFacts
from cudf_polars.plan.errors import Unreadable
from cudf_polars.plan.one_row import has_one_row, read_repeated_columns
from cudf_polars.plan.placeholder import ROWS, rows_as_column
from cudf_polars.plan.polars16.expressions import ExpressionReader, operator
from cudf_polars.plan.polars16.scans import check_usual, cloud_access, hive_columns, scan_keywords
from cudf_polars.plan.polars16.sinks import sink_keywords
from cudf_polars.plan.polars16.values import duration, label, per_key
from cudf_polars.plan.properties import columns

__all__ = ["Adapter"]

_VALIDATED = ("inner", "left", "right", "full")
_PYTHON_SCAN = {"io_plugin": False, "pyarrow": True}


class Adapter:
    """Reads one plan.

    Parameters
    ----------
    traverser
        What ``visit()`` returned.
    dsl_facts
        Called when the query has something that the views leave out.
    exact_times
        Called when a time or a datetime of nanoseconds is a literal, of which the views show whole microseconds; says
        whether these are all in the plan.
    opaque_expressions, opaque_nodes
        What placeholders in the plan stand for, by their number.
    placeholder_of
        Gives the number that a Python source stands for, ``None`` for the user's own.
    of_one_column
        Gives a scan of which only the number of rows is asked one column of its files.
    """

    def __init__(
        self,
        traverser: Any,
        *,
        dsl_facts: Callable[[], DslFacts],
        exact_times: Callable[[], bool],
        opaque_expressions: Mapping[int, ex.OpaqueSource],
        opaque_nodes: Mapping[int, nodes.Node],
        placeholder_of: Callable[[Any], int | None],
        of_one_column: Callable[[nodes.Scan], nodes.Node],
    ) -> None:
        self._nt = traverser
        self._dsl_facts = dsl_facts
        self._opaque_nodes = opaque_nodes
        self._placeholder_of = placeholder_of
        self._of_one_column = of_one_column
        self._expressions = ExpressionReader(
            traverser, dsl_facts=dsl_facts, exact_times=exact_times, opaque_expressions=opaque_expressions
        )
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
        if isinstance(node, nodes.Select | nodes.HStack | nodes.Filter):
            node = read_repeated_columns(node)
        self._by_number[number] = node
        return node

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
            expr = self._expressions.predicate(predicate[1], number)
        if source not in _PYTHON_SCAN:
            raise Unreadable(f"python scan {source}")
        placeholder = self._placeholder_of(function)
        if placeholder is not None:
            node = self._opaque_nodes[placeholder]
            if isinstance(node, nodes.Scan):
                return self._narrowed(node, expr, n_rows, schema)
            if n_rows is not None:
                node = nodes.Slice(node, 0, n_rows, schema=node.schema)
            if expr is not None:
                node = nodes.Filter(node, expr, schema=node.schema)
            if (
                not schema and node.schema
            ):  # rows only: one column stands for them, and the others are left out
                first = next(iter(node.schema if expr is None else columns(expr)))
                schema = {first: node.schema[first]}
            if list(node.schema) != list(schema):
                node = nodes.SimpleProjection(node, schema=schema)
            return node
        if expr is not None and n_rows is not None:
            raise Unreadable("a python scan with both a predicate and a row limit")
        if not schema:
            raise Unreadable("a python scan without columns")
        return nodes.PythonScan(
            function, pyarrow=_PYTHON_SCAN[source], predicate=expr, n_rows=n_rows, schema=schema
        )

    def _narrowed(
        self, scan: nodes.Scan, predicate: ex.Expr | None, n_rows: int | None, schema: nodes.Schema
    ) -> nodes.Node:
        """Give a scan what Polars pushed into its placeholder."""
        if predicate is not None and n_rows is not None:
            raise Unreadable("a source with both a predicate and a row limit")
        rows = None if n_rows is None else (0, n_rows)
        out = replace(scan, predicate=predicate, slice=rows, schema=schema)
        return out if schema else self._of_one_column(out)

    def _read_Scan(self, view: Any, number: int, schema: dict[str, pl.DataType]) -> nodes.Node:
        if not view.paths:  # a filter of partition columns has left no file; Polars makes no scan of none
            return nodes.DataFrameScan(pl.DataFrame(schema=schema), schema=schema)
        options = view.file_options
        check_usual(options)
        predicate = (
            None if view.predicate is None else self._expressions.predicate(view.predicate.node, number)
        )
        parts = None if view.hive_parts is None else pl.DataFrame._from_pydf(view.hive_parts)
        kind, keywords = scan_keywords(view.scan_type, options)
        if kind == "ndjson" and any(is_remote(str(path)) for path in view.paths):
            raise Unreadable("a scan of which the views do not show how its store is reached")
        node = nodes.Scan(
            kind=kind,
            paths=tuple(str(p) for p in view.paths),
            predicate=predicate,
            slice=options.n_rows,
            row_index=options.row_index,
            include_file_paths=options.include_file_paths,
            options=keywords,
            hive_columns=hive_columns(view.paths[0], options, parts, schema),
            hive_parts=parts,
            file_sizes=None if view.source_sizes is None else tuple(view.source_sizes),
            cloud=cloud_access(view.scan_type),
            schema=schema,
        )
        return node if schema else self._of_one_column(node)

    def _read_Select(self, view: Any, number: int, schema: dict[str, pl.DataType]) -> nodes.Node:
        child = self._node(view.input)
        return nodes.Select(
            child,
            self._expressions.named(view.expr, view.input),
            broadcast=view.should_broadcast,
            schema=schema,
        )

    def _read_Reduce(self, view: Any, number: int, schema: dict[str, pl.DataType]) -> nodes.Node:
        child = self._node(view.input)
        return nodes.Select(child, self._expressions.named(view.exprs, view.input), schema=schema)

    def _read_HStack(self, view: Any, number: int, schema: dict[str, pl.DataType]) -> nodes.Node:
        child = self._node(view.input)
        return nodes.HStack(
            child,
            self._expressions.named(view.exprs, view.input),
            broadcast=view.should_broadcast,
            schema=schema,
        )

    def _read_Filter(self, view: Any, number: int, schema: dict[str, pl.DataType]) -> nodes.Node:
        child = self._node(view.input)
        predicate = self._expressions.predicate(view.predicate.node, view.input)
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
        by = self._expressions.named(view.by_column, view.input)
        return nodes.Sort(
            child,
            by,
            per_key(descending, len(by)),
            per_key(nulls_last, len(by)),
            maintain_order=maintain_order,
            slice=None if view.slice is None else tuple(view.slice[:2]),
            schema=child.schema,
        )

    def _read_GroupBy(self, view: Any, number: int, schema: dict[str, pl.DataType]) -> nodes.Node:
        child = self._node(view.input)
        dynamic, rolling = view.options.dynamic, view.options.rolling
        return nodes.GroupBy(
            child,
            self._expressions.named(view.keys, view.input),
            self._expressions.named(view.aggs, view.input),
            maintain_order=view.maintain_order,
            dynamic=None
            if dynamic is None
            else nodes.DynamicOptions(
                dynamic.index_column,
                duration(dynamic.every),
                duration(dynamic.period),
                duration(dynamic.offset),
                label(dynamic.label),
                dynamic.include_boundaries,
                dynamic.closed_window,
                label(dynamic.start_by),
            ),
            rolling=None
            if rolling is None
            else nodes.RollingOptions(
                rolling.index_column,
                duration(rolling.period),
                duration(rolling.offset),
                rolling.closed_window,
            ),
            slice=view.options.slice,
            schema=schema,
        )

    def _read_Join(self, view: Any, number: int, schema: dict[str, pl.DataType]) -> nodes.Node:
        left, right = self._node(view.input_left), self._node(view.input_right)
        how, nulls_equal, slice_, suffix, coalesce, maintain_order = view.options
        left_on = self._expressions.named(view.left_on, view.input_left)
        right_on = self._expressions.named(view.right_on, view.input_right)
        extra: tuple[Any, ...] = ()
        if isinstance(how, tuple):
            how, *rest = how
            extra = tuple(rest)
        kind = {"AsOf": "asof", "IEJoin": "ie"}.get(how, how.lower())
        predicate: ex.Expr | None = None
        if view.predicate is not None:
            if kind not in ("inner", "cross"):
                raise Unreadable(f"{kind} join with a predicate")
            predicate = self._expressions.joined(
                view.predicate.node, view.input_left, view.input_right, suffix
            )
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
            ie_operators = tuple(str(operator(op)) for op in extra if op is not None)
        elif extra and extra[0] not in ("fused_predicate", "cross_and_filter"):
            raise Unreadable(f"join {how} with {extra[0]}")
        # a side without columns still has rows, but its placeholder column must not take another's name
        if kind in ("cross", "ie"):
            left, right = self._hide(left, view.input_left), self._hide(right, view.input_right)
        validate = "m:m"
        if kind in _VALIDATED:
            found = self._dsl_facts().validation_of([e.name for e in left_on], [e.name for e in right_on])
            if found is None:
                raise Unreadable("a join of which Polars does not show 'validate' beside others that have it")
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
        hidden = [self._hide(self._node(i), i) for i in view.inputs]
        if broadcast and all(has_one_row(node) for node in hidden[1:]):
            return _beside_one_row(hidden, schema)
        # The column that counts rows without columns has a name of its own in each input. Polars takes no notice of an
        # input without columns and rows; whether it is one, no rank knows by its own rows.
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
        scan = nodes.Scan(
            kind=kind,
            paths=tuple(str(p) for p in paths),
            options=keywords,
            cloud=cloud_access(scan_type),
            schema={},
        )
        ((name, dtype),) = schema.items()
        length = ex.Len(dtype=pl.Schema({name: pl.get_index_type()})[name])
        expr: ex.Expr = length if dtype == length.dtype else ex.Cast(length, dtype, dtype=dtype)
        return nodes.Select(self._of_one_column(scan), (ex.NamedExpr(name, expr),), schema=schema)

    def _read_Sink(self, view: Any, number: int, schema: dict[str, pl.DataType]) -> nodes.Node:
        child = self._node(view.input)
        method, target, options = sink_keywords(json.loads(view.payload))
        return nodes.Sink(child, method, target, options, schema=schema)


def _beside_one_row(inputs: Sequence[nodes.Node], schema: Mapping[str, pl.DataType]) -> nodes.Node:
    """Cross join the first input with the others, each of which has one row.

    Scalar sub-queries of SQL are planned so.
    """
    node = inputs[0]
    for right in inputs[1:]:
        both = {**node.schema, **right.schema}
        node = nodes.Join(node, right, "cross", maintain_order="left", schema=both)
    return replace(node, schema=dict(schema)) if schema else node


def _renamed_rows(node: nodes.Node, name: str) -> nodes.Node:
    rows = ex.NamedExpr(name, ex.Column(ROWS, dtype=node.schema[ROWS]))
    return nodes.Select(node, (rows,), broadcast=False, schema={name: node.schema[ROWS]})
