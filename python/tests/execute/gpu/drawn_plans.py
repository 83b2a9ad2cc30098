"""Random queries over random frames, with what Polars promises of their order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl
from execute.gpu.choices import Choices
from execute.gpu.drawn_expressions import DECIMALS, INTS, Expressions
from execute.gpu.drawn_frames import POOLS, TYPES, column_name, frame_of, name_of
from hypothesis import strategies as st

__all__ = ["Query", "queries", "query_of"]

_MOST_COLUMNS = 14


@dataclass(frozen=True)
class Query:
    """A query.

    Attributes
    ----------
    frame
        The query.
    columns
        The columns that later steps may use, by the name of their type.
    ordered
        Polars promises the place of each row.
    sorted_by
        Else: the columns by which the rows are sorted, if they are.
    text
        What was asked, to read.
    """

    frame: pl.LazyFrame
    columns: Mapping[str, Sequence[str]]
    ordered: bool = True
    sorted_by: tuple[str, ...] = ()
    text: str = ""

    def step(self, frame: pl.LazyFrame, text: str, **changes: Any) -> Query:
        """Return the query with one more step."""
        return replace(self, frame=frame, text=f"{self.text}\n  .{text}", **changes)

    @property
    def names(self) -> list[str]:
        """All columns that may be used."""
        return [name for names in self.columns.values() for name in names]


def _by_kind(names: Sequence[str]) -> dict[str, list[str]]:
    out: dict[str, list[str]] = {}
    for name in names:
        out.setdefault(name_of(name), []).append(name)
    return out


Step = Callable[["_Writer", Query], Query]


class _Writer:
    def __init__(self, choices: Choices, depth: int) -> None:
        self.choices = choices
        self.depth = depth
        self._fresh = 100
        self._tables = 40

    def new_name(self, kind: str) -> str:
        """Return a name for a new column; only of a type's name do later steps make use."""
        self._fresh += 1
        return column_name(kind, self._fresh)

    def next_table(self) -> int:
        """Return the number of the first columns of another table."""
        self._tables += 10
        return self._tables

    def expressions(self, query: Query) -> Expressions:
        """Return what draws expressions over a query's columns."""
        return Expressions(self.choices, query.columns)

    def named(self, x: Expressions, count: int) -> list[tuple[str, pl.Expr]]:
        """Return row-wise expressions with names."""
        out = []
        for _ in range(count):
            if x.pick(0, 0, 0, 0, 1):
                out.append((self.new_name("rounded"), x.rounded(self.depth)))
            else:
                kind = x.pick(*x.kinds, "Boolean")
                # what decimals give has another precision
                made = "other" if kind in DECIMALS else kind
                out.append((self.new_name(made), x.of(kind, self.depth)))
        return out


def _shown(named: Sequence[tuple[str, pl.Expr]]) -> str:
    return ", ".join(f"{name}={expr}" for name, expr in named)


def _usable(names: Sequence[str]) -> dict[str, list[str]]:
    return _by_kind([name for name in names if name_of(name) in POOLS])


def _select(w: _Writer, q: Query) -> Query:
    x = w.expressions(q)
    named = w.named(x, x.pick(1, 2, 3))
    kept = [x.pick(*q.names)] if x.flag() else []
    frame = q.frame.select(*kept, **dict(named))
    columns = _usable([*kept, *(name for name, _ in named)])
    by = q.sorted_by if set(q.sorted_by) <= set(kept) else ()
    return q.step(frame, f"select({kept}, {_shown(named)})", columns=columns, sorted_by=by)


def _with_columns(w: _Writer, q: Query) -> Query:
    x = w.expressions(q)
    named = w.named(x, x.pick(1, 2))
    if len(q.names) > _MOST_COLUMNS:
        return q
    columns = _usable([*q.names, *(name for name, _ in named)])
    return q.step(q.frame.with_columns(**dict(named)), f"with_columns({_shown(named)})", columns=columns)


def _filter(w: _Writer, q: Query) -> Query:
    mask = w.expressions(q).condition(w.depth + 1)
    return q.step(q.frame.filter(mask), f"filter({mask})")


def _filter_by_aggregate(w: _Writer, q: Query) -> Query:
    x = w.expressions(q)
    kinds = x.some(INTS)
    if not kinds:
        return q
    a = x.column(x.pick(*kinds))
    mask = x.pick(a >= a.min(), a < a.max(), a.n_unique() > 1, a == a.max(), a > a.sum())
    return q.step(q.frame.filter(mask), f"filter({mask})")


def _aggregates(w: _Writer, q: Query, x: Expressions, count: int) -> list[tuple[str, pl.Expr]]:
    return [(w.new_name("other"), x.aggregate(w.depth, ordered=q.ordered)) for _ in range(count)]


def _reduce(w: _Writer, q: Query) -> Query:
    x = w.expressions(q)
    named = _aggregates(w, q, x, x.pick(1, 2, 3))
    return q.step(
        q.frame.select(**dict(named)), f"select({_shown(named)})", columns={}, ordered=True, sorted_by=()
    )


def _broadcast(w: _Writer, q: Query) -> Query:
    x = w.expressions(q)
    named = _aggregates(w, q, x, 1)
    if x.flag():
        frame = q.frame.select(*q.names, **dict(named))
        return q.step(frame, f"select(all, {_shown(named)})")
    return q.step(q.frame.with_columns(**dict(named)), f"with_columns({_shown(named)})")


def _over(w: _Writer, q: Query) -> Query:
    x = w.expressions(q)
    keys = _keys(w, q, x)
    ((name, value),) = _aggregates(w, q, x, 1)
    made = value.over(keys)
    return q.step(q.frame.with_columns(made.alias(name)), f"with_columns({name}={made})")


def _keys(w: _Writer, q: Query, x: Expressions) -> list[str]:
    return list(dict.fromkeys(x.pick(*q.names) for _ in range(x.pick(1, 1, 2))))


def _group_by(w: _Writer, q: Query) -> Query:
    x = w.expressions(q)
    keys = _keys(w, q, x)
    ordered = x.flag() and q.ordered
    named = _aggregates(w, q, x, x.pick(1, 2, 3))
    by: list[Any] = list(keys)
    if x.pick(0, 0, 0, 1):
        by = [x.condition(w.depth).alias(w.new_name("Boolean"))]
        keys = [by[0].meta.output_name()]
    frame = q.frame.group_by(by, maintain_order=ordered).agg(**dict(named))
    text = f"group_by({', '.join(map(str, by))}, maintain_order={ordered}).agg({_shown(named)})"
    return q.step(frame, text, columns=_usable(keys), ordered=ordered, sorted_by=())


def _sort(w: _Writer, q: Query) -> Query:
    x = w.expressions(q)
    keys = _keys(w, q, x)
    descending = [x.flag() for _ in keys]
    nulls_last = [x.flag() for _ in keys]
    ordered = q.ordered and x.flag()
    frame = q.frame.sort(keys, descending=descending, nulls_last=nulls_last, maintain_order=ordered)
    text = f"sort({keys}, {descending=}, {nulls_last=}, maintain_order={ordered})"
    return q.step(frame, text, ordered=ordered, sorted_by=tuple(keys))


def _unique(w: _Writer, q: Query) -> Query:
    x = w.expressions(q)
    keep: Any = x.pick("any", "first", "last", "none")
    ordered = q.ordered and x.flag()
    if keep == "any" or (keep != "none" and not q.ordered):
        keys = _keys(
            w, q, x
        )  # which of several rows is left is open: only what they have in common is looked at
        frame = q.frame.select(keys).unique(keep="any", maintain_order=ordered)
        return q.step(
            frame,
            f"select({keys}).unique(maintain_order={ordered})",
            columns=_usable(keys),
            ordered=ordered,
            sorted_by=(),
        )
    subset = _keys(w, q, x)
    frame = q.frame.unique(subset, keep=keep, maintain_order=ordered)
    return q.step(
        frame, f"unique({subset}, {keep=}, maintain_order={ordered})", ordered=ordered, sorted_by=()
    )


def _slice(w: _Writer, q: Query) -> Query:
    if not q.ordered:
        return q
    x = w.expressions(q)
    offset, length = x.pick(0, 1, 3, -1, -3, -20), x.pick(0, 1, 3, 20)
    return q.step(q.frame.slice(offset, length), f"slice({offset}, {length})")


def _top(w: _Writer, q: Query) -> Query:
    """Sort and take the first rows: they are said only if all ties are rows that are alike."""
    x = w.expressions(q)
    keys = _keys(w, q, x)
    descending, nulls_last = x.flag(), x.flag()
    count = x.pick(1, 2, 4)
    frame = q.frame.select(keys).sort(keys, descending=descending, nulls_last=nulls_last).head(count)
    text = f"select({keys}).sort({keys}, {descending=}, {nulls_last=}).head({count})"
    return q.step(frame, text, columns=_usable(keys), ordered=False, sorted_by=tuple(keys))


def _join(w: _Writer, q: Query) -> Query:
    x = w.expressions(q)
    kinds = list(dict.fromkeys(x.pick(*x.kinds) for _ in range(x.pick(1, 1, 2))))
    first = w.next_table()
    other = frame_of(w.choices, kinds, first=first)
    right = other.lazy()
    how: Any = x.pick("inner", "inner", "left", "left", "right", "full", "semi", "anti", "cross")
    if len(q.names) > _MOST_COLUMNS:
        return q
    text = f"join({other}, how={how}"
    if how == "cross":
        frame = q.frame.join(right, how="cross")
    else:
        left_on = [x.pick(*q.columns[kind]) for kind in kinds]
        right_on = [column_name(kind, first) for kind in kinds]
        nulls_equal = x.pick(False, False, True)
        coalesce = x.pick(None, False, True) if how in ("left", "full") else None
        frame = q.frame.join(
            right, left_on=left_on, right_on=right_on, how=how, nulls_equal=nulls_equal, coalesce=coalesce
        )
        text += f", {left_on=}, {right_on=}, {nulls_equal=}, {coalesce=}"
    names = frame.collect_schema().names()
    return q.step(frame, text + ")", columns=_usable(names), ordered=False, sorted_by=())


def _concat(w: _Writer, q: Query) -> Query:
    return q.step(pl.concat([q.frame, q.frame]), "concat(self, self)", sorted_by=())


_STEPS: tuple[Step, ...] = (
    _select,
    _select,
    _with_columns,
    _filter,
    _filter,
    _filter_by_aggregate,
    _broadcast,
    _over,
    _group_by,
    _group_by,
    _sort,
    _unique,
    _slice,
    _join,
    _join,
    _concat,
)
_LAST: tuple[Step, ...] = (
    _select,
    _select,
    _select,
    _with_columns,
    _filter,
    _reduce,
    _reduce,
    _group_by,
    _group_by,
    _over,
    _sort,
    _unique,
    _top,
    _join,
    _broadcast,
)


_KINDS: tuple[tuple[str, ...], ...] = (
    *((kind,) for kind in TYPES),
    *(
        ("Float64",),
        ("Boolean",),
        ("Boolean", "Float32"),
        ("String",),
        ("Int64", "UInt64"),
        ("Int64",),
        ("Int32",),
    ),
    *(("Decimal 2", "Decimal 4"), ("Datetime us", "Duration us")),
)
"""Types of columns that come together: those with most traps more often."""


def query_of(choices: Choices, *, depth: int = 2) -> Query:
    """Return a random query."""
    chosen = [kind for _ in range(choices.pick(1, 1, 2, 2, 3)) for kind in choices.pick(*_KINDS)]
    frame = frame_of(choices, list(dict.fromkeys(chosen)))
    w = _Writer(choices, depth)
    query = Query(frame.lazy(), _usable(frame.columns), text=f"{frame.to_dict(as_series=False)}")
    steps = [choices.pick(*_STEPS) for _ in range(choices.pick(0, 0, 1, 1, 2))] + [choices.pick(*_LAST)]
    for step in steps:
        if query.columns:
            query = step(w, query)
    return query


@st.composite
def queries(draw: st.DrawFn) -> Query:
    """Return a random query, whose parts hypothesis chooses."""
    return query_of(Choices(lambda count: draw(st.integers(0, count - 1))))
