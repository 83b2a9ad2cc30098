"""Random frames of every Polars type, and their comparison as bags of rows."""

from __future__ import annotations

from collections import Counter
from typing import Any, cast

import polars as pl
from hypothesis import reject
from hypothesis import strategies as st
from hypothesis.errors import InvalidArgument
from polars.testing.parametric import dataframes
from polars.testing.parametric.strategies.dtype import _COMPLEX_DTYPES, _SIMPLE_DTYPES

__all__ = ["every_dtype", "every_nth_row", "frames", "row_bag"]


def every_dtype() -> list[Any]:
    """Return every data type class of this Polars but Object, which has no form in Arrow."""
    nested = [pl.List, pl.Array, pl.Struct, *([pl.Map] if hasattr(pl, "Map") else [])]
    return [*_SIMPLE_DTYPES, *_COMPLEX_DTYPES, *nested]


@st.composite
def frames(draw: st.DrawFn, *, min_cols: int = 0, max_cols: int = 5, max_size: int = 12) -> pl.DataFrame:
    """Return a strategy of frames with columns of every type: nested, with nulls, of several chunks, without rows.

    Parameters
    ----------
    min_cols, max_cols
        Number of columns.
    max_size
        Largest number of rows.
    """
    strategy = dataframes(
        min_cols=min_cols, max_cols=max_cols, max_size=max_size, allowed_dtypes=every_dtype(), allow_null=True
    )
    try:
        return cast(pl.DataFrame, draw(strategy))
    except (InvalidArgument, TypeError):
        # Polars asks for more different map keys than there are, or takes one value of a large integer type for Int64.
        reject()


def every_nth_row(frame: pl.DataFrame, count: int) -> list[pl.DataFrame]:
    """Deal the rows out to so many frames."""
    try:
        return [frame[first::count] for first in range(count)]
    except pl.exceptions.PanicException:
        # Polars cannot do that with some maps that it has made: their keys are not nullable, those of the slice are.
        reject()


def row_bag(frame: pl.DataFrame) -> Counter[str]:
    """Return how often each row occurs. Rows are compared by their text, in which NaN equals NaN."""
    return Counter(repr(row) for row in frame.rows())
