"""Joins: the larger side streams past a hash table of the smaller one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import polars as pl

from cudf_polars.execute.gpu.program import Build, Column, FromJoin, Probe
from cudf_polars.execute.gpu.translate import decimals, operators
from cudf_polars.execute.gpu.translate.estimates import kept_by, rows_of_join
from cudf_polars.execute.gpu.translate.expressions import translate_expression
from cudf_polars.execute.gpu.translate.groups import cross_with_row
from cudf_polars.execute.gpu.translate.needs import join_names
from cudf_polars.execute.gpu.translate.streams import Pipelines, Stream
from cudf_polars.execute.gpu.translate.typed import Constants, Scope, Typed, call, column, condition
from cudf_polars.execute.gpu.translate.types import is_float
from cudf_polars.execute.gpu.translate.untranslatable import Unsupported
from cudf_polars.lower.estimates import FILTERED
from cudf_polars.plan import expressions as ex
from cudf_polars.plan import nodes
from cudf_polars.plan.properties import columns

__all__ = ["join"]

_MOST_PAIRS = 100e6
"""A join without keys makes at most so many pairs of rows, as far as one can tell before."""

_MUCH_LARGER = 4.0
"""A right side of which only the keys matter is cut down to those of the left side if it has so many times its rows."""

_IE = {"<": ex.Operator.LT, "<=": ex.Operator.LE, ">": ex.Operator.GT, ">=": ex.Operator.GE}


def join(
    node: nodes.Join,
    left: Stream,
    right: Stream,
    needed: set[str],
    pipelines: Pipelines,
    constants: Constants,
) -> Stream:
    """Return the join of two streams, with at least the columns ``needed``.

    Raises
    ------
    Unsupported
        If the join has no form on a GPU.
    """
    return _Join(node, left, right, needed, pipelines, constants).translate()


class _Join:
    def __init__(
        self,
        node: nodes.Join,
        left: Stream,
        right: Stream,
        needed: set[str],
        pipelines: Pipelines,
        constants: Constants,
    ) -> None:
        self._node = node
        self._left = left
        self._right = right
        self._pipelines = pipelines
        self._constants = constants
        used = columns(node.predicate) if node.predicate is not None else ()
        self._needed = [name for name in (*node.schema, *used) if name in needed or name in used]
        self._left_names, self._right_names = join_names(node)

    def translate(self) -> Stream:
        node = self._node
        if node.asof is not None:
            raise Unsupported("as-of joins have no form on a GPU")
        if node.maintain_order != "none":
            raise Unsupported(f"the order of a join (maintain_order={node.maintain_order!r})")
        if node.validate != "m:m":
            raise Unsupported(f"a join that checks its keys (validate={node.validate!r})")
        match node.how:
            case "inner":
                out = self._inner()
            case "left":
                out = self._probe(self._left, self._right, "left")
            case "right":
                out = self._swapped()
            case "semi" | "anti":
                out = self._half(node.how)
            case "full":
                out = self._full()
            case "cross":
                out = self._cross(self._needed)
            case "ie":
                return self._inequality()
            case _:
                raise Unsupported(f"joins of the kind {node.how!r} have no form on a GPU")
        if node.predicate is not None:
            if node.how not in ("inner", "cross"):
                raise Unsupported(f"a {node.how} join with a predicate")
            mask = translate_expression(node.predicate, Scope(out.columns, self._constants))
            out.filter(mask, kept_by(node.predicate))
        return out

    # --- joins with keys ----------------------------------------------------------------------

    def _keys(self) -> tuple[list[Typed], list[Typed]]:
        """Return the keys of both sides, pairs of one type."""
        lefts, rights = [], []
        for le, re in zip(self._node.left_on, self._node.right_on, strict=True):
            a = translate_expression(le.expr, Scope(self._left.columns, self._constants))
            b = translate_expression(re.expr, Scope(self._right.columns, self._constants))
            if a.dtype.is_nested() or b.dtype.is_nested():
                raise Unsupported(f"keys of {a.dtype}", le.expr)
            if isinstance(a.dtype, pl.Decimal) and isinstance(b.dtype, pl.Decimal):
                a, b = decimals.align([a, b], self._constants)
            elif a.dtype != b.dtype:
                raise Unsupported(f"keys of {a.dtype} and {b.dtype}", le.expr)
            lefts.append(a)
            rights.append(b)
        return lefts, rights

    def _inner(self) -> Stream:
        if self._left.rows > self._right.rows:
            return self._probe(self._left, self._right, "inner")
        return self._swapped()

    def _swapped(self) -> Stream:
        """Join with the sides exchanged."""
        kind = {"inner": "inner", "right": "left"}[self._node.how]
        return self._probe(self._right, self._left, kind)

    def _probe(self, stream: Stream, built: Stream, kind: str) -> Stream:
        swapped = built is self._left
        left_keys, right_keys = self._keys()
        stream_keys, built_keys = (right_keys, left_keys) if swapped else (left_keys, right_keys)
        of_stream, of_built = (
            (self._right_names, self._left_names) if swapped else (self._left_names, self._right_names)
        )
        payload = _picked(built, of_built, self._needed)
        kept = _picked(stream, of_stream, [name for name in self._needed if name not in payload])
        # a key that only the built side has in the result equals the stream's
        if kind == "inner":
            for key, other in zip(built_keys, stream_keys, strict=True):
                for name, typed in list(payload.items()):
                    if typed.value == key.value and typed.dtype == other.dtype and not is_float(typed.dtype):
                        kept[name] = other
                        del payload[name]
        rows = rows_of_join((stream.rows, stream.table_rows), (built.rows, built.table_rows))
        build, places = self._build(built, built_keys, list(payload.values()))
        probe_keys = stream.place(kept, stream_keys)
        stream.probe(Probe(build, kind, tuple(probe_keys), tuple(places)), payload)
        stream.rows = rows if kind == "inner" else max(stream.rows, rows)
        return stream

    def _build(self, built: Stream, keys: Sequence[Typed], payload: Sequence[Typed]) -> tuple[int, list[int]]:
        """Build a hash table, and return its pipeline and the places of the payload."""
        places = built.project([*keys, *payload])
        sink = Build(tuple(places[: len(keys)]), self._node.nulls_equal)
        return self._pipelines.close(built, sink), places[len(keys) :]

    def _half(self, kind: str) -> Stream:
        if self._right.rows > _MUCH_LARGER * self._left.rows:
            self._reduce_right()
        stream = self._left
        left_keys, right_keys = self._keys()
        kept = _picked(stream, self._left_names, self._needed)
        part = min(1.0, self._right.rows / max(1.0, self._right.table_rows))
        build, _ = self._build(self._right, right_keys, [])
        keys = stream.place(kept, left_keys)
        stream.probe(Probe(build, kind, tuple(keys)), {})
        stream.rows *= part if kind == "semi" else max(0.1, 1.0 - part)
        return stream

    def _reduce_right(self) -> None:
        """Keep the right side's rows whose keys the left side has, so that the hash table is no larger than needed."""
        held = self._pipelines.hold(self._left)
        self._left, again = (self._pipelines.reopen(held, self._left) for _ in range(2))
        rows = self._left.rows
        whole, self._left = self._left, again
        left_keys, right_keys = self._keys()
        build, _ = self._build(again, left_keys, [])
        self._left = whole
        columns = dict(self._right.columns)
        keys = self._right.place(columns, right_keys)
        self._right.probe(Probe(build, "semi", tuple(keys)), {})
        self._right.rows = min(self._right.rows, rows)

    def _full(self) -> Stream:
        node = self._node
        if node.coalesce and any(not isinstance(e.expr, ex.Column) for e in (*node.left_on, *node.right_on)):
            raise Unsupported("a full join that coalesces keys of different types")
        left_keys, right_keys = self._keys()
        left = _picked(self._left, self._left_names, self._needed)
        right = _picked(self._right, self._right_names, self._needed)
        rows = self._left.rows + self._right.rows
        left_keys_at = self._left.place(left, left_keys)
        right_keys_at = self._right.place(right, right_keys)
        first = len(self._left.types)
        out = Stream(
            FromJoin(
                "full",
                self._pipelines.hold(self._left),
                self._pipelines.hold(self._right),
                tuple(left_keys_at),
                tuple(right_keys_at),
                node.nulls_equal,
            ),
            self._left.types + self._right.types,
            {},
            rows,
            self._left.table_rows + self._right.table_rows,
        )
        shifted = {name: _moved(typed, first) for name, typed in self._right.columns.items()}
        out.columns = {
            name: replace(typed, nullable=True) for name, typed in (self._left.columns | shifted).items()
        }
        if node.coalesce:
            coalesced: set[str] = set()  # a column that is a key twice has the values of the first
            for le, left_at, right_at, key, other in zip(
                node.left_on, left_keys_at, right_keys_at, left_keys, right_keys, strict=True
            ):
                if not isinstance(le.expr, ex.Column) or le.expr.name in coalesced:
                    continue
                if le.expr.name in self._needed:
                    coalesced.add(le.expr.name)
                    a, b = column(left_at, key), column(first + right_at, other)
                    both = call(
                        "replace_nulls",
                        (a, b),
                        a.dtype,
                        type=a.type,
                        range=operators.hull(a.range, b.range),
                        nullable=True,
                    )
                    out.columns[le.expr.name] = both
            out.select({name: out.columns[name] for name in out.columns if name in self._needed})
        return out

    # --- joins without keys ----------------------------------------------------------------------

    def _cross(self, needed: Iterable[str]) -> Stream:
        left = _picked(self._left, self._left_names, needed)
        right = _picked(self._right, self._right_names, needed)
        if self._right.one_row:
            return cross_with_row(self._left, left, self._right, right, self._pipelines, self._constants)
        if self._left.one_row:
            return cross_with_row(self._right, right, self._left, left, self._pipelines, self._constants)
        pairs = self._left.rows * self._right.rows
        if self._node.how == "ie" and pairs > _MOST_PAIRS:
            raise Unsupported("an inequality join of large tables")
        self._left.select(left)
        self._right.select(right)
        first = len(self._left.types)
        source = FromJoin("cross", self._pipelines.hold(self._left), self._pipelines.hold(self._right))
        shifted = {name: _moved(typed, first) for name, typed in self._right.columns.items()}
        return Stream(
            source, self._left.types + self._right.types, self._left.columns | shifted, pairs, pairs
        )

    def _inequality(self) -> Stream:
        node = self._node
        to_right = {old: new for new, old in self._right_names.items()}
        pairs = [
            (_IE[op], le.expr, _renamed(re.expr, to_right))
            for op, le, re in zip(node.ie_operators, node.left_on, node.right_on, strict=True)
        ]
        used = [name for _, le, re in pairs for e in (le, re) for name in columns(e)]
        out = self._cross(list(dict.fromkeys([*self._needed, *used])))
        scope = Scope(out.columns, self._constants)
        mask: Typed | None = None
        for op, le, re in pairs:
            a, b = translate_expression(le, scope), translate_expression(re, scope)
            one = operators.compare(op, a, b, self._constants)
            mask = one if mask is None else condition("null_logical_and", mask, one)
        if mask is not None:
            out.filter(mask, FILTERED)
        return out


def _picked(stream: Stream, names: Mapping[str, str], wanted: Iterable[str]) -> dict[str, Typed]:
    """Return columns of one side by their names in the result; those without a form on a GPU are left out."""
    return {
        name: stream.columns[names[name]]
        for name in wanted
        if name in names and names[name] in stream.columns
    }


def _moved(typed: Typed, by: int) -> Typed:
    """Return a column of a chunk at a place that is ``by`` further."""
    if typed.literal is not None:
        return typed
    assert isinstance(typed.value, Column)
    return column(typed.value.index + by, typed)


def _renamed(expr: ex.Expr, names: dict[str, str]) -> ex.Expr:
    if isinstance(expr, ex.Column):
        return ex.Column(names[expr.name], dtype=expr.dtype)
    children = expr.children
    return expr.with_children([_renamed(c, names) for c in children]) if children else expr
