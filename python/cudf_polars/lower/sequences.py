"""Expressions over rows in their order: each rank computes its own part beside what the ranks around it tell it.

``shift``, ``diff`` and rolling windows of a fixed size need a number of rows before and behind their own, sums that
run over all rows need what the ranks before have come to. Either way it becomes a few rows before and behind those
of the rank, over which Polars' own function is called; then they are dropped. A function of such functions is
computed step by step, each a column of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import polars as pl

from cudf_polars.lower.builder import StreamBuilder
from cudf_polars.lower.peers import from_last_peer
from cudf_polars.lower.physical import Carried, Stream
from cudf_polars.lower.shape import is_rowwise_step, with_expressions
from cudf_polars.plan.expressions import (
    Agg,
    BinaryOp,
    Cast,
    CastMode,
    Column,
    Expr,
    Function,
    Gather,
    Len,
    Literal,
    Operator,
    Window,
)
from cudf_polars.plan.nodes import Filter, HStack, Select
from cudf_polars.plan.properties import columns, is_elementwise
from cudf_polars.plan.rebuild_expressions import to_expr

__all__ = ["SEQUENCES", "Sequences", "add_sequences", "sequences_of"]

_MOST_ROWS = 1 << 16
"""How many rows of other ranks a step may need."""
_OWN = "__rr_own"
"""Whether a row (Boolean) is the rank's own."""
_SIDE = "__rr_behind"
"""Whether a row of a summary (Boolean) is for those who come before."""


@dataclass(frozen=True)
class _Reach:
    """A function that looks at a fixed number of rows around each.

    Attributes
    ----------
    before, behind
        How many, at most.
    """

    before: int
    behind: int


@dataclass(frozen=True)
class _Running:
    """A function of all rows up to each, whose last value stands for them.

    Attributes
    ----------
    backwards
        Of all rows from each on, with the first value.
    """

    backwards: bool


@dataclass(frozen=True)
class _Gaps:
    """A function that fills the nulls between two values."""


_Kind = _Reach | _Running | _Gaps


@dataclass(frozen=True)
class _Step:
    """One function.

    Attributes
    ----------
    name
        The column of its result.
    level
        How many steps are computed before it.
    call
        The function, over columns of ``inputs``.
    inputs
        Row-wise expressions by the names of their columns.
    """

    name: str
    level: int
    kind: _Kind
    call: Function
    inputs: Mapping[str, Expr]


@dataclass
class Sequences:
    """The functions over rows in their order that a node's expressions are made of.

    Attributes
    ----------
    node
        The same over the columns that they become.
    """

    node: Select | HStack | Filter
    steps: dict[Expr, _Step] = field(default_factory=dict)
    constants: dict[Expr, Column] = field(default_factory=dict)


class _NoSequence(Exception):
    """An expression has another form."""


def sequences_of(node: Select | HStack | Filter) -> Sequences | None:
    """Return what the expressions of a node are made of; ``None`` if there is another that is no window."""
    rewriter = _Rewriter(Sequences(node))
    try:
        new = with_expressions(node, rewriter.rewrite)
    except _NoSequence:
        return None
    found = rewriter.found
    found.node = new
    return found if found.steps or found.constants else None


class _Rewriter:
    """Replaces functions over rows in their order by columns, the innermost first."""

    def __init__(self, found: Sequences) -> None:
        self.found = found
        self._levels: dict[str, int] = {}

    def rewrite(self, expr: Expr) -> Expr:
        if isinstance(expr, Window) or is_elementwise(expr):
            return expr
        if isinstance(expr, Gather):
            filled = from_last_peer(expr)
            if filled is not None:
                return self.rewrite(filled)
        if isinstance(expr, Function):
            if _is_numbering(expr):
                return self.rewrite(self._numbers(expr))
            plain = _spelled_out(expr)
            if isinstance(plain, Literal):
                return self._constant(expr, plain)
            if plain is not None:
                return self.rewrite(plain)
            kind = _kind(expr)
            if kind is not None:
                return self._step(expr, kind)
        if not expr.children or not is_rowwise_step(expr):
            raise _NoSequence
        return expr.with_children([self.rewrite(child) for child in expr.children])

    def _numbers(self, expr: Function) -> Expr:
        """Return the numbers of the rows: each counts one."""
        one = Literal(1, dtype=expr.dtype)
        total = Function("cum_sum", (self._constant(expr, one),), (False,), dtype=expr.dtype)
        return BinaryOp(Operator.SUB, total, one, dtype=expr.dtype)

    def _constant(self, expr: Function, value: Literal) -> Expr:
        name = f"__rr_constant{len(self.found.constants)}"
        return self.found.constants.setdefault(value, Column(name, dtype=expr.dtype))

    def _step(self, expr: Function, kind: _Kind) -> Expr:
        if expr not in self.found.steps:
            number = len(self.found.steps)
            children: list[Expr] = []
            inputs: dict[str, Expr] = {}
            level = 0
            for place, child in enumerate(expr.inputs):
                if isinstance(child, Literal):
                    children.append(child)
                    continue
                source = self.rewrite(child)
                if not is_elementwise(source) or not columns(source) or source.dtype is None:
                    raise _NoSequence
                if isinstance(kind, _Running) and source.dtype != expr.dtype:
                    # What the rows before have come to needs the wider type of the result.
                    assert expr.dtype is not None
                    source = Cast(source, expr.dtype, CastMode.STRICT, dtype=expr.dtype)
                level = max([level, *(self._levels.get(name, -1) + 1 for name in columns(source))])
                name = f"__rr_input{number}_{place}"
                inputs[name] = source
                children.append(Column(name, dtype=source.dtype))
            if not inputs:
                raise _NoSequence  # of constants, which have one row: there is nothing to hand on
            name = f"__rr_sequence{number}_{level}"
            self._levels[name] = level
            call = expr.with_children(children)
            assert isinstance(call, Function)
            self.found.steps[expr] = _Step(name, level, kind, call, inputs)
        return Column(self.found.steps[expr].name, dtype=expr.dtype)


# -- which functions -------------------------------------------------------------------------------------------

SEQUENCES = frozenset(
    """
    cum_count cum_max cum_min cum_prod cum_sum diff fill_null_with_strategy int_range interpolate pct_change peak_max
    peak_min repeat rle_id shift shift_and_fill
    rolling_corr_cov rolling_kurtosis rolling_max rolling_mean rolling_min rolling_quantile rolling_skew rolling_std
    rolling_sum rolling_var
    """.split()  # noqa: SIM905
)
"""The functions that are computed so, by their names in a plan, each with some of its options."""


def _is_height(expr: Expr) -> bool:
    """Whether ``expr`` is the number of rows."""
    while isinstance(expr, Cast):
        expr = expr.child
    return isinstance(expr, Len) or (
        isinstance(expr, Agg) and expr.name == "len" and isinstance(expr.child, Column)
    )


def _is_numbering(expr: Function) -> bool:
    """Whether ``expr`` numbers the rows, in a type whose sums have it."""
    match expr:
        case Function("int_range", (Literal(value=0), height), (1, _)):
            return _is_height(height) and expr.dtype in (pl.Int32, pl.Int64, pl.UInt32, pl.UInt64)
    return False


def _spelled_out(expr: Function) -> Expr | None:
    """Return a function as another one that is known, or as the one value of all rows."""
    match expr:
        case Function("repeat", (Literal(scalar=True) as value, height)) if (
            _is_height(height) and value.dtype is not None and value.dtype == expr.dtype
        ):
            return value
        case Function("cum_count", (child,), (backwards,)):
            present = Function("is_not_null", (child,), dtype=pl.Boolean())
            ones = Cast(present, expr.dtype or pl.UInt32(), CastMode.STRICT, dtype=expr.dtype)
            return Function("cum_sum", (ones,), (backwards,), dtype=expr.dtype)
        case Function("pct_change", (child, n)) if (
            expr.dtype is not None
            and expr.dtype.is_float()
            and child.dtype is not None
            and not child.dtype.is_nested()  # that it has none of these is for Polars to tell
        ):
            floats = Cast(child, expr.dtype, CastMode.NON_STRICT, dtype=expr.dtype)
            before = Function("shift", (floats, n), dtype=expr.dtype)
            change = BinaryOp(Operator.SUB, floats, before, dtype=expr.dtype)
            return BinaryOp(Operator.TRUE_DIV, change, before, dtype=expr.dtype)
        case Function("rle_id", (child,)) if child.dtype is not None and not child.dtype.is_nested():
            one, boolean = Literal(1, dtype=pl.Int64()), pl.Boolean()
            differs = BinaryOp(
                Operator.NE_MISSING, child, Function("shift", (child, one), dtype=child.dtype), dtype=boolean
            )
            # Before the first row there is nothing, which is null here only.
            present = Function("is_not_null", (child,), dtype=boolean)
            is_later = Function(
                "is_not_null", (Function("shift", (present, one), dtype=boolean),), dtype=boolean
            )
            begins = BinaryOp(Operator.AND, differs, is_later, dtype=boolean)
            number = Cast(begins, expr.dtype or pl.UInt32(), CastMode.STRICT, dtype=expr.dtype)
            return Function("cum_sum", (number,), (False,), dtype=expr.dtype)
    return None


def _whole_number(expr: Expr) -> int | None:
    """Return a constant."""
    value = expr.value if isinstance(expr, Literal) else None
    return (
        value if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _MOST_ROWS else None
    )


def _kind(expr: Function) -> _Kind | None:
    """Return which rows of other ranks ``expr`` needs; ``None``: it has no form that carries them, and is gathered."""
    if expr.dtype is None:
        return None
    source = expr.inputs[0].dtype
    match expr:
        case Function("shift" | "shift_and_fill", (_, n, *fill)) if all(
            isinstance(each, Literal) and each.scalar for each in fill
        ):
            return _shifted(_whole_number(n))
        case Function("diff", (_, n), ("ignore",)):
            return _shifted(_whole_number(n))
        case Function("peak_min" | "peak_max"):
            return _Reach(1, 1)
        case Function("fill_null_with_strategy", (_,), ("forward" | "backward" as way, limit)):
            if limit is None:
                return _Running(way == "backward")
            if limit > _MOST_ROWS:
                return None
            return _Reach(limit, 0) if way == "forward" else _Reach(0, limit)
        case Function("interpolate"):
            return _Gaps()
        case Function("cum_prod") if source == pl.Duration:
            return None  # it has none, as Polars tells: our cast to the planned type would make numbers of it
        case Function("cum_sum" | "cum_prod", (_,), (backwards,)) if _adds_up(source):
            return _Running(backwards)
        case Function("cum_min" | "cum_max", (_,), (backwards,)) if source is not None and (
            source.is_numeric() or source.is_temporal()
        ):
            return _Running(backwards)
        case Function(name, _, (int() as size, *_)) if (
            name in SEQUENCES and name.startswith("rolling_") and size <= _MOST_ROWS
        ):
            return _Reach(size, size)
    return None


def _shifted(n: int | None) -> _Reach | None:
    if n is None:
        return None
    return _Reach(n, 0) if n >= 0 else _Reach(0, -n)


def _adds_up(dtype: pl.DataType | None) -> bool:
    """Whether what a part has come to can go on in the type that Polars plans for the result."""
    # Of UInt128 it plans another one than it gives.
    return dtype is not None and (
        dtype in (pl.Boolean, pl.Float32, pl.Float64, pl.Duration)
        or (dtype.is_integer() and dtype not in (pl.Int128, pl.UInt128))
    )


# -- the streams -----------------------------------------------------------------------------------------------


def add_sequences(builder: StreamBuilder, found: Sequences, stream: Stream) -> Stream:
    """Return an ordered stream with the columns that ``found.node`` reads."""
    constants = [to_expr(value).alias(column.name) for value, column in found.constants.items()]
    stream = builder.with_columns(stream, constants, "CONSTANTS")
    steps = list(found.steps.values())
    for level in sorted({step.level for step in steps}):
        now = [step for step in steps if step.level == level]
        inputs = {name: expr for step in now for name, expr in step.inputs.items()}
        stream = builder.with_columns(stream, [to_expr(e).alias(n) for n, e in inputs.items()], "INPUTS")
        groups = [
            [step for step in now if isinstance(step.kind, _Reach)],
            [step for step in now if isinstance(step.kind, _Running)],
            *([step] for step in now if isinstance(step.kind, _Gaps)),
        ]
        for group in filter(None, groups):
            stream = _beside(builder, group, stream)
    return stream


def _beside(builder: StreamBuilder, steps: list[_Step], stream: Stream) -> Stream:
    """Compute steps of one kind, each a column beside the others."""
    names = [name for step in steps for name in step.inputs]
    inputs = {name: stream.schema[name] for name in names}
    kind = steps[0].kind
    ways = _reached if isinstance(kind, _Reach) else _come_to if isinstance(kind, _Running) else _gap
    summary, summarize, merge, rows_of = ways(steps, inputs)
    results = [to_expr(step.call).alias(step.name) for step in steps]
    below = dict(stream.schema)

    def apply(rows: pl.LazyFrame, before: pl.DataFrame, behind: pl.DataFrame) -> pl.LazyFrame:
        parts = [
            _strangers(rows_of(before, False), below),
            rows.with_columns(pl.lit(True).alias(_OWN)),
            _strangers(rows_of(behind, True), below),
        ]
        every = pl.concat([part for part in parts if part is not None], how="vertical")
        return every.with_columns(results).filter(pl.col(_OWN)).drop(_OWN)

    kept = {name: dtype for name, dtype in below.items() if name not in inputs}
    schema = {**kept, **{step.name: step.call.dtype for step in steps if step.call.dtype is not None}}
    called = ", ".join(dict.fromkeys(step.call.name for step in steps))
    return Carried(
        inputs=(stream,),
        schema=schema,
        partitioning=stream.partitioning,
        ordered=stream.ordered,
        estimate=stream.estimate,
        summary=summary,
        summarize=summarize,
        merge=merge,
        apply=apply,
        title=f"CARRY over the ranks ({called})",
    )


def _strangers(rows: pl.DataFrame, schema: Mapping[str, pl.DataType]) -> pl.LazyFrame | None:
    """Return rows that are not the rank's own, with all columns of its rows; ``None`` if there are none."""
    if not rows.height:
        return None
    values = [
        pl.col(name).cast(dtype) if name in rows.columns else pl.lit(None, dtype=dtype).alias(name)
        for name, dtype in schema.items()
    ]
    return rows.lazy().select(*values, pl.lit(False).alias(_OWN))


_Ways = tuple[
    dict[str, pl.DataType],
    Callable[[pl.DataFrame], pl.DataFrame],
    Callable[[pl.DataFrame], pl.DataFrame],
    Callable[[pl.DataFrame, bool], pl.DataFrame],
]
"""The columns of a summary, what makes it of rows, what merges several, and what makes rows of it for a side."""


def _reached(steps: list[_Step], inputs: Mapping[str, pl.DataType]) -> _Ways:
    """Hand on the first and the last rows."""
    reaches = [step.kind for step in steps if isinstance(step.kind, _Reach)]
    before, behind = max(r.before for r in reaches), max(r.behind for r in reaches)
    names = list(inputs)

    def ends(first: pl.DataFrame, last: pl.DataFrame) -> pl.DataFrame:
        return pl.concat(
            [
                first.head(behind).with_columns(pl.lit(True).alias(_SIDE)),
                last.tail(before).with_columns(pl.lit(False).alias(_SIDE)),
            ]
        )

    def summarize(rows: pl.DataFrame) -> pl.DataFrame:
        return ends(rows.select(names), rows.select(names))

    def rows_of(summary: pl.DataFrame, side: bool) -> pl.DataFrame:
        return summary.filter(pl.col(_SIDE) == side).drop(_SIDE)

    def merge(summaries: pl.DataFrame) -> pl.DataFrame:
        return ends(rows_of(summaries, True), rows_of(summaries, False))

    return {**inputs, _SIDE: pl.Boolean()}, summarize, merge, rows_of


def _come_to(steps: list[_Step], inputs: Mapping[str, pl.DataType]) -> _Ways:
    """Hand on what the functions have come to."""
    summary: dict[str, pl.DataType] = {}
    first: list[pl.Expr] = []
    again: list[pl.Expr] = []
    forwards: list[str] = []
    backwards: list[str] = []
    for step in steps:
        assert isinstance(step.kind, _Running)
        assert step.call.dtype is not None
        (name,) = step.inputs
        dtype = step.call.dtype
        summary[name] = dtype
        folded = step.call.with_children((Column(name, dtype=dtype),))
        for call, calls in ((step.call, first), (folded, again)):
            last = to_expr(call)
            last = last.first(ignore_nulls=True) if step.kind.backwards else last.last(ignore_nulls=True)
            calls.append(last.cast(dtype).alias(name))
        (backwards if step.kind.backwards else forwards).append(name)

    def rows_of(merged: pl.DataFrame, side: bool) -> pl.DataFrame:
        return merged.select(backwards if side else forwards)

    return summary, lambda rows: rows.select(first), lambda merged: merged.select(again), rows_of


def _gap(steps: list[_Step], inputs: Mapping[str, pl.DataType]) -> _Ways:
    """Hand on the first and the last value, with the number of nulls before and behind them."""
    ((name, dtype),) = inputs.items()
    counts = {"nulls_before": pl.Int64(), "nulls_behind": pl.Int64(), "rows": pl.Int64()}
    summary = {"first": dtype, "last": dtype, **counts}

    def summarize(rows: pl.DataFrame) -> pl.DataFrame:
        values = rows[name]
        places = values.is_not_null().arg_true()
        first, last = (places[0], places[-1]) if len(places) else (rows.height, -1)
        ends = rows.select(
            first=pl.col(name).first(ignore_nulls=True), last=pl.col(name).last(ignore_nulls=True)
        )
        numbers = [first, rows.height - 1 - last, rows.height]
        return ends.with_columns(
            pl.lit(n, dtype=pl.Int64).alias(c) for c, n in zip(counts, numbers, strict=True)
        )

    def merge(summaries: pl.DataFrame) -> pl.DataFrame:
        full = summaries["first"].is_not_null().arg_true()
        rows = summaries["rows"]
        total = int(rows.sum())
        before = behind = total
        if len(full):
            first, last = int(full[0]), int(full[-1])
            before = int(rows[:first].sum()) + summaries["nulls_before"][first]
            behind = int(rows[last + 1 :].sum()) + summaries["nulls_behind"][last]
        ends = summaries.select(
            first=pl.col("first").first(ignore_nulls=True), last=pl.col("last").last(ignore_nulls=True)
        )
        return ends.with_columns(
            pl.lit(n, dtype=pl.Int64).alias(c) for c, n in zip(counts, (before, behind, total), strict=True)
        )

    def rows_of(merged: pl.DataFrame, side: bool) -> pl.DataFrame:
        end = "first" if side else "last"
        value = merged.select(pl.col(end).alias(name)).drop_nulls()
        if not value.height:
            return value
        count = merged["nulls_before" if side else "nulls_behind"].item()
        nulls = pl.select(pl.repeat(None, count, dtype=dtype).alias(name))
        return pl.concat([nulls, value] if side else [value, nulls])

    return summary, summarize, merge, rows_of
