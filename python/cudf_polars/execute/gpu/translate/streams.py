"""Pipelines in the making."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import polars as pl

from cudf_polars.execute.gpu.program import (
    Call,
    Column,
    CudfType,
    Filter,
    FromPipeline,
    Hold,
    Pipeline,
    Probe,
    Project,
    Sink,
    Source,
    Step,
    Value,
)
from cudf_polars.execute.gpu.translate.typed import Typed, column

__all__ = ["Pipelines", "Stream"]


@dataclass
class Stream:
    """A pipeline that has no sink yet.

    Attributes
    ----------
    source, steps
        What it does so far.
    types
        The types of the columns that a chunk has now.
    columns
        The columns by name: each is one of the chunk's.
    rows
        How many rows it may give.
    table_rows
        How many there would be without filters; the part that is left tells how many rows a join keeps.
    one_row
        It gives exactly one row.
    """

    source: Source
    types: tuple[CudfType, ...]
    columns: dict[str, Typed]
    rows: float
    table_rows: float
    one_row: bool = False
    steps: list[Step] = field(default_factory=list)

    def project(self, values: Sequence[Typed]) -> list[int]:
        """Make ``values`` the columns of the chunk, equal ones once, and return their places; names are lost."""
        places: dict[Value, int] = {}
        for typed in values:
            places.setdefault(typed.value, len(places))
        self._become(tuple(places))
        return [places[typed.value] for typed in values]

    def give(self, values: Sequence[Typed]) -> None:
        """Make ``values`` the columns of the chunk, equal ones as often as they occur; names are lost."""
        self._become(tuple(typed.value for typed in values))

    def _become(self, wanted: tuple[Value, ...]) -> None:
        if wanted != tuple(Column(i, t) for i, t in enumerate(self.types)):
            last = self.steps[-1] if self.steps else None
            fused = _fused(last.columns, wanted) if isinstance(last, Project) else None
            if fused is None:
                self.steps.append(Project(wanted))
            else:
                self.steps[-1] = Project(fused)
            self.types = tuple(value.type for value in wanted)
        self.columns = {}

    def place(self, named: Mapping[str, Typed], more: Sequence[Typed] = ()) -> list[int]:
        """Make named values and ``more`` the columns of the chunk, and return the places of ``more``."""
        values = [*named.values(), *more] or [self.any_column()]
        places = self.project(values)
        self.columns = {
            name: column(place, typed) for (name, typed), place in zip(named.items(), places, strict=False)
        }
        return places[len(named) :]

    def select(self, named: Mapping[str, Typed]) -> None:
        """Make named values the columns; constants stay constants and take no place in the chunk."""
        constants = {name: typed for name, typed in named.items() if typed.literal is not None}
        self.place({name: typed for name, typed in named.items() if name not in constants})
        self.columns = {name: constants.get(name) or self.columns[name] for name in named}

    def keep(self, names: Iterable[str]) -> None:
        """Drop all columns but these."""
        wanted = set(names)
        self.select({name: typed for name, typed in self.columns.items() if name in wanted})

    def filter(self, mask: Typed, kept: float) -> None:
        """Keep the rows where ``mask`` is true, an estimated part of them."""
        self.steps.append(Filter(mask.value))
        self.rows *= kept
        self.one_row = False

    def any_column(self) -> Typed:
        """Return some column of the chunk, for what must have one."""
        for typed in self.columns.values():
            if isinstance(typed.value, Column):
                return typed
        return Typed(Column(0, self.types[0]), pl.Null())

    def probe(self, step: Probe, payload: Mapping[str, Typed]) -> None:
        """Join with what a pipeline built; ``payload`` has a name for each column of the step's."""
        self.steps.append(step)
        first = len(self.types)
        self.types += tuple(typed.type for typed in payload.values())
        for place, (name, typed) in enumerate(payload.items()):
            nullable = typed.nullable or step.kind == "left"
            self.columns[name] = replace(column(first + place, typed), nullable=nullable)
        self.one_row = False

    @property
    def held(self) -> int | None:
        """The pipeline whose result this is as it is, ``None`` if there is something to do yet."""
        return self.source.pipeline if isinstance(self.source, FromPipeline) and not self.steps else None


class Pipelines:
    """The pipelines of a program so far."""

    def __init__(self) -> None:
        self.done: list[Pipeline] = []

    def close(self, stream: Stream, sink: Sink, types: Sequence[CudfType] | None = None) -> int:
        """Give a stream its sink, and return the number of the pipeline."""
        types = stream.types if types is None else tuple(types)
        self.done.append(Pipeline(stream.source, tuple(stream.steps), sink, tuple(types)))
        return len(self.done) - 1

    def hold(self, stream: Stream) -> int:
        """Return the pipeline that holds the rows of a stream."""
        held = stream.held
        return self.close(stream, Hold(in_order=True)) if held is None else held

    def reopen(self, pipeline: int, stream: Stream) -> Stream:
        """Return a new stream of the rows that a pipeline holds, with the columns that ``stream`` had at its end."""
        return Stream(
            FromPipeline(pipeline),
            self.done[pipeline].types,
            dict(stream.columns),
            stream.rows,
            stream.table_rows,
            stream.one_row,
        )


def _fused(first: tuple[Value, ...], second: tuple[Value, ...]) -> tuple[Value, ...] | None:
    """Return one projection for two, unless it would compute something twice."""
    uses = [0] * len(first)

    def count(value: Value) -> None:
        match value:
            case Column(index, _):
                uses[index] += 1
            case Call(_, args):
                for arg in args:
                    count(arg)
            case _:
                pass

    def replaced(value: Value) -> Value:
        match value:
            case Column(index, _):
                return first[index]
            case Call(_, args):
                return replace(value, args=tuple(replaced(arg) for arg in args))
            case _:
                return value

    for value in second:
        count(value)
    if any(n > 1 and isinstance(value, Call) for n, value in zip(uses, first, strict=True)):
        return None
    return tuple(replaced(value) for value in second)
