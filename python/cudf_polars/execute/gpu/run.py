"""A GPU as a compute device: fragments become programs, and what has no form on a GPU is left to Polars."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

import polars as pl

from cudf_polars.execute.cpu import CpuDevice
from cudf_polars.execute.fragments import Reading
from cudf_polars.execute.gpu.native import build_program
from cudf_polars.execute.gpu.program import Program
from cudf_polars.execute.gpu.translate import TranslatedProgram, UntranslatablePlan, translate
from cudf_polars.execute.streams import conform
from cudf_polars.plan import nodes
from cudf_polars.plan.columns import keep_columns
from cudf_polars.plan.dag import Plan, map_nodes, walk_nodes
from cudf_polars.plan.read import UnsupportedPolarsError, read_plan
from cudf_polars.plan.rebuild import to_lazyframe

if TYPE_CHECKING:
    from rapidsmpf.compute import Runtime

__all__ = ["GpuDevice", "Operators", "ProgramRunner", "run_plan", "run_program"]

RunProgram = Callable[[TranslatedProgram], pl.DataFrame]
"""Runs a program over its own frames and returns its rows with the types of its schema."""


class ProgramRunner(Protocol):
    """Runs programs: the operators over libcudf, or what stands in for them where there is no GPU."""

    def run(self, program: Program, frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """Run a program over its inputs and return its rows with the types of its schema."""
        ...

    def close(self) -> None:
        """Give up memory and threads; no program may be running."""
        ...


class Operators:
    """The operators over libcudf on this process's GPU.

    Parameters
    ----------
    runtime
        Their memory and threads; owned by this object.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def run(self, program: Program, frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """Run a program over its inputs and return its rows with the types of its schema."""
        return run_program(self._runtime, program, frames)

    def close(self) -> None:
        """Give up memory and threads; no program may be running."""
        self._runtime.close()


class GpuDevice:
    """Runs fragments on a GPU; see :class:`~cudf_polars.execute.fragments.ComputeDevice`.

    Parameters
    ----------
    programs
        Runs what has a form on a GPU; owned by this object.
    raise_on_fail
        What has no form on a GPU is an error.
    """

    is_cpu = False

    def __init__(self, programs: ProgramRunner, *, raise_on_fail: bool = False) -> None:
        self._programs = programs
        self._raise_on_fail = raise_on_fail
        self._lock = threading.Lock()
        self._host_steps: list[str] = []

    def collect(self, fragment: pl.LazyFrame, optimizations: pl.QueryOptFlags) -> pl.DataFrame:
        """Run a fragment and return its rows.

        Raises
        ------
        NotImplementedError
            With ``raise_on_fail``, if a part of the fragment has no form on a GPU.
        """
        try:
            plan = read_plan(fragment, optimizations, to_be_rebuilt=False)
            program = _as_one_program(plan)
            if program is None:
                plan = read_plan(fragment, optimizations)
        except (pl.exceptions.PolarsError, UnsupportedPolarsError):
            return CpuDevice().collect(fragment, optimizations)  # Polars says what is wrong
        if program is not None:
            return self._run(program)
        if plan.notes:  # an option of a join that nobody knows would not be obeyed
            self._note(UntranslatablePlan(plan.root, "; ".join(plan.notes)))
            return CpuDevice().collect(fragment, optimizations)
        return self.collect_plan(plan.root)

    def collect_plan(self, root: nodes.Node) -> pl.DataFrame:
        """Run a plan that has been read and return its rows."""
        return run_plan(root, self._run, self._note)

    def batches(
        self,
        fragment: pl.LazyFrame,
        optimizations: pl.QueryOptFlags,
        reading: Reading,
    ) -> Iterator[pl.DataFrame]:
        """Run a fragment and yield its rows; it begins when the first is asked for."""
        del reading  # a program gives them in order anyway, and all at once
        yield self.collect(fragment, optimizations)

    def take_host_steps(self) -> Sequence[str]:
        """Return what was left to Polars since this was last asked."""
        with self._lock:
            steps, self._host_steps = self._host_steps, []
        return steps

    def close(self) -> None:
        """Give up the memory and threads of the operators; no fragment may be running."""
        self._programs.close()

    def _note(self, refusal: UntranslatablePlan) -> None:
        if self._raise_on_fail:
            raise NotImplementedError(f"{refusal} (raise_on_fail=True)")
        with self._lock:
            self._host_steps.append(str(refusal))

    def _run(self, translated: TranslatedProgram) -> pl.DataFrame:
        return self._programs.run(translated.program, translated.frames)


def run_program(runtime: Runtime, program: Program, frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Run a program over its inputs and return its rows with the types of its schema."""
    rows = pl.DataFrame(runtime.run(build_program(program), frames))
    rows.columns = list(program.schema)
    # Where there is no value, a nested type says nothing of what is in it.
    for place, dtype in enumerate(program.schema.values()):
        column = rows.to_series(place)
        if dtype.is_nested() and column.dtype != dtype and column.null_count() == rows.height:
            nothing = pl.Series(column.name, [None], dtype=dtype).new_from_index(0, rows.height)
            rows.replace_column(place, nothing)
    return conform(rows, program.schema)


def run_plan(root: nodes.Node, run: RunProgram, note: Callable[[UntranslatablePlan], None]) -> pl.DataFrame:
    """Run a plan by programs as far as they go, and by Polars where they do not.

    Parameters
    ----------
    note
        Is told what Polars runs, before it does.
    """
    root = _with_streams_read(root)
    while True:
        if isinstance(root, nodes.DataFrameScan):
            return keep_columns(root.frame, root.schema)
        try:
            translated = translate(root, {})
        except UntranslatablePlan as refusal:
            note(refusal)
            root = _with_host_step(root, refusal.node, run, note)
        else:
            return run(translated)


def _as_one_program(plan: Plan) -> TranslatedProgram | None:
    """Translate a plan of which Polars has to run nothing; ``None`` for any other."""
    whole = not plan.notes and not isinstance(plan.root, nodes.DataFrameScan)
    if not whole or any(isinstance(node, nodes.PythonScan) for node in walk_nodes(plan.root)):
        return None
    try:
        return translate(plan.root, {})
    except UntranslatablePlan:
        return None


def _with_streams_read(root: nodes.Node) -> nodes.Node:
    """Put their rows in the place of sources that are Python functions: what exchanges give can be read once."""
    return map_nodes(
        walk_nodes(root),
        lambda node, anew: _frame_of(anew) if isinstance(node, nodes.PythonScan) else anew,
    )


def _with_host_step(
    root: nodes.Node, refused: nodes.Node, run: RunProgram, note: Callable[[UntranslatablePlan], None]
) -> nodes.Node:
    """Let Polars run one node of a plan, and programs what is below it; its rows take its place."""

    def input_of(child: nodes.Node) -> nodes.Node:
        if not child.children:
            return child  # Polars reads files itself
        frame = run_plan(child, run, note)
        return nodes.DataFrameScan(frame, schema=dict(frame.schema))

    below: dict[nodes.Node, nodes.Node] = {}
    for child in refused.children:
        below.setdefault(child, input_of(child))
    done = _frame_of(refused.with_children([below[child] for child in refused.children]))
    return map_nodes(walk_nodes(root), lambda node, anew: done if node is refused else anew)


def _frame_of(node: nodes.Node) -> nodes.DataFrameScan:
    frame = conform(to_lazyframe(node).collect(engine="streaming"), node.schema)
    return nodes.DataFrameScan(frame, schema=dict(frame.schema))
