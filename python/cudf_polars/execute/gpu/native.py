"""Hands a program to the operators: walks the dataclasses and calls the builder of ``rapidsmpf.compute``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from cudf_polars.execute.gpu.program import (
    Build,
    Call,
    Column,
    Constant,
    CudfType,
    Distinct,
    Filter,
    FromInput,
    FromJoin,
    FromPipeline,
    Group,
    Hold,
    ParquetScan,
    Pipeline,
    Probe,
    Program,
    Project,
    RowRange,
    Sort,
    Value,
)

if TYPE_CHECKING:
    from rapidsmpf.compute import ProgramBuilder

__all__ = ["build_program"]


def build_program(program: Program) -> ProgramBuilder:
    """Return the builder that holds ``program``, ready for ``Runtime.run``.

    Raises
    ------
    ValueError
        If the program is not sound.
    """
    return _Writer(program).write()


class _Writer:
    def __init__(self, program: Program) -> None:
        from rapidsmpf.compute import ProgramBuilder

        self._program = program
        self._builder = ProgramBuilder()
        self._numbers: dict[Value, int] = {}

    def write(self) -> ProgramBuilder:
        for constant in self._program.constants:
            self._builder.add_constant(pl.DataFrame([constant.alias("")]))
        for pipeline in self._program.pipelines:
            self._pipeline(pipeline)
        return self._builder

    def _pipeline(self, pipeline: Pipeline) -> None:
        builder = self._builder
        match pipeline.source:
            case ParquetScan(files, columns, types):
                for file in files:
                    # The path of a file in memory is of a class of its own.
                    builder.scan_file(
                        str(file.path), [] if file.row_groups is None else list(file.row_groups)
                    )
                for name, dtype in zip(columns, types, strict=True):
                    builder.scan_column(name, *_numbers_of(dtype))
                builder.from_scan()
            case FromInput(number, _):
                builder.from_input(number)
            case FromPipeline(number):
                builder.from_pipeline(number)
            case FromJoin(kind, left, right, left_keys, right_keys, nulls_equal):
                builder.from_join(kind, left, right, list(left_keys), list(right_keys), nulls_equal)
        for step in pipeline.steps:
            match step:
                case Filter(mask):
                    builder.filter(self._value(mask))
                case Project(values):
                    builder.project([self._value(value) for value in values])
                case Probe(build, kind, keys, payload):
                    builder.probe(build, kind, list(keys), list(payload))
        match pipeline.sink:
            case Build(keys, nulls_equal):
                builder.build(list(keys), nulls_equal)
            case Group(keys, aggregates, in_order):
                for aggregate in aggregates:
                    builder.aggregate(
                        aggregate.kind, aggregate.column, *_numbers_of(aggregate.type), aggregate.options
                    )
                builder.group(list(keys), in_order)
            case Sort(sort_keys, stable, rows):
                for key in sort_keys:
                    builder.sort_key(key.column, key.descending, key.nulls_first)
                self._range(rows)
                builder.sort(stable)
            case Distinct(keys, keep, in_order):
                builder.distinct(list(keys), keep, in_order)
            case Hold(in_order, rows):
                self._range(rows)
                builder.hold(in_order)
        for dtype in pipeline.types:
            builder.result_type(*_numbers_of(dtype))
        builder.end_pipeline()

    def _range(self, rows: RowRange | None) -> None:
        if rows is not None:
            self._builder.range(rows.offset, rows.length)

    def _value(self, root: Value) -> int:
        """Number an expression; equal ones are one."""
        stack: list[tuple[Value, bool]] = [(root, False)]
        while stack:
            value, ready = stack.pop()
            if value in self._numbers:
                continue
            match value:
                case Column(index, dtype):
                    self._numbers[value] = self._builder.column(index, *_numbers_of(dtype))
                case Constant(index, dtype):
                    self._numbers[value] = self._builder.constant(index, *_numbers_of(dtype))
                case Call(op, args, dtype, options):
                    if ready:
                        numbers = [self._numbers[arg] for arg in args]
                        self._numbers[value] = self._builder.call(op, numbers, *_numbers_of(dtype), options)
                    else:
                        stack.append((value, True))
                        stack.extend((arg, False) for arg in args)
        return self._numbers[root]


def _numbers_of(dtype: CudfType) -> tuple[int, int]:
    return int(dtype.id), dtype.scale
