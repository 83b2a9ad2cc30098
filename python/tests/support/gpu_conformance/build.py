"""Programs of one call, or of one operator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from cudf_polars.execute.gpu.program import (
    Build,
    Call,
    Column,
    Constant,
    CudfType,
    FromInput,
    FromJoin,
    FromPipeline,
    Group,
    Hold,
    Pipeline,
    Probe,
    Program,
    Project,
    Sink,
    Step,
    Value,
)
from support.gpu_conformance.samples import dtype_of, type_of

__all__ = ["Case", "Scalar", "call_case", "pipeline", "program", "sink_case", "source"]


@dataclass(frozen=True)
class Case:
    """A program whose answer libcudf and its emulator must agree on.

    Attributes
    ----------
    name
        What it is about.
    program, inputs
        What runs.
    ordered
        The rows of the answer have an order.
    """

    name: str
    program: Program
    inputs: tuple[pl.DataFrame, ...]
    ordered: bool = True


@dataclass(frozen=True)
class Scalar:
    """An argument that is a constant; of several rows, a set."""

    series: pl.Series


def _types(frame: pl.DataFrame) -> tuple[CudfType, ...]:
    return tuple(type_of(dtype) for dtype in frame.dtypes)


def source(frame: pl.DataFrame, number: int = 0) -> FromInput:
    """Return the source that reads an input."""
    return FromInput(number, _types(frame))


def pipeline(
    given: FromInput | FromPipeline | FromJoin, steps: Sequence[Step], sink: Sink, types: Sequence[CudfType]
) -> Pipeline:
    """Return a pipeline."""
    return Pipeline(given, tuple(steps), sink, tuple(types))


def program(pipelines: Sequence[Pipeline], constants: Sequence[pl.Series] = ()) -> Program:
    """Return a program whose columns are called by their places."""
    types = pipelines[-1].types
    return Program(tuple(pipelines), tuple(constants), {str(i): dtype_of(t) for i, t in enumerate(types)})


def unnamed(columns: Sequence[pl.Series]) -> pl.DataFrame:
    """Return columns as a frame."""
    return pl.DataFrame([column.alias(str(place)) for place, column in enumerate(columns)])


def call_case(
    name: str,
    op: str,
    args: Sequence[pl.Series | Scalar | tuple[pl.Series, CudfType]],
    type: CudfType,
    options: tuple[int | float | str, ...] = (),
    *,
    returned: CudfType | None = None,
) -> Case:
    """Return a case of one call of a primitive.

    Parameters
    ----------
    args
        Columns, constants, or columns that are cast first.
    returned
        What the result is cast to, if it cannot come back as it is.
    """
    columns: list[pl.Series] = []
    constants: list[pl.Series] = []
    values: list[Value] = []
    for arg in args:
        match arg:
            case Scalar(series):
                values.append(Constant(len(constants), type_of(series.dtype)))
                constants.append(series)
            case (series, wanted):
                has = Column(len(columns), type_of(series.dtype))
                values.append(has if has.type == wanted else Call("cast", (has,), wanted))
                columns.append(series)
            case series:
                values.append(Column(len(columns), type_of(series.dtype)))
                columns.append(series)
    frame = unnamed(columns or [pl.Series([1, 2, None], dtype=pl.Int64)])
    made: Value = Call(op, tuple(values), type, options)
    if returned is not None:
        made = Call("cast", (made,), returned)
    steps = (Project((made,)),)
    one = pipeline(source(frame), steps, Hold(in_order=True), (made.type,))
    return Case(f"{op} {name}".strip(), program([one], constants), (frame,))


def sink_case(
    name: str,
    frame: pl.DataFrame,
    sink: Sink,
    types: Sequence[CudfType] | None = None,
    *,
    ordered: bool,
    steps: Sequence[Step] = (),
) -> Case:
    """Return a case of one sink over an input."""
    one = pipeline(source(frame), steps, sink, _types(frame) if types is None else types)
    return Case(name, program([one]), (frame,), ordered)


def group_case(name: str, frame: pl.DataFrame, group: Group, *, ordered: bool = False) -> Case:
    """Return a case of a group-by."""
    keys = [type_of(frame.dtypes[key]) for key in group.keys]
    return sink_case(name, frame, group, [*keys, *(a.type for a in group.aggregates)], ordered=ordered)


def probe_case(
    name: str, kind: str, left: pl.DataFrame, right: pl.DataFrame, keys: int, *, nulls_equal: bool
) -> Case:
    """Return a case of a join: the first columns of both sides are the keys."""
    places = tuple(range(keys))
    payload = tuple(range(right.width)) if kind in ("inner", "left") else ()
    right_types, left_types = _types(right), _types(left)
    built = pipeline(source(right, 1), (), Build(places, nulls_equal), right_types)
    types = (*left_types, *(right_types[place] for place in payload))
    probed = pipeline(source(left), (Probe(0, kind, places, payload),), Hold(), types)
    return Case(name, program([built, probed]), (left, right), ordered=False)


def whole_join_case(
    name: str, kind: str, left: pl.DataFrame, right: pl.DataFrame, keys: int, *, nulls_equal: bool
) -> Case:
    """Return a case of a join that takes both sides whole."""
    places = tuple(range(keys))
    sides = [
        pipeline(source(frame, number), (), Hold(in_order=True), _types(frame))
        for number, frame in enumerate((left, right))
    ]
    join = FromJoin(kind, 0, 1, places, places, nulls_equal)
    joined = pipeline(join, (), Hold(), (*_types(left), *_types(right)))
    return Case(name, program([*sides, joined]), (left, right), ordered=False)
