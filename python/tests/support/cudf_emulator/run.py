"""Runs programs: pipelines, sources and steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from cudf_polars.execute.gpu.program import (
    Build,
    Constant,
    CudfType,
    Filter,
    FromInput,
    FromJoin,
    FromPipeline,
    ParquetFile,
    ParquetScan,
    Pipeline,
    Probe,
    Program,
    Project,
    Source,
    TypeId,
)
from cudf_polars.execute.streams import conform
from support.cudf_emulator.casts import cast
from support.cudf_emulator.columns import (
    Values,
    column_of,
    concatenate,
    empty,
    is_decimal,
    poisons,
    series_of,
)
from support.cudf_emulator.errors import ProgramError, refuse
from support.cudf_emulator.evaluate import Evaluator
from support.cudf_emulator.operators import Table, finish, join_whole, probe

__all__ = ["run"]


def run(
    program: Program, inputs: Sequence[pl.DataFrame] = (), *, chunk_rows: int | None = None, seed: int = 0
) -> pl.DataFrame:
    """Run a program as the operators over libcudf run it, on the CPU.

    Parameters
    ----------
    chunk_rows
        Sources give chunks of so many rows; by default one chunk of all.
    seed
        Orders that libcudf leaves open are random, and follow from this number; what it leaves undefined is another
        value for odd numbers.

    Returns
    -------
    DataFrame
        The result with the types of the program's schema.

    Raises
    ------
    ProgramError
        If the program is not one that libcudf runs.
    """
    token = poisons.set(seed % 2)
    try:
        return _Runner(program, inputs, chunk_rows, seed).run()
    finally:
        poisons.reset(token)


@dataclass(frozen=True)
class _Result:
    columns: Table
    rows: int


class _Runner:
    def __init__(
        self, program: Program, inputs: Sequence[pl.DataFrame], chunk_rows: int | None, seed: int
    ) -> None:
        self._program = program
        self._inputs = inputs
        self._chunk_rows = chunk_rows
        self._random = np.random.default_rng(seed)
        self._results: list[_Result] = []
        self._known: dict[Constant, Values] = {}

    def run(self) -> pl.DataFrame:
        for number, pipeline in enumerate(self._program.pipelines):
            try:
                self._results.append(self._pipeline(pipeline))
            except ProgramError as error:
                raise ProgramError(f"pipeline {number}: {error}") from None
        last = self._results[-1]
        schema = self._program.schema
        if len(schema) != len(last.columns):
            refuse(f"the result has {len(last.columns)} columns, and its schema {len(schema)}")
        series = [series_of(c).alias(name) for c, name in zip(last.columns, schema, strict=True)]
        rows = pl.DataFrame(series)
        rows.columns = list(schema)  # Polars gives a column without a name another one
        return conform(rows, schema)

    def _pipeline(self, pipeline: Pipeline) -> _Result:
        whole = self._source(pipeline.source)
        chunks = [self._steps(pipeline, chunk) for chunk in self._chunks(whole)]
        columns = [concatenate(parts) for parts in zip(*(c.columns for c in chunks), strict=True)]
        rows = sum(c.rows for c in chunks)
        done = finish(pipeline.sink, columns, rows, self._random)
        types = tuple(column.type for column in done)
        if types != pipeline.types:
            refuse(f"the sink gives {types}, and the program says {pipeline.types}")
        return _Result(done, len(done[0]) if done else rows)

    def _chunks(self, whole: _Result) -> list[_Result]:
        if self._chunk_rows is None or whole.rows <= self._chunk_rows:
            return [whole]
        step = self._chunk_rows
        return [
            _Result([c.slice(at, at + step) for c in whole.columns], min(step, whole.rows - at))
            for at in range(0, whole.rows, step)
        ]

    # --- sources ----------------------------------------------------------------------

    def _source(self, source: Source) -> _Result:
        match source:
            case ParquetScan():
                return _scanned(source)
            case FromInput(number, types):
                frame = self._inputs[number]
                if len(types) != frame.width:
                    refuse(f"input {number} has {frame.width} columns, not {len(types)}")
                pairs = zip(frame.get_columns(), types, strict=True)
                return _Result([column_of(series, t) for series, t in pairs], frame.height)
            case FromPipeline(number):
                return self._earlier(number)
            case FromJoin(_, left, right):
                sides = self._earlier(left), self._earlier(right)
                a, b = sides
                return _Result(*join_whole(source, a.columns, a.rows, b.columns, b.rows, self._random))

    def _earlier(self, number: int) -> _Result:
        if not 0 <= number < len(self._results):
            refuse(f"pipeline {number} does not come before this one")
        return self._results[number]

    # --- steps ----------------------------------------------------------------------

    def _steps(self, pipeline: Pipeline, chunk: _Result) -> _Result:
        columns, rows = chunk.columns, chunk.rows
        for step in pipeline.steps:
            evaluator = Evaluator(columns, self._constant, rows)
            match step:
                case Filter(value):
                    mask = evaluator.column(value)
                    if mask.type.id is not TypeId.BOOL8:
                        refuse(f"a filter by {mask.type.id.name}")
                    kept = mask.data & mask.valid
                    columns, rows = [c.keep(kept) for c in columns], int(kept.sum())
                case Project(values):
                    columns = [evaluator.column(value) for value in values]
                case Probe():
                    columns, rows = self._probe(step, columns, rows)
        return _Result(columns, rows)

    def _probe(self, step: Probe, columns: Table, rows: int) -> tuple[Table, int]:
        built = self._earlier(step.build)
        sink = self._program.pipelines[step.build].sink
        if not isinstance(sink, Build):
            refuse(f"pipeline {step.build} built nothing to probe")
        return probe(step, sink, built.columns, built.rows, columns, rows, self._random)

    def _constant(self, constant: Constant) -> Values:
        if not 0 <= constant.index < len(self._program.constants):
            refuse(f"there is no constant {constant.index}")
        if constant not in self._known:
            self._known[constant] = column_of(self._program.constants[constant.index], constant.type)
        return self._known[constant]


def _scanned(scan: ParquetScan) -> _Result:
    parts: list[Table] = []
    rows = 0
    for file in scan.files:
        frame = _file_rows(file, scan.columns)
        if missing := set(scan.columns) - set(frame.columns):
            refuse(f"the file {file.path} has no columns {sorted(missing)}")
        parts.append([_read(frame[name], t) for name, t in zip(scan.columns, scan.types, strict=True)])
        rows += frame.height
    if not parts:
        return _Result([empty(t) for t in scan.types], 0)
    return _Result([concatenate(columns) for columns in zip(*parts, strict=True)], rows)


def _file_rows(file: ParquetFile, columns: Sequence[str]) -> pl.DataFrame:
    try:
        reader = pq.ParquetFile(file.path)
    except pa.ArrowNotImplementedError:  # the file has integers of 128 bits, which nobody here asks for
        if file.row_groups is not None:
            raise
        return pl.read_parquet(file.path, columns=list(columns), hive_partitioning=False)
    groups = range(reader.num_row_groups) if file.row_groups is None else file.row_groups
    frame = pl.from_arrow(reader.read_row_groups(list(groups), columns=list(columns), use_threads=False))
    assert isinstance(frame, pl.DataFrame)
    return frame


_WIDENINGS: dict[TypeId, tuple[TypeId, ...]] = {
    TypeId.INT8: (TypeId.INT16, TypeId.INT32, TypeId.INT64),
    TypeId.INT16: (TypeId.INT32, TypeId.INT64),
    TypeId.INT32: (TypeId.INT64,),
    TypeId.FLOAT32: (TypeId.FLOAT64,),
}


def _read(series: pl.Series, type: CudfType) -> Values:
    """Return a column of a file as the program wants it, if that loses nothing."""
    if isinstance(series.dtype, pl.Decimal) and is_decimal(type):
        has = CudfType(type.id, -(series.dtype.scale or 0))
        return cast(column_of(series, has), type) if has.scale >= type.scale else column_of(series, type)
    try:
        return column_of(series, type)
    except TypeError:
        pass
    for narrow, wide in _WIDENINGS.items():
        if type.id in wide:
            try:
                return cast(column_of(series, CudfType(narrow)), type)
            except TypeError:
                continue
    refuse(f"the file's column {series.name!r} of {series.dtype} is not read as {type}")
