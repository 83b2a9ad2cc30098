"""Placeholders: what stands in a query for the parts that Polars does not show, while the query is read.

An expression's place is taken by a function of the plugin (:mod:`cudf_polars.plan.plugin`), a source's by a Python
source. Both survive Polars' optimiser and carry the number of the original.
"""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from cudf_polars.plan.plugin import plugin_expr

__all__ = [
    "ROWS",
    "FrameSource",
    "PlaceholderSource",
    "TypeCapsule",
    "frame_source",
    "placeholder_expr",
    "placeholder_scan",
    "read_frame",
    "rows_as_column",
    "source_number",
]

SYMBOL = "placeholder"
ROWS = "__riverrun_rows"
"""A column that stands for rows of which no column is read."""


def rows_as_column(frame: pl.DataFrame) -> pl.DataFrame:
    """Return a frame whose rows can be counted by a column: only a column carries rows through exchanges."""
    if frame.width:
        return frame
    return pl.repeat(False, frame.height, dtype=pl.Boolean, eager=True).alias(ROWS).to_frame()


class TypeCapsule:
    """A type in the form that the plugin reads; must outlive the reading of the plan."""

    def __init__(self, dtype: pl.DataType) -> None:
        self._capsule: Any = pl.Schema({"": dtype}).__arrow_c_schema__()
        get = ctypes.pythonapi.PyCapsule_GetPointer
        get.restype = ctypes.c_void_p
        get.argtypes = (ctypes.py_object, ctypes.c_char_p)
        self.address: int = get(self._capsule, b"arrow_schema")


def placeholder_expr(
    library: Path,
    number: int,
    capsule: TypeCapsule,
    inputs: Sequence[pl.Expr],
    *,
    elementwise: bool,
    scalar: bool,
    length_preserving: bool,
) -> pl.Expr:
    """Return the plugin call that stands for an expression.

    Parameters
    ----------
    library
        The plugin, from :func:`~cudf_polars.plan.plugin.find_library`.
    number
        Number of the original in :mod:`~cudf_polars.plan.substitute`.
    capsule
        Type of the result.
    inputs
        Columns that the original reads; at least one.
    elementwise, scalar, length_preserving
        As in :class:`~cudf_polars.plan.expressions.OpaqueSource`; Polars moves filters and projections by
        them.
    """
    return plugin_expr(
        library,
        SYMBOL,
        inputs,
        f"{capsule.address};{number}".encode(),
        elementwise=elementwise,
        scalar=scalar,
        length_preserving=length_preserving,
    )


class PlaceholderSource:
    """A Python source that stands for a part of the query.

    Parameters
    ----------
    number
        Number of the part in :mod:`~cudf_polars.plan.substitute`.
    """

    def __init__(self, number: int) -> None:
        self.number = number

    def __call__(self, *args: Any) -> Any:
        """Fail: the part itself is run, never its placeholder."""
        raise RuntimeError(
            "a placeholder of cudf_polars was run: it stands for a part of a query while the query is read; "
            "please report this query"
        )


def placeholder_scan(number: int, schema: pl.Schema) -> pl.LazyFrame:
    """Return the source that stands for a part of the query with this schema."""
    return pl.LazyFrame._scan_python_function(dict(schema), PlaceholderSource(number), is_pure=True)


def source_number(function: Any) -> int | None:
    """Return the number of the part that a source stands for, ``None`` for any other source."""
    return function.number if isinstance(function, PlaceholderSource) else None


# --- frames inside a serialised query ----------------------------------------------------------------------

_tickets = itertools.count()
_waiting: dict[int, pl.LazyFrame] = {}
"""Frames on their way through a serialised query, until the source that reads them is made."""


def read_frame(
    frame: pl.DataFrame, with_columns: list[str] | None, predicate: bytes | None, n_rows: int | None
) -> pl.DataFrame:
    """Return what Polars asks an I/O source for: columns of those of the first rows for which the predicate holds."""
    lf = frame.lazy()
    if n_rows is not None:
        lf = lf.head(n_rows)
    if predicate is not None:
        lf = lf.filter(pl.Expr.deserialize(predicate))
    rows = lf.collect(engine="in-memory")
    if with_columns is None:
        return rows
    return rows.select(with_columns) if with_columns else pl.DataFrame(height=rows.height)


class FrameSource:
    """A Python source that runs a lazy frame of this process, once, and keeps its rows for who reads it again.

    Serialised queries cannot hold a lazy frame by reference. This source goes through serialisation as a
    ticket and comes out holding the frame.
    """

    def __init__(self, frame: pl.LazyFrame) -> None:
        self._frame = frame
        self._rows: pl.DataFrame | None = None
        self._lock = threading.Lock()

    def __call__(
        self,
        with_columns: list[str] | None,
        predicate: bytes | None,
        n_rows: int | None,
        batch_size: int | None,
    ) -> tuple[Iterator[pl.DataFrame], bool]:
        """Read the frame, as Polars asks an I/O source to."""
        with self._lock:
            if self._rows is None:
                self._rows = self._frame.collect(engine="streaming")
        return iter((read_frame(self._rows, with_columns, predicate, n_rows),)), True

    def __reduce__(self) -> tuple[Any, ...]:
        """Leave the frame behind under a ticket."""
        ticket = next(_tickets)
        _waiting[ticket] = self._frame
        return _claim, (ticket,)


def _claim(ticket: int) -> FrameSource:
    return FrameSource(_waiting.pop(ticket))


def frame_source(frame: pl.LazyFrame, schema: pl.Schema) -> pl.LazyFrame:
    """Return a source that runs ``frame`` and can be part of a serialised query, once."""
    return pl.LazyFrame._scan_python_function(dict(schema), FrameSource(frame), is_pure=False)
