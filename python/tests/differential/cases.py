"""A case: tables, a query over them, and ranks to run it on; all of it from a seed."""

from __future__ import annotations

import datetime as dt
import random
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from cudf_polars.execute.options import ExecutionOptions
from differential.relation import ANY_ORDER, TOTAL, Line, Relation, State
from differential.row_steps import many_functions
from differential.steps import STEPS
from differential.tables import Table, peek, random_table

__all__ = ["Case", "build", "case_in_tiny_blocks", "describe", "random_case"]

_NAMESPACE: Mapping[str, object] = {"pl": pl, "c": pl.col, "dt": dt, "D": Decimal}
_FLAGS = (
    "predicate_pushdown",
    "projection_pushdown",
    "slice_pushdown",
    "comm_subplan_elim",
    "comm_subexpr_elim",
    "simplify_expression",
    "cluster_with_columns",
    "collapse_joins",
    "check_order_observe",
)


@dataclass
class Case:
    """A query and where it runs.

    Attributes
    ----------
    lines
        Its steps, the last of which makes the answer.
    state
        What is promised of the answer.
    shipped
        Whether a client reads the query and cuts its frames, as Dask and Ray do; else each rank has rows of its own.
    loopback
        Whether the ranks exchange by the C++ library; else in Python.
    options
        What the planner decides by.
    flags
        Polars' optimisations that are off.
    budget
        Bytes of memory that a rank's rows may take before they are spilled; 0: as the library chooses.
    goes_to
        Who takes a rank's rows: ``"answer"``, the query's; ``"reader"``, which runs the last step, as those of
        ``collect_batches`` and sinks do; ``"file"``, an IPC file; ``"together"``, the query's, which is collected
        together with another one that counts the same rows.
    """

    seed: int
    tables: list[Table]
    lines: list[Line]
    state: State
    nranks: int
    shipped: bool
    loopback: bool
    options: ExecutionOptions
    flags: tuple[str, ...] = ()
    notes: list[str] = field(default_factory=list)
    budget: int = 0
    goes_to: str = "answer"

    def optimizations(self) -> pl.QueryOptFlags:
        """Return Polars' optimisations."""
        flags = pl.QueryOptFlags()
        for name in self.flags:
            if hasattr(flags, name):
                setattr(flags, name, False)
        return flags

    @property
    def has_odd_files(self) -> bool:
        """Whether it has a file that Polars refuses beside the others, where it reads what differs."""
        return any("odd" in table.options for table in self.tables)

    def may_have_unread_errors(self) -> bool:
        """Whether a file has what Polars refuses where it reads it; NDJSON has, whose types are those of one file."""
        return self.has_odd_files or any(
            table.kind == "ndjson" and not table.options.get("schema") for table in self.tables
        )

    def may_skip_files(self) -> bool:
        """Whether it has a file that Polars refuses, and a slice by which that file may not be read."""
        return self.may_have_unread_errors() and any(
            re.search(r"head|tail|slice|limit|gather|first|last|get\(|LIMIT", line.text, re.IGNORECASE)
            for line in self.lines
        )


_MOST_PARTS = 200
"""Into about how many parts the largest table of a case is divided in tiny blocks."""


def evaluate(text: str, variables: Mapping[str, object]) -> pl.LazyFrame:
    """Return the lazy frame of a line."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        value = eval(text, {**_NAMESPACE, **variables})
    assert isinstance(value, pl.LazyFrame)
    return value


def variables_of(tables: Sequence[Table], folder: Path, rank: int | None) -> dict[str, object]:
    """Return what the lines refer to; ``rank`` is ``None`` for all rows of all ranks."""
    found: dict[str, object] = {"folder": folder}
    for table in tables:
        found.update(table.variables(rank))
    return found


def build(case: Case, folder: Path, rank: int | None) -> pl.LazyFrame:
    """Return the query as ``rank`` has it, or over all rows; frames of its own, so that ranks share nothing."""
    variables = variables_of(case.tables, folder, rank)
    for line in case.lines:
        variables[line.target] = evaluate(line.text, variables)
    found = variables[case.lines[-1].target]
    assert isinstance(found, pl.LazyFrame)
    return found


def _base_state(table: Table) -> State:
    # An odd file may have nothing where the others have numbers.
    numbered = "srt" in table.frame.columns and "odd" not in table.options
    keys = frozenset([frozenset(["srt"])]) if numbered else frozenset()
    extra = table.options.get("extra", "")
    height = None if "n_rows" in extra else table.frame.height
    return State(TOTAL, keys, height=height, most=float(table.frame.height))


def _first_line(table: Table, rng: random.Random) -> Line:
    text, state = table.text(), _base_state(table)
    if table.kind == "frame" and rng.random() < 0.03:
        text = f"pl.LazyFrame(height={table.name}_rows.height)"
        state = replace(state, keys=frozenset())
    return Line(table.name, (), text, lambda _, __: state)


def _options(rng: random.Random) -> ExecutionOptions:
    apart = peek(rng)
    options = _limits(rng)
    if apart.random() < 0.15:
        options = replace(options, dynamic_planning=False)
    if apart.random() < 0.4:
        options = replace(options, filter_keys=apart.choice([0, 1, 1, 3]))
    if not options.partitions and apart.random() < 0.25:
        # Then tables and joins decide how many partitions there are, and on one rank whether there are any.
        options = replace(options, memory=apart.choice([20_000, 200_000]))
    return options


def _limits(rng: random.Random) -> ExecutionOptions:
    roll = rng.random()
    if roll < 0.35:
        return ExecutionOptions(fallback_mode="silent")
    if roll < 0.65:
        return replace(ExecutionOptions.tiny("silent"), partitions=rng.choice([1, 2, 3, 8]))
    return ExecutionOptions(
        fallback_mode="silent",
        broadcast_limit=rng.choice([1, 64, 1000, 20_000, 0]),
        small_limit=rng.choice([0, 100, 3000, 256 << 10]),
        read_everywhere_limit=rng.choice([0, 1500, 4000, 1 << 20]),
        head_limit=rng.choice([1, 4, 50, 100_000]),
        partitions=rng.choice([0, 1, 3]),
    )


def _runs(frame: pl.LazyFrame, text: str) -> bool:
    try:
        evaluate(f"frame.select({text})", {"frame": frame}).collect()
    except BaseException:  # Polars panics on some
        return False
    return True


class _Writer:
    """Writes the lines of a case."""

    def __init__(self, rng: random.Random, folder: Path) -> None:
        self.rng = rng
        self.folder = folder
        self.tables: list[Table] = []
        self.variables: dict[str, object] = {}
        self.lines: list[Line] = []
        self.relations: dict[str, Relation] = {}
        self.failed = False

    def add_table(self, table: Table) -> bool:
        """Add a table, and the line that reads it; returns whether it can be read."""
        table.write(self.folder)
        self.variables.update(variables_of([table], self.folder, None))
        if not self.add(_first_line(table, self.rng)):
            return False
        self.tables.append(table)
        return True

    def add(self, line: Line) -> bool:
        """Add a line, if it makes sense; a wrong query is kept now and then, and ends the case."""
        try:
            frame = evaluate(line.text, self.variables)
            schema = dict(frame.collect_schema())
        except (
            pl.exceptions.PolarsError,
            pl.exceptions.PanicException,
            TypeError,
            ValueError,
            OverflowError,
            NotImplementedError,
        ) as error:
            if self.rng.random() > 0.02 or not isinstance(error, pl.exceptions.PolarsError) or not self.lines:
                return False
            self.lines.append(line)
            self.failed = True
            return True
        state = line.rule([self.relations[name].state for name in line.inputs], schema)
        if state is None or state.most > 60_000:
            return False
        if len(schema) > 60:
            return False
        self.variables[line.target] = frame
        self.lines.append(line)
        self.relations[line.target] = Relation(line.target, schema, state, partial(_runs, frame))
        return True

    def step(self, number: int) -> bool:
        """Add a random step; the tables made last are used most."""
        rng = self.rng
        wide = [r for r in self.relations.values() if len(r.schema) > 20]
        if wide and number == 0 and rng.random() < 0.95 and (step := many_functions(rng, wide)) is not None:
            return self.add(Line("q0", step.inputs, step.text, step.rule))
        known = list(self.relations.values())
        recent = [r for r in known if r.name.startswith("q")]
        likely = recent[-1:] if recent and rng.random() < 0.75 else known
        maker = rng.choices(list(STEPS), list(STEPS.values()))[0]
        pool = likely if rng.random() < 0.6 else known
        if maker.__name__.endswith("_tables") and recent:
            # One side is what was made last.
            pool = [recent[-1], *known]
        step = maker(rng, pool if maker.__name__ != "lottery" else known)
        return step is not None and self.add(Line(f"q{number}", step.inputs, step.text, step.rule))


def random_case(seed: int, folder: Path, nranks: int | None = None) -> Case:
    """Return the case of a seed, on a number of ranks that is given or drawn; ``folder`` takes its files."""
    rng = random.Random(seed)
    drawn = rng.choices([1, 2, 3, 5], [8, 44, 30, 18])[0]
    nranks = drawn if nranks is None else nranks
    writer = _Writer(rng, folder)
    for number in range(rng.choice([1, 2, 2, 3])):
        # Some files cannot be read, such as an empty one of which the schema is inferred.
        while not writer.add_table(random_table(rng, f"t{number}", nranks)):
            pass
    tables = writer.tables
    count = rng.choices([1, 2, 3, 4, 5, 6], [2, 4, 4, 3, 2, 1])[0]
    attempts = done = 0
    while done < count and attempts < 60 and not writer.failed:
        attempts += 1
        done += writer.step(done)
    lines = _needed(writer.lines)
    state = State(ANY_ORDER) if writer.failed else writer.relations[lines[-1].target].state
    flags = tuple(rng.sample(_FLAGS, rng.choice([1, 2]))) if rng.random() < 0.12 else ()
    case = Case(
        seed, tables, lines, state, nranks, rng.random() < 0.25, rng.random() < 0.3, _options(rng), flags
    )
    # A scan of ours counts rows by their columns.
    if writer.failed or writer.relations[lines[-1].target].schema:
        case.goes_to = rng.choices(["answer", "reader", "file"], [6, 2, 1])[0]
        if case.goes_to == "answer" and not case.shipped and peek(rng).random() < 0.2:
            case.goes_to = "together"
    return without_unused_tables(case)


def _needed(lines: Sequence[Line]) -> list[Line]:
    """Return the lines that the last one needs."""
    needed = {lines[-1].target}
    kept = []
    for line in reversed(lines):
        if line.target in needed:
            kept.append(line)
            needed.update(line.inputs)
    return kept[::-1]


def without_unused_tables(case: Case) -> Case:
    """Return the case with the tables that its lines use."""
    used = {line.target for line in case.lines}
    return replace(case, tables=[table for table in case.tables if table.name in used])


def with_lines(case: Case, lines: Sequence[Line], folder: Path) -> Case | None:
    """Return the case with other lines, or ``None`` if they promise nothing that can be compared."""
    states: dict[str, State] = {}
    variables = variables_of(case.tables, folder, None)
    for line in lines:
        if any(name not in states for name in line.inputs):
            return None
        try:
            frame = evaluate(line.text, variables)
            schema = dict(frame.collect_schema())
        except Exception:  # what is left of the query is wrong
            return None
        state = line.rule([states[name] for name in line.inputs], schema)
        if state is None:
            return None
        states[line.target] = state
        variables[line.target] = frame
    needed = _needed(lines)
    return without_unused_tables(replace(case, lines=needed, state=states[needed[-1].target]))


def _literal(table: Table) -> str:
    frame = table.frame
    if frame.height > 12:
        return f"{table.name}: {frame.height} rows, {dict(frame.schema)}"
    return f"{table.name}_rows = pl.DataFrame({frame.to_dict(as_series=False)}, schema={dict(frame.schema)})"


def describe(case: Case) -> str:
    """Return the case as text."""
    door = "shipped" if case.shipped else "spmd"
    transport = "loopback" if case.loopback else "local"
    o = case.options
    limits = ("broadcast_limit", "small_limit", "read_everywhere_limit", "head_limit", "partitions")
    if not o.dynamic_planning:
        limits = (*limits, "dynamic_planning")
    planned = " ".join(f"{name}={getattr(o, name)}" for name in limits)
    off = f" off: {', '.join(case.flags)}" if case.flags else ""
    text = [f"# seed {case.seed}: {case.nranks} ranks, {door}, {transport}, {planned}{off}"]
    for table in case.tables:
        text.append(_literal(table))
        text.append(f"#   {table.kind}, cut at {list(table.cuts)}, {table.options}")
    text.extend(f"{line.target} = {line.text}" for line in case.lines)
    if case.goes_to == "together":
        text.append("# collected together with the number of its rows")
    elif case.goes_to != "answer":
        text.append(f"# rows to a {case.goes_to}")
    return "\n".join(text)


def rename_variable(text: str, old: str, new: str) -> str:
    """Return ``text`` with another variable."""
    return re.sub(rf"\b{old}\b(?!')", new, text)


def options_of(case: Case) -> dict[str, Any]:
    """Return the options as a mapping."""
    return dict(vars(case.options))


def case_in_tiny_blocks(seed: int, folder: Path) -> Case:
    """Return the case of a seed on one to three ranks whose memory has no room for it.

    They have many partitions, which are divided again, and what waits is spilled.
    """
    case = random_case(seed, folder, nranks=1 + seed % 3)
    rng = random.Random(seed)
    # Each part takes milliseconds: a large table in the smallest parts would take minutes.
    least = max(table.frame.estimated_size() for table in case.tables) // _MOST_PARTS if case.tables else 0
    options = replace(
        ExecutionOptions.tiny("silent"),
        partitions=rng.choice([1, 8, 8, 12, 32]),
        partition_limit=max(rng.choice([1000, 3000]), least),
    )
    return replace(case, loopback=True, options=options, budget=200_000)
