"""The way that always works: Polars runs the whole query, over data frames that may be replaced.

Used for a query that can be neither read nor serialised (a function that cannot be pickled, frames too
large to serialise). Its data frames are the inputs of one opaque node, because under SPMD each rank has its
own.
"""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import polars as pl

from cudf_polars.plan import nodes
from cudf_polars.plan.generated_names import renumber_text
from cudf_polars.plan.nameless import nameless_column
from cudf_polars.plan.optimized import look
from cudf_polars.plan.placeholder import read_frame, rows_as_column

__all__ = ["check_own_frames", "frame_scans", "opaque_query"]

_SINK_WITH_FRAMES = "a sink with its data frames"


def opaque_query(lf: pl.LazyFrame, flags: Any, reason: str) -> nodes.OpaqueNode:
    """Return a node that runs a whole query.

    Parameters
    ----------
    lf
        The query.
    flags
        Polars' optimisation flags for it.
    reason
        Why it is not read.
    """
    schema = lf.collect_schema()
    # Of a query that was shipped, Polars finds equal sub-plans now and then only; but the plan that runs must have the
    # data frames of this one.
    apart = flags.copy()
    apart.comm_subplan_elim = False
    is_sink, carried = look(
        lf,
        apart,
        lambda plan: (_is_sink(plan), [_used(plan, number, frame) for number, frame in frame_scans(plan)]),
    )
    name = "query"
    if is_sink and carried:
        # Polars panics when a plan with replaced nodes ends in a sink, so a sink runs with the frames it has
        name, carried = _SINK_WITH_FRAMES, []

    inputs = tuple(nodes.DataFrameScan(frame, schema=dict(frame.schema)) for frame in carried)
    text = renumber_text(lf.explain(optimized=False))
    text = re.sub(r"0x[0-9a-fA-F]+|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "", text)
    digest = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
    build = _Build(lf, _flag_values(apart), bool(carried), dict(schema))
    return nodes.OpaqueNode(name, inputs, build, reason, digest, schema=dict(schema))


def _flag_values(flags: Any) -> dict[str, bool]:
    """Return Polars' flags as they travel to other processes."""
    found = {name: getattr(flags, name) for name in dir(flags) if not name.startswith("_")}
    return {name: value for name, value in found.items() if isinstance(value, bool)}


class _Build:
    """Makes the query over other data frames."""

    def __init__(
        self, lf: pl.LazyFrame, flags: dict[str, bool], has_frames: bool, schema: nodes.Schema
    ) -> None:
        self._lf, self._flags, self._has_frames, self._schema = lf, flags, has_frames, schema

    def __call__(self, children: Sequence[pl.LazyFrame]) -> pl.LazyFrame:
        if not self._has_frames:
            return self._lf
        source = _Query(self._lf, self._flags, children)
        return pl.LazyFrame._scan_python_function(dict(self._schema), source, is_pure=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_lf": self._lf.serialize()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lf = pl.LazyFrame.deserialize(io.BytesIO(state["_lf"]))


def check_own_frames(root: nodes.Node) -> None:
    """Refuse a query that would see the data frames of one rank only, where each rank has its own.

    Raises
    ------
    NotImplementedError
        If the query is one opaque node that ends in a sink and has frames of its own.
    """
    if isinstance(root, nodes.OpaqueNode) and root.name == _SINK_WITH_FRAMES:
        raise NotImplementedError(
            f"this lazy sink would write the rows of one rank's data frames only ({root.reason}): collect the query"
            " without the sink first, and sink the result"
        )


class _Query:
    """An I/O source that runs the query with its data frames replaced."""

    def __init__(self, lf: pl.LazyFrame, flags: dict[str, bool], children: Sequence[pl.LazyFrame]) -> None:
        self._lf = lf
        self._flags = flags
        self._children = children

    def __call__(
        self,
        with_columns: list[str] | None,
        predicate: bytes | None,
        n_rows: int | None,
        batch_size: int | None,
    ) -> tuple[Iterator[pl.DataFrame], bool]:
        def replace(traverser: Any, *_: Any) -> None:
            for (number, frame), child in zip(frame_scans(traverser), self._children, strict=True):
                traverser.set_node(number)
                names = [name for name in traverser.get_schema() if name in frame.columns]
                traverser.set_node(number)
                traverser.set_udf(_reader(child, names))

        flags = pl.QueryOptFlags()._pyoptflags.copy()
        for name, value in self._flags.items():
            setattr(flags, name, value)
        result = pl.DataFrame._from_pydf(
            self._lf._ldf.with_optimizations(flags).collect("in-memory", replace)
        )
        return iter((read_frame(result, with_columns, predicate, n_rows),)), True


def _used(traverser: Any, number: int, frame: pl.DataFrame) -> pl.DataFrame:
    """Return the columns of a plan's data frame that the plan reads; Polars shows others without their values."""
    traverser.set_node(number)
    used = [name for name in traverser.get_schema() if name in frame.columns]
    return frame.select(used) if used else rows_as_column(pl.DataFrame(height=frame.height))


def _reader(lf: pl.LazyFrame, names: list[str]) -> Callable[..., pl.DataFrame]:
    def read(*_: Any) -> pl.DataFrame:
        if names:
            return lf.select(pl.col(n) for n in names).collect(engine="streaming")
        return pl.DataFrame(height=lf.select(pl.len()).collect(engine="streaming").item())

    return read


def _is_sink(traverser: Any) -> bool:
    try:
        return type(traverser.view_current_node()).__name__ == "Sink"
    except ValueError:
        return True  # a sink whose target has no serialised form
    except NotImplementedError:
        return False


def frame_scans(traverser: Any) -> list[tuple[int, pl.DataFrame]]:
    """Return the plan's data frames with their nodes' numbers, in the order of a walk from the root.

    Without those with a type that no data frame of a user can have: Polars made them, of a filter that keeps no row.
    """
    out: list[tuple[int, pl.DataFrame]] = []
    seen: set[int] = set()
    root = traverser.get_node()
    stack = [root]
    while stack:
        number = stack.pop()
        if number in seen:
            continue
        seen.add(number)
        traverser.set_node(number)
        inputs = list(traverser.get_inputs())
        if not inputs:
            try:
                view = traverser.view_current_node()
            except (NotImplementedError, ValueError):
                continue
            if type(view).__name__ == "DataFrameScan":
                frame = pl.DataFrame._from_pydf(view.df)
                if nameless_column(frame.schema) is None:
                    out.append((number, frame))
        stack.extend(reversed(inputs))
    traverser.set_node(root)
    return out
