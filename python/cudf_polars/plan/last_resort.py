"""The way that always works: Polars runs the whole query, over data frames that may be replaced.

Used for a query that can be neither read nor serialised (a function that cannot be pickled, frames too
large to serialise). Its data frames are the inputs of one opaque node, because under SPMD each rank has its
own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import polars as pl

from cudf_polars.plan import nodes
from cudf_polars.plan.optimized import look

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
    is_sink, frames = look(
        lf, flags, lambda plan: (_is_sink(plan), [frame for _, frame in frame_scans(plan)])
    )
    name = "query"
    if is_sink and frames:
        # Polars panics when a plan with replaced nodes ends in a sink, so a sink runs with the frames it has
        name, frames = _SINK_WITH_FRAMES, []

    def build(children: Sequence[pl.LazyFrame]) -> pl.LazyFrame:
        if not frames:
            return lf
        return pl.LazyFrame._scan_python_function(dict(schema), _Query(lf, flags, children), is_pure=False)

    inputs = tuple(nodes.DataFrameScan(frame, schema=dict(frame.schema)) for frame in frames)
    return nodes.OpaqueNode(name, inputs, build, reason, schema=dict(schema))


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

    def __init__(self, lf: pl.LazyFrame, flags: Any, children: Sequence[pl.LazyFrame]) -> None:
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
                names = list(traverser.get_schema()) or frame.columns[:1]
                lf = child.select(pl.col(n) for n in names)
                traverser.set_node(number)
                traverser.set_udf(_reader(lf))

        result = pl.DataFrame._from_pydf(
            self._lf._ldf.with_optimizations(self._flags).collect("in-memory", replace)
        ).lazy()
        if predicate is not None:
            result = result.filter(pl.Expr.deserialize(predicate))
        if with_columns is not None:
            result = result.select(pl.col(n) for n in with_columns)
        if n_rows is not None:
            result = result.head(n_rows)
        return iter((result.collect(engine="in-memory"),)), True


def _reader(lf: pl.LazyFrame) -> Callable[..., pl.DataFrame]:
    return lambda *_: lf.collect(engine="streaming")


def _is_sink(traverser: Any) -> bool:
    try:
        return type(traverser.view_current_node()).__name__ == "Sink"
    except ValueError:
        return True  # a sink whose target has no serialised form
    except NotImplementedError:
        return False


def frame_scans(traverser: Any) -> list[tuple[int, pl.DataFrame]]:
    """Return the plan's data frames with their nodes' numbers, in the order of a walk from the root."""
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
                out.append((number, pl.DataFrame._from_pydf(view.df)))
        stack.extend(reversed(inputs))
    traverser.set_node(root)
    return out
