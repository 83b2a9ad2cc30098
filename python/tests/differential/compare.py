"""Compares what the ranks gave with what Polars gives, as tightly as Polars promises it."""

from __future__ import annotations

import enum
import math
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from differential.cases import Case, build, evaluate, variables_of
from differential.edits import named_expressions, with_magnitudes, without_expression
from differential.ranks import RankEnd
from differential.relation import Line, State

__all__ = ["Finding", "Kind", "Reference", "judge"]


class Kind(enum.StrEnum):
    """What may be wrong."""

    ROWS = "wrong rows"
    ORDER = "wrong order"
    SCHEMA = "wrong schema"
    WE_RAISE = "we raise where Polars answers"
    WE_ANSWER = "we answer where Polars raises"
    ERROR_TYPE = "wrong type of error"
    UNEVEN = "some ranks return, others raise"
    HANG = "hang"
    CRASH = "crash"
    UNSTABLE = "Polars' engines disagree, and we with both"


@dataclass(frozen=True)
class Finding:
    """A difference."""

    kind: Kind
    detail: str


@dataclass(frozen=True)
class Answer:
    """What an engine of Polars gives: a frame or an error."""

    frame: pl.DataFrame | None = None
    error: BaseException | None = None


class Reference:
    """What Polars' engines give; each is asked once, when it is needed."""

    def __init__(self, case: Case, folder: Path) -> None:
        self._case = case
        self._folder = folder
        self._answers: dict[str, Answer] = {}

    def without(self, optimization: str) -> Answer:
        """Return what Polars gives without one of its optimisations.

        Which errors of rows and columns that nobody reads show themselves depends on these, and Polars promises none.
        Without ``comm_subplan_elim``, equal parts are computed each by itself: the columns of each are then pruned by
        what its own user reads, and of a part that is only counted one column is kept, which may be one with an error.
        Without ``slice_pushdown`` and ``projection_pushdown``, rows and columns of files are read that nobody needs.
        """
        other = replace(self._case, flags=(*self._case.flags, optimization))
        return Reference(other, self._folder).answer("streaming")

    def unsorted(self) -> Answer:
        """Return what Polars gives without the steps that only sort: what fails in one whose order nobody sees is no
        error of the query."""
        lines = [replace(line, text=_SORT.sub(r"\1", line.text)) for line in self._case.lines]
        return self._of_lines(lines)

    def _of_lines(self, lines: Sequence[Line]) -> Answer:
        return Reference(replace(self._case, lines=list(lines)), self._folder).answer("streaming")

    def without_an_expression(self) -> Iterator[Answer]:
        """Yield what Polars gives with null in place of one of the query's named expressions: of one whose values
        nobody needs, the answer. Whether an error in it is one of the query depends on Polars' optimisations."""
        lines = self._case.lines
        for place, name in named_expressions(lines):
            yield self._of_lines(without_expression(lines, place, name))

    def errors_of_steps(self) -> Iterator[BaseException]:
        """Yield what Polars raises when the query ends at an earlier one of its lines, of which it then gives all
        columns."""
        lines = self._case.lines
        for end in range(1, len(lines)):
            error = self._of_lines(lines[:end]).error
            if error is not None:
                yield error

    def rounding(self) -> float:
        """Return how far a standard deviation or a variance may be off, because the values that it is of have only as
        many digits as a float: those of numbers near 2**32 that are 1 apart differ in the eighth digit by the order in
        which they are added up."""
        lines = with_magnitudes(self._case.lines)
        frame = None if lines is None else self._of_lines(lines).frame
        if frame is None or not frame.height:
            return 0.0
        largest = frame.select(pl.selectors.float()).fill_nan(None).max().row(0)
        finite = [value for value in largest if value is not None and math.isfinite(value)]
        return 4 * sys.float_info.epsilon * max(finite, default=0.0)

    def of_one_row(self) -> Answer:
        """Return what Polars gives over tables of one row of nulls: what is wrong with the query whatever its rows."""
        tables = [
            replace(table, kind="frame", frame=table.frame.clear(1), cuts=(0, 1), options={})
            for table in self._case.tables
        ]
        sources = {table.name: table.text() for table in tables}
        lines = [
            line if line.inputs else replace(line, text=sources.get(line.target, line.text))
            for line in self._case.lines
        ]
        return Reference(replace(self._case, tables=tables, lines=lines), self._folder).answer("streaming")

    def without_odd_column(self, name: str) -> Answer:
        """Return what Polars gives if all files are alike and a column of them is null: of one that is not read, the
        answer. Whether its type is an error depends on Polars' optimisations."""
        folder = self._folder / "alike"
        folder.mkdir(exist_ok=True)
        tables = []
        for table in self._case.tables:
            options = {key: value for key, value in table.options.items() if key != "odd"}
            frame = table.frame
            if "odd" in table.options and name in frame.columns:
                scan = evaluate(table.text(), variables_of([table], self._folder, None))
                planned = scan.collect_schema().get(name, frame.schema[name])
                frame = frame.with_columns(pl.lit(None, dtype=planned).alias(name))
            tables.append(replace(table, frame=frame, options=options))
            tables[-1].write(folder)
        return Reference(replace(self._case, tables=tables), folder).answer("streaming")

    def answer(self, engine: str) -> Answer:
        """Return what ``engine`` gives; a name behind a colon asks it again."""
        if engine not in self._answers:
            try:
                lf = build(self._case, self._folder, None)
                name = engine.split(":")[0]
                frame = lf.collect(engine=name, optimizations=self._case.optimizations())  # type: ignore[call-overload]
                self._answers[engine] = Answer(frame=frame)
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt | SystemExit):
                    raise
                self._answers[engine] = Answer(error=error)
        return self._answers[engine]


ENGINES = ("streaming", "in-memory")
_SORT = re.compile(r"^(\w+)\.sort\(.*\)$")


def judge(case: Case, reference: Reference, ends: Sequence[RankEnd]) -> Finding | None:
    """Return what is wrong with what the ranks gave, or ``None``."""
    errors = [end.error for end in ends if end.error is not None]
    if errors:
        return _judge_errors(case, ends, reference)
    frames = [end.frame for end in ends if end.frame is not None]
    first: Finding | None = None
    for engine in ENGINES:
        answer = reference.answer(engine)
        if answer.frame is None:
            if _is_panic(answer.error):
                return None  # a fault of Polars
            if case.may_skip_files():
                return None
            first = first or Finding(Kind.WE_ANSWER, f"{type(answer.error).__name__}: {_line(answer.error)}")
            continue
        if _has_a_name_twice(answer.frame):
            return None
        found = _difference(answer.frame, frames, case.state)
        if found is not None and found.kind == Kind.ROWS and (rounding := reference.rounding()) > 0:
            found = _difference(answer.frame, frames, case.state, rounding)
        if found is None:
            return None
        first = first or found
    assert first is not None
    if first.kind == Kind.WE_ANSWER:
        odd = re.search(r"data type mismatch for column (\w+)", first.detail) if case.has_odd_files else None
        if odd is not None:
            unread = reference.without_odd_column(odd[1])
            if unread.frame is not None and _difference(unread.frame, frames, case.state) is None:
                return None
        for other in (reference.without("comm_subplan_elim"), reference.unsorted()):
            if other.frame is not None:
                return _difference(other.frame, frames, case.state)
        for other in reference.without_an_expression():
            if other.frame is None:
                continue
            if _difference(other.frame, frames, case.state) is None or _have_no_rows(other.frame, *frames):
                return None
        return first
    if any("maintain_order" in line.text for line in case.lines):
        # Polars forgets the order of a join where only a slice needs it that it pushes into the join.
        in_order = reference.without("check_order_observe").frame
        if in_order is not None and _difference(in_order, frames, case.state) is None:
            return None
    streaming, memory = (reference.answer(engine) for engine in ENGINES)
    if streaming.frame is not None and memory.frame is not None:
        own = _difference(streaming.frame, [memory.frame], case.state)
        again = reference.answer("streaming:again").frame
        if own is None and again is not None:
            own = _difference(streaming.frame, [again], case.state)
        if own is not None:
            return Finding(Kind.UNSTABLE, f"{first.kind}: {first.detail}; Polars: {own.detail}")
    elif streaming.error is None or memory.error is None:
        answered = streaming if streaming.frame is not None else memory
        assert answered.frame is not None
        found = _difference(answered.frame, frames, case.state)
        return Finding(Kind.UNSTABLE, f"one engine of Polars raises, of the other we differ: {found}")
    return first


def _have_no_rows(*frames: pl.DataFrame) -> bool:
    """Whether no row is left of those in which an expression was wrong; the columns of the frames have one type or
    another."""
    return not any(frame.height for frame in frames) and len({tuple(frame.columns) for frame in frames}) == 1


def _line(error: BaseException | None) -> str:
    lines = str(error).splitlines()
    return lines[0][:160] if lines else ""


def _is_panic(error: BaseException | None) -> bool:
    return isinstance(error, pl.exceptions.PanicException)


def _has_a_name_twice(frame: pl.DataFrame) -> bool:
    """Whether it shows a fault of Polars, of time windows whose column an aggregate is named after."""
    return len(set(frame.columns)) < frame.width


def _judge_errors(case: Case, ends: Sequence[RankEnd], reference: Reference) -> Finding | None:
    own = [end.error for end in ends if end.error is not None and not end.is_echo] or [
        end.error for end in ends if end.error is not None
    ]
    ours = own[0]
    assert ours is not None
    answers = [reference.answer(engine) for engine in ENGINES]
    if any(answer.frame is not None and _has_a_name_twice(answer.frame) for answer in answers):
        return None
    raised = [answer.error for answer in answers if answer.error is not None]
    text = f"{type(ours).__name__}: {_line(ours)}"
    if any(map(_is_panic, raised)):
        return None  # a fault of Polars
    if not raised:
        # Of Arrow IPC files that a pattern names, one column is read where Polars reads none.
        of_ipc = any(table.kind == "ipc" and "odd" in table.options for table in case.tables)
        if of_ipc and isinstance(ours, pl.exceptions.SchemaError):
            return None
        if type(reference.without("comm_subplan_elim").error) is type(ours):
            return None
        if case.may_have_unread_errors() and any(
            type(reference.without(name).error) is type(ours)
            for name in ("slice_pushdown", "projection_pushdown")
        ):
            return None
        if "projection_pushdown" in case.flags and any(
            type(error) is type(ours) for error in reference.errors_of_steps()
        ):
            return None  # the query asks for columns that nobody reads, and Polars leaves out some of them
        return Finding(Kind.WE_RAISE, text)
    schema_errors = (pl.exceptions.SchemaError, pl.exceptions.ColumnNotFoundError)
    if case.has_odd_files and isinstance(ours, schema_errors) and isinstance(raised[0], schema_errors):
        return None  # which of a file's differences is met first
    if sum("odd" in table.options for table in case.tables) > 1 and isinstance(
        ours, pl.exceptions.PolarsError
    ):
        return None  # which of two files that Polars refuses is met first
    if _is_panic(ours):
        return None  # of a query that is wrong, Polars raises or panics by how its rows are divided
    if not any(type(error) is type(other) for error in own for other in raised):
        if type(reference.of_one_row().error) is type(ours):
            return None  # it has two errors: Polars does not say which of them comes first
        if any(type(other.error) is type(ours) for other in reference.without_an_expression()):
            return None  # the same: without the one, Polars raises the other
        return Finding(Kind.ERROR_TYPE, f"{text}; Polars: {type(raised[0]).__name__}: {_line(raised[0])}")
    # Where the last step is left to a reader, what fails in it on one rank need not fail on another.
    if case.goes_to in ("answer", "together") and any(end.error is None for end in ends):
        return Finding(Kind.UNEVEN, text)
    return None


def _difference(
    expected: pl.DataFrame, parts: Sequence[pl.DataFrame], state: State, rounding: float = 0.0
) -> Finding | None:
    """Return how the parts differ; floats may differ by ``rounding``, and otherwise in their last digits."""
    for number, part in enumerate(parts):
        if list(part.schema.items()) != list(expected.schema.items()):
            return Finding(Kind.SCHEMA, f"rank {number} has {_types(part, expected)}")
    actual = pl.concat(parts) if expected.width else None
    if actual is None:
        height = sum(part.height for part in parts)
        return (
            None
            if height == expected.height
            else Finding(Kind.ROWS, f"{height} rows, Polars {expected.height}")
        )
    if actual.height != expected.height:
        return Finding(Kind.ROWS, f"{actual.height} rows, Polars {expected.height}")
    if actual.equals(expected):
        return None
    rows, wanted = _Rows(actual, rounding), _Rows(expected, rounding)
    if state.order.total:
        if rows.equal(wanted):
            return None
        same_bag = rows.equal_as_bag(wanted)
        return Finding(Kind.ORDER if same_bag else Kind.ROWS, rows.first_difference(wanted))
    if not rows.equal_as_bag(wanted):
        return Finding(Kind.ROWS, rows.first_difference_of_bags(wanted))
    if state.order.columns:
        names = list(state.order.columns)
        own, theirs = _Rows(actual.select(names), rounding), _Rows(expected.select(names), rounding)
        if not own.equal(theirs):
            return Finding(Kind.ORDER, f"by {names}: {own.first_difference(theirs)}")
    return None


def _types(part: pl.DataFrame, expected: pl.DataFrame) -> str:
    """Return the columns that differ, or all if their names do."""
    mine, theirs = dict(part.schema), dict(expected.schema)
    if list(mine) == list(theirs):
        differ = [name for name in mine if mine[name] != theirs[name]]
        mine, theirs = ({name: types[name] for name in differ} for types in (mine, theirs))
    return f"{str(mine)[:300]}, Polars {str(theirs)[:300]}"


class _Rows:
    """Rows as Python values: for each what must be the same, and the floats that may differ in their last digits."""

    def __init__(self, frame: pl.DataFrame, rounding: float) -> None:
        self._rounding = rounding
        tolerance = {pl.Float32: 2e-5, pl.Float16: 2e-2}
        self._tolerance = max((tolerance.get(t.base_type(), 1e-8) for t in frame.dtypes), default=1e-8)
        if any("Float32" in str(t) for t in frame.dtypes):
            self._tolerance = max(self._tolerance, 2e-5)
        if any("Float16" in str(t) for t in frame.dtypes):
            self._tolerance = max(self._tolerance, 2e-2)
        self.rows = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            raw = frame.rows()
        self._scale = 0.0
        for row in raw:
            floats: list[float] = []
            exact = _exact(row, floats)
            self._scale = max(self._scale, max(map(abs, floats), default=0.0))
            self.rows.append((exact, floats))
        self.raw = raw

    def _close(self, mine: Sequence[float], other: Sequence[float], scale: float) -> bool:
        bound = self._tolerance
        return all(
            abs(a - b) <= max(bound * max(abs(a), abs(b), 1e-3 * scale, 1e-6), self._rounding)
            for a, b in zip(mine, other, strict=True)
        )

    def equal(self, other: _Rows) -> bool:
        """Whether the rows are the same, one by one."""
        scale = max(self._scale, other._scale)
        return all(
            a[0] == b[0] and self._close(a[1], b[1], scale)
            for a, b in zip(self.rows, other.rows, strict=True)
        )

    def _sorted(self) -> list[tuple[str, list[float]]]:
        return sorted(self.rows, key=lambda row: (row[0], [_rounded(x) for x in row[1]], row[1]))

    def equal_as_bag(self, other: _Rows) -> bool:
        """Whether the rows are the same in some order."""
        scale = max(self._scale, other._scale)
        return all(
            a[0] == b[0] and self._close(a[1], b[1], scale)
            for a, b in zip(self._sorted(), other._sorted(), strict=True)
        )

    def first_difference(self, other: _Rows) -> str:
        """Return the first row that differs."""
        scale = max(self._scale, other._scale)
        for number, (a, b) in enumerate(zip(self.rows, other.rows, strict=True)):
            if a[0] != b[0] or not self._close(a[1], b[1], scale):
                return f"row {number}: {self.raw[number]!r:.150}, Polars {other.raw[number]!r:.150}"
        return "?"

    def first_difference_of_bags(self, other: _Rows) -> str:
        """Return a row that one has and the other has not."""
        mine, theirs = self._sorted(), other._sorted()
        for a, b in zip(mine, theirs, strict=True):
            if a[0] != b[0] or not self._close(a[1], b[1], 1.0):
                return f"{a!r:.150}, Polars {b!r:.150}"
        return "?"


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


def _exact(value: object, floats: list[float]) -> str:
    """Return the text of a value in which floats are places, and add these to ``floats``."""
    if isinstance(value, float):
        if math.isfinite(value):
            floats.append(value + 0.0)
            return "f"
        return repr(value)
    if isinstance(value, tuple | list):
        return "[" + ",".join(_exact(v, floats) for v in value) + "]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{k!r}:{_exact(v, floats)}" for k, v in value.items()) + "}"
    if isinstance(value, pl.Series):
        return _exact(value.to_list(), floats)
    return repr(value)
