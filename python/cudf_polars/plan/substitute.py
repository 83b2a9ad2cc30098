"""Make a query readable: placeholders in the place of what Polars does not show, before Polars optimises it.

The query's serialised form (Polars' own JSON, one per Polars version, as our adapters are) is walked from the
leaves up. Each node is tried alone over empty inputs; in one that cannot be read, the smallest expressions
that cannot be read become plugin calls; when that does not help, the node itself becomes a source, its
inputs being read as plans of their own. What was replaced is kept, and put back when the plan is rebuilt.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from cudf_polars.plan import nodes
from cudf_polars.plan.datasets import is_dataset, scan_name
from cudf_polars.plan.errors import CannotSubstitute
from cudf_polars.plan.expressions import OpaqueSource
from cudf_polars.plan.hidden_scans import hidden_scan
from cudf_polars.plan.memory_files import MemoryFile, with_memory_files
from cudf_polars.plan.placeholder import TypeCapsule, placeholder_expr, placeholder_scan
from cudf_polars.plan.plugin import find_library
from cudf_polars.plan.pruning import HiddenPart
from cudf_polars.plan.serialized import (
    deserialize_expr,
    deserialize_plan,
    forms,
    kind_of,
    serialize_expr,
    serialize_plan,
)
from cudf_polars.plan.user_functions import describe_functions

__all__ = ["Substitution"]

# Raised by Polars' planner for expressions that have no meaning by themselves (a list's element, a field).
_INVALID = (
    pl.exceptions.PolarsError,
    pl.exceptions.PanicException,
    TypeError,
    ValueError,
    NotImplementedError,
)


class _WithoutColumns(CannotSubstitute):
    """A constant that cannot be read: a plugin call needs an input."""


# Where the sub-expressions of an expression are; "*" marks a list.
_CHILDREN: Mapping[str, tuple[str, ...]] = {
    "BinaryExpr": ("left", "right"),
    "Cast": ("expr",),
    "Sort": ("expr",),
    "Gather": ("expr", "idx"),
    "SortBy": ("expr", "by*"),
    "Ternary": ("predicate", "truthy", "falsy"),
    "Function": ("input*",),
    "AnonymousFunction": ("input*",),
    "Explode": ("input",),
    "Filter": ("input", "by"),
    "Over": ("function", "partition_by*"),
    "Rolling": ("function",),
    "Slice": ("input", "offset", "length"),
    "RenameAlias": ("expr",),
    "Eval": ("expr",),
    "StructEval": ("expr",),
}


def _expr_children(form: Any) -> list[Any]:
    out: list[Any] = []

    def note(child: Any) -> Any:
        out.append(child)
        return child

    _map_expr(form, note)
    return out


def _map_expr(form: Any, change: Callable[[Any], Any]) -> Any:
    """Rebuild an expression's JSON form with its direct sub-expressions changed."""
    if not isinstance(form, dict) or len(form) != 1:
        return form
    ((kind, value),) = form.items()
    if kind == "Alias":
        return {kind: [change(value[0]), value[1]]}
    if kind == "KeepName":
        return {kind: change(value)}
    if kind == "Agg":
        ((name, inner),) = value.items()
        for key in ("input", "expr"):
            if isinstance(inner, dict) and key in inner:
                return {kind: {name: {**inner, key: change(inner[key])}}}
        return {kind: {name: change(inner)}}
    if kind not in _CHILDREN or not isinstance(value, dict):
        return form
    new = dict(value)
    for key in _CHILDREN[kind]:
        if key.endswith("*"):
            new[key[:-1]] = [change(v) for v in value[key[:-1]]]
        else:
            new[key] = change(value[key])
    return {kind: new}


# Where the expressions of a plan node are, and over which of its inputs they stand.
_NODE_EXPRS: Mapping[str, tuple[str, ...]] = {
    "Select": ("expr*",),
    "HStack": ("exprs*",),
    "Filter": ("predicate",),
    "GroupBy": ("keys*", "predicates*", "aggs*"),
    "Sort": ("by_column*",),
}
_NODE_INPUTS = ("input", "input_left", "input_right", "idxs", "inputs")


class Substitution:
    """One query being made readable.

    Parameters
    ----------
    is_readable
        Whether a small query, as it stands, can be read with :attr:`expressions` and :attr:`nodes`.
    read
        Reads a query into a node, with the same tables.
    """

    def __init__(
        self,
        is_readable: Callable[[pl.LazyFrame, Substitution], bool],
        read: Callable[[pl.LazyFrame, Substitution], nodes.Node],
    ) -> None:
        self.expressions: dict[int, OpaqueSource] = {}
        self.nodes: dict[int, nodes.Node] = {}
        self.parts: dict[int, tuple[nodes.Node, HiddenPart]] = {}
        self.files: dict[str, MemoryFile] = {}
        self._is_readable = is_readable
        self._read = read
        self._library = find_library()
        self._capsules: list[TypeCapsule] = []
        self._known_exprs: dict[str, Any] = {}
        self._known_nodes: dict[str, Any] = {}

    # --- nodes ----------------------------------------------------------------------

    def rewrite(self, form: Any) -> Any:
        """Return the query with placeholders."""
        return self._node(form)[0]

    def _node(self, form: Any) -> tuple[Any, pl.Schema]:
        """Return a plan node with placeholders, and its schema."""
        kind = kind_of(form)
        if not isinstance(form, dict) or not kind:
            raise CannotSubstitute("an unknown form of query")
        value = form[kind]
        if kind == "IR":
            return self._node(value["dsl"])
        paths = _inputs(kind, value)
        if not paths:
            if is_dataset(form):  # the views show its files only
                return self._opaque(form, [], [], [])
            return self._source(kind, form)
        done = [self._node(_get(value, path)) for path in paths]
        stubs = [_stub(schema) for _, schema in done]
        inputs = [f for f, _ in done]
        schemas = [s for _, s in done]

        def over(body: Any, children: Sequence[Any]) -> Any:
            for path, child in zip(paths, children, strict=True):
                body = _put(body, path, child)
            return {kind: body}

        alone = deserialize_plan(over(value, stubs))
        if self._is_readable(alone, self):
            return over(value, inputs), alone.collect_schema()
        changed = self._exprs_of(kind, value, schemas)
        alone = deserialize_plan(over(changed, stubs))
        if self._is_readable(alone, self):
            return over(changed, inputs), alone.collect_schema()
        return self._opaque(form, paths, inputs, schemas)

    def _source(self, kind: str, form: Any) -> tuple[Any, pl.Schema]:
        """Return a node without inputs that can be read, and its schema."""
        shown, files = with_memory_files(form)
        self.files.update((str(file), file) for file in files)
        lf = deserialize_plan(shown)
        if kind in ("DataFrameScan", "PythonScan") or self._is_readable(lf, self):
            return shown, lf.collect_schema()
        schema = lf.collect_schema()
        scan = hidden_scan(shown, schema, self.files)
        return self._opaque(form, [], [], []) if scan is None else self._stand_in(shown, scan, schema)

    def _stand_in(self, form: Any, scan: nodes.Scan, schema: pl.Schema) -> tuple[Any, pl.Schema]:
        """Return a placeholder source for a scan that the views do not show; equal scans have the same one."""
        key = json.dumps(form)
        if key not in self._known_nodes:
            number = len(self.nodes)
            self.nodes[number] = scan
            self._known_nodes[key] = serialize_plan(placeholder_scan(number, schema)), schema
        return self._known_nodes[key]  # type: ignore[no-any-return]

    def _opaque(
        self, form: Any, paths: Sequence[tuple[Any, ...]], inputs: Sequence[Any], schemas: Sequence[pl.Schema]
    ) -> tuple[Any, pl.Schema]:
        """Put a source in the place of a node, and read its inputs."""
        key = json.dumps([form, list(inputs)])
        known = self._known_nodes.get(key)
        if known is not None:
            return known  # type: ignore[no-any-return]
        kind = kind_of(form)
        number = len(self.nodes)
        self.nodes[number] = _RESERVED
        queries = tuple(deserialize_plan(i) for i in inputs)
        children = tuple(self._read(query, self) for query in queries)
        value = form[kind]

        def over(frames: Sequence[pl.LazyFrame]) -> pl.LazyFrame:
            body = value
            for path, frame in zip(paths, frames, strict=True):
                body = _put(body, path, serialize_plan(frame))
            return deserialize_plan({kind: body})

        part = HiddenPart(over, queries, tuple(schemas))
        schema = over([pl.LazyFrame(schema=s) for s in schemas]).collect_schema()
        opaque = nodes.OpaqueNode(
            _name(kind, value),
            children,
            part.build(),
            _reason(form),
            _digest(value, paths),
            schema=dict(schema),
        )
        self.nodes[number] = opaque
        self.parts[number] = opaque, part
        result = serialize_plan(placeholder_scan(number, schema)), schema
        self._known_nodes[key] = result
        return result

    def _exprs_of(self, kind: str, value: Any, schemas: Sequence[pl.Schema]) -> Any:
        """Return a node's contents with placeholders in its expressions."""
        out = dict(value)
        for field in _NODE_EXPRS.get(kind, ()):
            name = field.rstrip("*")
            if field.endswith("*"):
                out[name] = [n for e in value[name] for n in self._expanded(e, schemas[0])]
            else:
                out[name] = self._expr(value[name], schemas[0])
        if kind == "Distinct" and value["options"].get("subset"):
            subset = [n for e in value["options"]["subset"] for n in self._expanded(e, schemas[0])]
            out["options"] = {**value["options"], "subset": subset}
        if kind == "Join" and "Equi" in value["condition"]:
            equi = value["condition"]["Equi"]
            sides = {
                side: [self._expr(e, schema) for e in equi[side]]
                for side, schema in zip(("left_on", "right_on"), schemas, strict=True)
            }
            out["condition"] = {"Equi": {**equi, **sides}}
        return out

    # --- expressions ----------------------------------------------------------------------

    def _expanded(self, form: Any, schema: pl.Schema) -> list[Any]:
        """Return an expression with placeholders; one for each column when it stands for several."""
        if self._readable_expr(form, schema) is not False:
            return [form]
        selectors = list(forms(form, "Selector"))
        if not selectors:
            return [self._expr(form, schema)]
        frame = pl.LazyFrame(schema=schema)
        chosen = [frame.select(deserialize_expr({"Selector": s})).collect_schema().names() for s in selectors]
        made = len(frame.select(deserialize_expr(form)).collect_schema())
        if made == 1:  # the columns are the inputs of one function
            return [self._expr(_inline(form, iter(chosen)), schema)]
        if any(len(c) != made for c in chosen):
            raise CannotSubstitute("selectors of different sizes")
        return [self._expr(_chosen(form, iter(row)), schema) for row in zip(*chosen, strict=True)]

    def _readable_expr(self, form: Any, schema: pl.Schema) -> bool | None:
        """Whether an expression can be read; ``None`` when it has no meaning by itself."""
        try:
            lf = pl.LazyFrame(schema=schema).select(deserialize_expr(form))
            lf.collect_schema()
        except _INVALID:
            return None
        return self._is_readable(lf, self)

    def _expr(self, form: Any, schema: pl.Schema) -> Any:
        readable = self._readable_expr(form, schema)
        if readable is not False:
            return form
        changed = _map_expr(form, lambda child: self._inner_expr(child, schema))
        if kind_of(form) == "Over" and (order := changed["Over"]["order_by"]) and _encodes_rows(order[0]):
            with contextlib.suppress(_WithoutColumns):
                changed["Over"]["order_by"] = [self._placeholder(order[0], schema), order[1]]
        if changed != form and self._readable_expr(changed, schema):
            return changed
        return self._placeholder(form, schema)

    def _inner_expr(self, form: Any, schema: pl.Schema) -> Any:
        try:
            return self._expr(form, schema)
        except _WithoutColumns:
            return form  # a part of what takes its place

    def _placeholder(self, form: Any, schema: pl.Schema) -> Any:
        expr = deserialize_expr(form)
        if _encodes_rows(form):
            expr = expr.cast(pl.Binary)  # a type that Python has: the bytes, and their order, are the same
        # inside list.filter the element is a column without a name
        roots = tuple(dict.fromkeys(n for n in expr.meta.root_names() if n in schema))
        if not roots:
            raise _WithoutColumns("an opaque expression without columns")
        types = {root: schema[root] for root in roots}
        key = json.dumps([form, str(types)])
        known = self._known_exprs.get(key)
        if known is not None:
            return known
        result = pl.LazyFrame(schema=schema).select(expr).collect_schema()
        if len(result) != 1:
            raise CannotSubstitute("an opaque expression of several columns")
        ((name, dtype),) = result.items()
        number = len(self.expressions)
        elementwise, scalar, preserving = traits(form)
        local = _is_process_local(form)
        elementwise = elementwise and not local
        capsule = TypeCapsule(dtype)
        self._capsules.append(capsule)
        self.expressions[number] = OpaqueSource(
            number,
            expr,
            roots,
            dtype,
            re.sub(r"0x[0-9a-fA-F]+", "0x", str(expr)),
            elementwise,
            scalar,
            preserving,
            describe_functions(form),
            local,
        )
        call = placeholder_expr(
            self._library,
            number,
            capsule,
            [pl.col(r) for r in roots],
            elementwise=elementwise,
            scalar=scalar,
            length_preserving=preserving and not scalar,
        )
        out = serialize_expr(call if name == roots[0] else call.alias(name))
        self._known_exprs[key] = out
        return out


def _encodes_rows(form: Any) -> bool:
    """Whether an expression makes one key of several, as ``over`` does for ``order_by``."""
    function = form.get("Function", {}).get("function") if isinstance(form, dict) else None
    return isinstance(function, dict) and "RowEncode" in function


_RESERVED = nodes.OpaqueNode("reserved", (), lambda frames: pl.LazyFrame(), schema={})


def _digest(value: Any, paths: Sequence[tuple[Any, ...]]) -> str:
    """Return a digest of a node without its inputs: equal on all ranks that run the same query."""
    for path in paths:
        value = _put(value, path, None)
    text = json.dumps(_without_bytes(value), sort_keys=True) + describe_functions(value)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _without_bytes(form: Any) -> Any:
    """Leave out what is pickled: it may differ between processes, and is described by itself."""
    if isinstance(form, dict):
        return {key: _without_bytes(value) for key, value in form.items()}
    if isinstance(form, list):
        if len(form) > 16 and all(isinstance(v, int) for v in form):
            return "bytes"
        return [_without_bytes(value) for value in form]
    return form


def _inputs(kind: str, value: Any) -> list[tuple[Any, ...]]:
    """Return where a node's inputs are."""
    if kind == "SQL":
        return [("relations", i, 1) for i in range(len(value["relations"]))]
    out: list[tuple[Any, ...]] = []
    if not isinstance(value, dict):
        return out
    for name in _NODE_INPUTS:
        if name not in value:
            continue
        found = value[name]
        if isinstance(found, list):
            out.extend((name, i) for i in range(len(found)))
        else:
            out.append((name,))
    return out


def _get(value: Any, path: Sequence[Any]) -> Any:
    for step in path:
        value = value[step]
    return value


def _put(value: Any, path: Sequence[Any], new: Any) -> Any:
    """Return ``value`` with what is at ``path`` replaced; the original stays as it is."""
    if not path:
        return new
    copy: Any = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = _put(value[path[0]], path[1:], new)
    return copy


def _stub(schema: pl.Schema) -> Any:
    return serialize_plan(pl.LazyFrame(schema=schema))


def _name(kind: str, value: Any) -> str:
    if kind == "MapFunction":
        function = kind_of(value.get("function"))
        return "map_batches" if function == "OpaquePython" else function
    if kind == "GroupBy":
        return "map_groups" if value.get("apply") else "group_by"
    if is_dataset({kind: value}):
        return scan_name({kind: value})
    if kind == "Scan":
        return f"scan_{kind_of(value['scan_type']).lower()}"
    return re.sub(r"(?<!^)(?=[A-Z][a-z])", "_", kind).lower()


def _reason(form: Any) -> str:
    """Say why a node is left to Polars."""
    if is_dataset(form):
        return "only Polars itself reads this table exactly"
    cloud = None
    if kind_of(form) == "Scan":
        cloud = form["Scan"]["unified_scan_args"]["cloud_options"]
        if set("*?[]") & set(json.dumps(form["Scan"]["sources"].get("Paths", "")).strip("[]")):
            return "Polars does not show which files its pattern names"
    if cloud and (cloud.get("config") is not None or cloud.get("credential_provider") is not None):
        return "its files need credentials"
    return "Polars does not show it"


def _inline(form: Any, chosen: Iterator[Sequence[str]]) -> Any:
    """Put the columns that selectors choose into the lists that the selectors stand in."""
    if isinstance(form, dict):
        if len(form) == 1 and "Selector" in form:
            (name,) = next(chosen)
            return {"Column": name}
        return {key: _inline(value, chosen) for key, value in form.items()}
    if isinstance(form, list) and form and not isinstance(form[0], int):
        out: list[Any] = []
        for value in form:
            if isinstance(value, dict) and len(value) == 1 and "Selector" in value:
                out.extend({"Column": name} for name in next(chosen))
            else:
                out.append(_inline(value, chosen))
        return out
    return form


def _chosen(form: Any, names: Iterator[str]) -> Any:
    """Put one column in the place of each selector."""
    if isinstance(form, dict):
        if len(form) == 1 and "Selector" in form:
            return {"Column": next(names)}
        return {key: _chosen(value, names) for key, value in form.items()}
    if isinstance(form, list) and form and not isinstance(form[0], int):
        return [_chosen(value, names) for value in form]
    return form


def _is_process_local(form: Any) -> bool:
    """Whether an expression reads or gives codes of categories."""
    functions = [value.get("function") for value in forms(form, "Function")]
    of_categories = [kind_of(f["Categorical"]) for f in functions if kind_of(f) == "Categorical"]
    return "ToPhysical" in functions or "Physical" in of_categories or "To" in of_categories


def traits(form: Any) -> tuple[bool, bool, bool]:
    """Tell how an expression's rows relate to its input's, from its JSON form.

    Returns
    -------
    tuple
        elementwise, scalar, length preserving: see :class:`~cudf_polars.plan.expressions.OpaqueSource`.
    """
    kind = kind_of(form)
    if kind in ("Column", "Field", "Element"):
        return True, False, True
    if kind == "Len":
        return False, True, False
    if kind == "Literal":
        series = isinstance(form["Literal"], dict) and "Series" in form["Literal"]
        return (False, False, False) if series else (True, True, False)
    children = [traits(c) for c in _expr_children(form)]
    rows = [c for c in children if not c[1]]
    all_elementwise = all(e for e, _, _ in children)
    all_preserving = bool(rows) and all(p for _, _, p in rows)
    all_scalar = not rows
    value: Any = form[kind] if isinstance(form, dict) else None
    if kind in ("Alias", "KeepName", "RenameAlias"):
        return children[0]
    if _encodes_rows(form):
        return all_elementwise, all_scalar, all_preserving
    if kind == "Eval":
        variant = value["variant"]
        if isinstance(variant, dict) and "Cumulative" in variant:
            return False, False, all_preserving
        return children[0]
    if kind == "StructEval":
        fields = [traits(e) for e in value["evaluation"]]
        return all_elementwise and all(e for e, _, _ in fields), all_scalar, all_preserving
    if kind == "Over":
        return False, False, kind_of(value["mapping"]) != "Explode"
    if kind == "AnonymousFunction":
        flags = value["options"]["flags"]
        elementwise = "ROW_SEPARABLE" in flags and "LENGTH_PRESERVING" in flags
        # a function of each element makes one value of one value
        scalar = "RETURNS_SCALAR" in flags or (elementwise and all_scalar)
        preserving = "LENGTH_PRESERVING" in flags
        return elementwise and all_elementwise and not scalar, scalar, preserving and all_preserving
    if kind == "Function" and isinstance(value["function"], dict):
        inner = next(iter(value["function"].values()))
        if isinstance(inner, dict) and inner.get("returns_scalar") is True:
            return False, True, False
    counter = iter(range(len(children)))
    try:
        top = deserialize_expr(_map_expr(form, lambda _: {"Column": f"c{next(counter)}"}))
        separable, preserves = top.meta.is_row_separable(), top.meta.is_length_preserving()
        scalar = top.meta.is_scalar()
    except _INVALID:
        return False, False, False
    return (
        separable and preserves and all_elementwise and not all_scalar,
        scalar or (separable and all_scalar),
        preserves and all_preserving and not scalar,
    )
