"""Errors that a translator may make, planted into right programs: what each leaves out or takes for the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeAlias

from cudf_polars.execute.gpu.program import (
    Build,
    Call,
    Constant,
    Distinct,
    Filter,
    Group,
    Hold,
    Pipeline,
    Probe,
    Program,
    Project,
    Sink,
    Sort,
    Step,
    Value,
)

__all__ = ["ERRORS", "Plant"]

Plant: TypeAlias = Callable[[Program], Program]
"""Returns a program with an error, or the same one if it has no place for it."""
Rewrite: TypeAlias = Callable[[Call], Value]


def _rewritten(value: Value, rewrite: Rewrite) -> Value:
    if not isinstance(value, Call):
        return value
    args = tuple(_rewritten(arg, rewrite) for arg in value.args)
    return rewrite(replace(value, args=args))


def _calls(rewrite: Rewrite) -> Plant:
    """Return what rewrites the calls of all steps."""

    def step(one: Step) -> Step:
        match one:
            case Filter(mask):
                return Filter(_rewritten(mask, rewrite))
            case Project(columns):
                return Project(tuple(_rewritten(value, rewrite) for value in columns))
            case _:
                return one

    def plant(program: Program) -> Program:
        pipelines = tuple(replace(p, steps=tuple(map(step, p.steps))) for p in program.pipelines)
        return replace(program, pipelines=pipelines)

    return plant


def _sinks(rewrite: Callable[[Sink], Sink]) -> Plant:
    """Return what rewrites the sinks."""

    def plant(program: Program) -> Program:
        pipelines = tuple(replace(p, sink=rewrite(p.sink)) for p in program.pipelines)
        return replace(program, pipelines=pipelines)

    return plant


def _renamed(**names: str) -> Plant:
    """Return what calls another primitive in the place of one; ``__`` in a name is a dot."""
    others = {name.replace("__", "."): other for name, other in names.items()}
    return _calls(lambda call: replace(call, op=others.get(call.op, call.op)))


def _instead(op: str, place: int, test: Callable[[Call], bool] = lambda _: True) -> Plant:
    """Return what takes an argument of a primitive for its result."""
    return _calls(lambda call: call.args[place] if call.op == op and test(call) else call)


def _mentions(value: Value, *ops: str) -> bool:
    if not isinstance(value, Call):
        return False
    return value.op in ops or any(_mentions(arg, *ops) for arg in value.args)


def _is_null(value: Value) -> bool:
    return isinstance(value, Call) and value.op == "null"


def _compares(value: Value, op: str) -> bool:
    return isinstance(value, Call) and value.op == op


def _kind(old: str, new: str) -> Plant:
    """Return what aggregates by another kind."""

    def change(sink: Sink) -> Sink:
        if not isinstance(sink, Group):
            return sink
        aggregates = tuple(replace(a, kind=new) if a.kind == old else a for a in sink.aggregates)
        return replace(sink, aggregates=aggregates)

    return _sinks(change)


def _ddof(sink: Sink) -> Sink:
    if not isinstance(sink, Group):
        return sink
    return replace(
        sink,
        aggregates=tuple(
            replace(a, options=(1,)) if a.kind in ("std", "var") else a for a in sink.aggregates
        ),
    )


def _interpolation(sink: Sink) -> Sink:
    if not isinstance(sink, Group):
        return sink
    return replace(
        sink,
        aggregates=tuple(
            replace(a, options=(a.options[0], "linear")) if a.kind == "quantile" else a
            for a in sink.aggregates
        ),
    )


def _nulls_with_values(sink: Sink) -> Sink:
    """Turn the places of nulls round where a sort turns downwards."""
    if not isinstance(sink, Sort):
        return sink
    keys = tuple(replace(k, nulls_first=k.nulls_first != k.descending) for k in sink.keys)
    return replace(sink, keys=keys)


def _any_order(sink: Sink) -> Sink:
    match sink:
        case Group() | Distinct() | Hold():
            return replace(sink, in_order=False)
        case _:
            return sink


def _from_the_start(sink: Sink) -> Sink:
    if isinstance(sink, Sort | Hold) and sink.range is not None:
        return replace(sink, range=replace(sink.range, offset=max(0, sink.range.offset)))
    return sink


def _wide_rounding(call: Call) -> Value:
    return Call("round", call.args, call.type, (0, "half_up")) if call.op == "rint" else call


def _cut_digits(call: Call) -> Value:
    return Call("cast", call.args, call.type) if call.op == "round_decimal" else call


def _away_from_zero(call: Call) -> Value:
    if call.op != "round_decimal":
        return call
    return replace(call, options=(call.options[0], "half_up"))


def _inner_for_left(program: Program) -> Program:
    def steps(pipeline: Pipeline) -> tuple[Step, ...]:
        return tuple(
            replace(s, kind="inner") if isinstance(s, Probe) and s.kind == "left" else s
            for s in pipeline.steps
        )

    return replace(program, pipelines=tuple(replace(p, steps=steps(p)) for p in program.pipelines))


ERRORS: Mapping[str, Plant] = {
    "NaN compares as IEEE has it": lambda program: _instead(
        "null_logical_and",
        0,
        lambda call: _mentions(call.args[1], "is_nan") and not _mentions(call.args[0], "is_nan"),
    )(_instead("null_logical_or", 0, lambda call: _mentions(call.args[1], "is_nan"))(program)),
    "extremes see NaN": _instead("nans_to_nulls", 0),
    "nulls match nulls": _sinks(
        lambda sink: replace(sink, nulls_equal=not sink.nulls_equal) if isinstance(sink, Build) else sink
    ),
    "a sum of nothing is null": _instead("replace_nulls", 0),
    "null is no value of its own": _kind("nunique", "nunique_valid"),
    "null counts": _kind("count_valid", "count_all"),
    "one degree of freedom": _sinks(_ddof),
    "quantiles between values": _sinks(_interpolation),
    "division by zero": _instead("copy_if_else", 2, lambda call: _is_null(call.args[1])),
    "quotients cut off": _renamed(floor_div="div"),
    "remainders of the dividend's sign": _renamed(pymod="mod"),
    "casts that do not fit": _instead(
        "copy_if_else", 1, lambda call: _is_null(call.args[2]) and _mentions(call.args[1], "cast")
    ),
    "a condition that is left out": _instead("copy_if_else", 1, lambda call: _is_null(call.args[2])),
    "half is more": _calls(_wide_rounding),
    "decimals are cut off": _calls(_cut_digits),
    "half a unit goes up": _calls(_away_from_zero),
    "null and false is null": _renamed(null_logical_and="bitwise_and"),
    "null or true is null": _renamed(null_logical_or="bitwise_or"),
    "null equals nothing": _renamed(null_equals="equal", null_not_equals="not_equal"),
    "no order of groups and rows": _sinks(_any_order),
    "nulls move with the direction": _sinks(_nulls_with_values),
    "ties in any order": _sinks(lambda sink: replace(sink, stable=False) if isinstance(sink, Sort) else sink),
    "rows from the end counted from the start": _sinks(_from_the_start),
    "any of several rows": _sinks(
        lambda sink: replace(sink, keep="any") if isinstance(sink, Distinct) and sink.keep != "none" else sink
    ),
    "bytes for characters": _renamed(str__length="str.bytes"),
    "white space of ASCII": _calls(
        lambda call: replace(call, options=(call.options[0], "")) if call.op == "str.strip" else call
    ),
    "rows without a match are lost": _inner_for_left,
    "first for last": _kind("last", "first"),
    "casts left out": _instead("cast", 0),
    "set without its nulls": _instead("replace_nulls", 0, lambda call: _compares(call.args[0], "contains")),
    "months are as long as years are": _calls(
        lambda call: replace(call, options=("day",)) if call.op == "dt.component" else call
    ),
    "constants as columns": _calls(
        lambda call: (
            replace(call, args=call.args[::-1])
            if len(call.args) == 2
            and isinstance(call.args[1], Constant)
            and call.op in ("sub", "less", "pymod")
            else call
        )
    ),
}
"""By what is wrong."""
