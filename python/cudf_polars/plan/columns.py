"""Which columns a frame keeps: also none, with all of its rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import polars as pl
import polars.selectors as cs

__all__ = ["keep_columns"]

Frame = TypeVar("Frame", pl.DataFrame, pl.LazyFrame)


def keep_columns(frame: Frame, names: Iterable[str]) -> Frame:
    """Return ``frame`` with the columns ``names``, in this order, and all of its rows.

    ``select()`` of no column gives no row, and takes some names for patterns.
    """
    wanted = list(names)
    return frame.select(cs.by_name(wanted)) if wanted else frame.drop(cs.all())
