"""Typed plans back into Polars: scans and parts of them, single nodes, whole plans.

The optimised plan has the types, casts and column choices that Polars settled on, so what is rebuilt here
passes through Polars' planner again unchanged.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

import polars as pl

from cudf_polars.plan import expressions as ex
from cudf_polars.plan import nodes
from cudf_polars.plan.cloud import with_access
from cudf_polars.plan.columns import keep_columns
from cudf_polars.plan.errors import CannotRebuild
from cudf_polars.plan.memory_files import MemoryFile
from cudf_polars.plan.placeholder import ROWS
from cudf_polars.plan.properties import is_length_preserving
from cudf_polars.plan.rebuild_expressions import column_name, to_expr, to_exprs

__all__ = [
    "file_schema",
    "rebuild_node",
    "rebuild_scan",
    "rebuilt_schema",
    "starts_with_columns",
    "to_lazyframe",
    "with_file_schema",
]


def rebuild_scan(
    scan: nodes.Scan,
    *,
    paths: Sequence[str] | None = None,
    slice: tuple[int, int] | None = None,
    row_index_offset: int | None = None,
    project: bool = True,
) -> pl.LazyFrame:
    """Return the scan, or a part of it.

    Parameters
    ----------
    scan
        The scan.
    paths
        Files to read instead of ``scan.paths``.
    slice
        ``(offset, length)`` in rows over these files to read instead of ``scan.slice``.
    row_index_offset
        First value of the row index in the first of these files (when ``slice`` skips rows, they are
        counted).
    project
        Leave predicate and projection out when false.
    """
    keywords: dict[str, Any] = dict(scan.options)
    if scan.row_index is not None:
        name, first = scan.row_index
        keywords["row_index_name"] = name
        keywords["row_index_offset"] = first if row_index_offset is None else row_index_offset
    if scan.include_file_paths is not None:
        keywords["include_file_paths"] = scan.include_file_paths
    if scan.kind in ("parquet", "csv", "lines", "ipc"):
        keywords["glob"] = False  # the paths are files; their names may hold brackets
    if scan.hive_columns:
        keywords["hive_schema"] = dict(scan.hive_columns)
    function: Callable[..., pl.LazyFrame] = getattr(pl, "scan_" + scan.kind)
    if scan.cloud is not None:
        keywords["credential_provider"] = None  # that of the scan is among what is put in
    # A file in memory need not outlive the plan: the frame gets its bytes.
    sources = [
        path.content if isinstance(path, MemoryFile) else path
        for path in (scan.paths if paths is None else paths)
    ]
    lf = with_access(function(sources, **keywords), scan.cloud)
    rows = scan.slice if slice is None else slice
    if rows is not None:
        lf = lf.slice(*rows)
    if not project:
        return lf
    if scan.predicate is not None:
        lf = lf.filter(to_expr(scan.predicate))
    return keep_columns(lf, scan.schema)


def with_file_schema(scan: nodes.Scan) -> nodes.Scan:
    """Return the scan with the schema of its files among its options, so that any part of the files is read by it.

    Polars finds the schema in the first files; without it, a rank would find another in the first of its own.
    """
    if len(scan.paths) < 2 or scan.kind not in ("parquet", "csv", "ndjson") or "schema" in scan.options:
        return scan
    schema = dict(file_schema(scan))
    if scan.kind == "csv":
        # Of CSV files, Polars compares with ``schema=`` also the columns that no one reads.
        return replace(scan, options={**scan.options, "schema_overrides": schema, "infer_schema_files": 1})
    return replace(scan, options={**scan.options, "schema": schema})


def starts_with_columns(part: nodes.Scan) -> bool:
    """Whether the first file of a part of a scan has the columns that :func:`with_file_schema` found."""
    if part.kind != "csv" or "schema" in part.options:
        return True
    try:
        found = file_schema(replace(part, paths=part.paths[:1]))
    except pl.exceptions.PolarsError:
        return False
    wanted: dict[str, pl.DataType] = part.options["schema_overrides"]
    return dict(found) == wanted


def file_schema(scan: nodes.Scan) -> pl.Schema:
    """Return the columns of a scan's files."""
    bare = replace(scan, row_index=None, include_file_paths=None, slice=None)
    return rebuild_scan(bare, project=False).collect_schema()


def rebuild_node(node: nodes.Node, children: Sequence[pl.LazyFrame]) -> pl.LazyFrame:
    """Re-express one node over other frames.

    Parameters
    ----------
    node
        The node.
    children
        A frame for each of ``node.children``, with that child's schema.

    Returns
    -------
    polars.LazyFrame
        Its columns are those of ``node.schema``, in that order.

    Raises
    ------
    CannotRebuild
        When Polars' API has no form for it; never for a plan that :func:`~cudf_polars.plan.read.read_plan`
        returned.
    """
    if len(children) != len(node.children):
        raise ValueError(f"{type(node).__name__} has {len(node.children)} inputs, got {len(children)}")
    lf = _build(node, children)
    added = _adds_columns(node, lambda: _over_nothing(node).collect_schema())
    return keep_columns(lf, node.schema) if added else lf


def rebuilt_schema(node: nodes.Node) -> pl.Schema:
    """Return the columns of what :func:`rebuild_node` makes, and raise what it raises."""
    lf = _over_nothing(node)
    if _adds_columns(node, lf.collect_schema):
        lf = keep_columns(lf, node.schema)
    return lf.collect_schema()


def _adds_columns(node: nodes.Node, built: Callable[[], pl.Schema]) -> bool:
    """Whether the API's result, of which ``built`` returns the schema, is to be cut to the columns of a node.

    It has still what the optimiser no longer needs: right-hand keys, the stand-in for rows without columns.
    """
    return isinstance(node, _MAY_ADD_COLUMNS) and built().names() != list(node.schema)


def _over_nothing(node: nodes.Node) -> pl.LazyFrame:
    return _build(node, [_nothing(tuple(child.schema.items())).clone() for child in node.children])


@functools.lru_cache(maxsize=1024)
def _nothing(columns: tuple[tuple[str, pl.DataType], ...]) -> pl.LazyFrame:
    """Return a frame without rows; plans have few schemas, and each is asked for often."""
    return pl.LazyFrame(schema=dict(columns))


_MAY_ADD_COLUMNS = nodes.HStack | nodes.Join | nodes.HConcat | nodes.GroupBy | nodes.Union | nodes.MapFunction


def _build(node: nodes.Node, children: Sequence[pl.LazyFrame]) -> pl.LazyFrame:
    match node:
        case nodes.Scan():
            return rebuild_scan(node)
        case nodes.DataFrameScan():
            lf = node.frame.lazy()
            return lf if list(node.schema) == node.frame.columns else keep_columns(lf, node.schema)
        case nodes.PythonScan():
            return _python_scan(node)
        case nodes.Select() | nodes.HStack() if not (
            node.broadcast or all(is_length_preserving(e.expr) for e in node.exprs)
        ):
            # a column of another length than the table: only a plan with common sub-expressions has these
            raise CannotRebuild("columns of different lengths in one frame")
        case nodes.Select():
            return children[0].select(to_exprs(node.exprs))
        case nodes.HStack():
            return children[0].with_columns(to_exprs(node.exprs))
        case nodes.Filter():
            return children[0].filter(to_expr(node.predicate))
        case nodes.SimpleProjection():
            return keep_columns(children[0], node.schema)
        case nodes.GroupBy():
            return _sliced(_group_by(node, children[0]), node.slice)
        case nodes.Join():
            return _sliced(_join(node, children[0], children[1]), node.slice)
        case nodes.Sort():
            lf = children[0].sort(
                [to_expr(e.expr) for e in node.by],
                descending=list(node.descending),
                nulls_last=list(node.nulls_last),
                maintain_order=node.maintain_order,
            )
            return _sliced(lf, node.slice)
        case nodes.Distinct():
            keep: Any = node.keep
            subset = None if node.subset is None else [pl.col(column_name(n)) for n in node.subset]
            return _sliced(
                children[0].unique(subset, keep=keep, maintain_order=node.maintain_order), node.slice
            )
        case nodes.Slice():
            return children[0].slice(node.offset, node.length)
        case nodes.Union():
            combine = pl.concat if node.maintain_order else pl.union
            return _sliced(combine(children, how="vertical"), node.slice)
        case nodes.HConcat():
            if node.broadcast_unit_length:
                raise CannotRebuild("a horizontal concatenation that repeats rows")
            return _side_by_side(node, children)
        case nodes.MergeSorted():
            left, right = children
            return left.merge_sorted(right, list(node.key), maintain_order=node.maintain_order)
        case nodes.GatherRows():
            return children[0].gather(children[1], null_on_oob=node.null_on_oob)
        case nodes.Explode():
            return children[0].explode(
                list(node.columns), empty_as_null=node.empty_as_null, keep_nulls=node.keep_nulls
            )
        case nodes.Unnest():
            return children[0].unnest(list(node.columns), separator=node.separator)
        case nodes.Unpivot():
            return children[0].unpivot(
                list(node.on),
                index=list(node.index),
                variable_name=node.variable_name,
                value_name=node.value_name,
            )
        case nodes.RowIndex():
            return children[0].with_row_index(node.name, node.offset)
        case nodes.HintSorted():
            names, descending, nulls_last = (list(flags) for flags in zip(*node.columns, strict=True))
            return children[0].set_sorted(names, descending=descending, nulls_last=nulls_last)
        case nodes.Sink():
            sink: Callable[..., pl.LazyFrame] = getattr(children[0], node.method)
            return sink(node.target, lazy=True, **node.options)
        case nodes.OpaqueNode():
            return node.build(children)
    raise CannotRebuild(f"plan node {type(node).__name__}")


def _side_by_side(node: nodes.HConcat, children: Sequence[pl.LazyFrame]) -> pl.LazyFrame:
    how: Literal["horizontal", "horizontal_extend"] = "horizontal" if node.strict else "horizontal_extend"
    if any(name.startswith(ROWS) for name in node.schema):
        return pl.concat(children, how=how)
    # An input whose columns are not in the result stands for rows without columns.
    frames = []
    for number, (child, below) in enumerate(zip(children, node.inputs, strict=True)):
        if not node.schema.keys().isdisjoint(below.schema):
            frames.append(child)
        elif node.strict:
            frames.append(keep_columns(child, ()))
        else:  # Polars' streaming engine would count no rows
            frames.append(child.select(pl.repeat(False, pl.len()).alias(f"{ROWS}{number}")))
    return keep_columns(pl.concat(frames, how=how), node.schema)


def _sliced(lf: pl.LazyFrame, rows: tuple[int, int] | None) -> pl.LazyFrame:
    return lf if rows is None else lf.slice(*rows)


def _python_scan(node: nodes.PythonScan) -> pl.LazyFrame:
    lf = pl.LazyFrame._scan_python_function(dict(node.schema), node.function, pyarrow=node.pyarrow)
    if node.n_rows is not None:
        lf = lf.head(node.n_rows)
    return lf if node.predicate is None else lf.filter(to_expr(node.predicate))


def _group_by(node: nodes.GroupBy, lf: pl.LazyFrame) -> pl.LazyFrame:
    keys, aggs = to_exprs(node.keys), to_exprs(node.aggs)
    if node.dynamic is not None:
        d = node.dynamic
        label: Any = d.label
        closed: Any = d.closed
        start_by: Any = d.start_by
        return lf.group_by_dynamic(
            d.index_column,
            every=d.every,
            period=d.period,
            offset=d.offset,
            include_boundaries=d.include_boundaries,
            closed=closed,
            label=label,
            group_by=keys or None,
            start_by=start_by,
        ).agg(aggs)
    if node.rolling is not None:
        r = node.rolling
        closed = r.closed
        return lf.rolling(
            r.index_column, period=r.period, offset=r.offset, closed=closed, group_by=keys or None
        ).agg(aggs)
    return lf.group_by(keys, maintain_order=node.maintain_order).agg(aggs)


_COMPARE = {"<": ex.Operator.LT, "<=": ex.Operator.LE, ">": ex.Operator.GT, ">=": ex.Operator.GE}


def _join(node: nodes.Join, left: pl.LazyFrame, right: pl.LazyFrame) -> pl.LazyFrame:
    how: Any = node.how
    order: Any = node.maintain_order
    validate: Any = node.validate
    build: Any = node.build_side if node.build_side == "auto" else f"force_{node.build_side}"
    if node.asof is not None:
        a = node.asof
        strategy: Any = a.strategy
        ((left_key, right_key),) = _keys_as_written(node)
        return left.join_asof(
            right,
            left_on=to_expr(left_key),
            right_on=to_expr(right_key),
            by_left=list(a.left_by) or None,
            by_right=list(a.right_by) or None,
            strategy=strategy,
            suffix=node.suffix,
            tolerance=a.tolerance,
            coalesce=node.coalesce,
            allow_exact_matches=a.allow_exact_matches,
            check_sortedness=a.check_sortedness and not a.left_by,  # else Polars warns that it cannot
        )
    if node.how == "ie":
        predicates = [
            ex.BinaryOp(_COMPARE[op], le.expr, _suffixed(re.expr, node))
            for op, le, re in zip(node.ie_operators, node.left_on, node.right_on, strict=True)
        ]
        return left.join_where(right, *[to_expr(p) for p in predicates], suffix=node.suffix)
    if node.how == "cross":
        lf = left.join(right, how="cross", suffix=node.suffix, maintain_order=order)
    else:
        pairs = _keys_as_written(node)
        lf = left.join(
            right,
            how=how,
            left_on=[to_expr(le) for le, _ in pairs],
            right_on=[to_expr(re) for _, re in pairs],
            suffix=node.suffix,
            validate=validate,
            nulls_equal=node.nulls_equal,
            coalesce=node.coalesce,
            maintain_order=order,
            build_side=build,
        )
    return lf if node.predicate is None else lf.filter(to_expr(node.predicate))


def _keys_as_written(node: nodes.Join) -> list[tuple[ex.Expr, ex.Expr]]:
    """Leave out the casts by which Polars brings two key columns to one type.

    Polars puts them in again. With them the keys would be expressions, and only columns are coalesced. So where
    columns are coalesced the casts are Polars'; elsewhere the user may have written them.
    """
    pairs = [(le.expr, re.expr) for le, re in zip(node.left_on, node.right_on, strict=True)]
    return [_without_casts(left, right) for left, right in pairs] if node.coalesce else pairs


def _without_casts(left: ex.Expr, right: ex.Expr) -> tuple[ex.Expr, ex.Expr]:
    if (
        isinstance(left, ex.Cast)
        and isinstance(right, ex.Cast)
        and left.mode is right.mode is ex.CastMode.WRAP
        and left.to == right.to
        and isinstance(left.child, ex.Column)
        and isinstance(right.child, ex.Column)
    ):
        return left.child, right.child
    return left, right


def _suffixed(expr: ex.Expr, node: nodes.Join) -> ex.Expr:
    """Rename the columns of the right side as the joined table calls them."""
    if isinstance(expr, ex.Column):
        taken = expr.name in node.left.schema
        return ex.Column(expr.name + node.suffix, dtype=expr.dtype) if taken else expr
    return expr.with_children([_suffixed(c, node) for c in expr.children])


def to_lazyframe(
    root: nodes.Node, resolve: Callable[[nodes.Node], pl.LazyFrame | None] = lambda node: None
) -> pl.LazyFrame:
    """Re-express a plan.

    A node with several users is rebuilt once, so that Polars runs it once.

    Parameters
    ----------
    root
        Last node of the plan.
    resolve
        Called with each node from the root down; a frame that it returns takes the node's place.
    """
    done: dict[nodes.Node, pl.LazyFrame] = {}
    # an explicit stack: plans of thousands of nodes (long unions, generated queries) are deeper than Python's
    stack: list[tuple[nodes.Node, bool]] = [(root, False)]
    while stack:
        node, ready = stack.pop()
        if node in done:
            continue
        if ready:
            done[node] = rebuild_node(node, [done[c] for c in node.children])
            continue
        replaced = resolve(node)
        if replaced is not None:
            done[node] = replaced
            continue
        stack.append((node, True))
        stack.extend((c, False) for c in reversed(node.children))
    return done[root]
