"""Small values in the views, as the Polars API writes them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import polars as pl

from cudf_polars.plan.expressions import FrozenSeries

__all__ = ["duration", "freeze", "label", "per_key", "snake", "variant"]


def snake(name: str) -> str:
    """Write a Rust name as Python writes it."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def variant(enum_value: Any) -> str:
    """Return the name of a value of an enum."""
    return str(enum_value).rsplit(".", 1)[-1]


def per_key(flags: Sequence[bool], n: int) -> tuple[bool, ...]:
    """Return a flag for each of ``n`` keys: one alone holds for all."""
    return tuple(flags) * n if len(flags) == 1 else tuple(flags)


def label(text: str) -> str:
    """Return a label or a start of windows."""
    return {"window_bound": "window", "data_point": "datapoint"}.get(text, text)


def duration(parts: tuple[int, int, int, int, bool, bool]) -> str:
    """Write Polars' ``(months, weeks, days, nanoseconds, is an index count, negative)`` as it parses it."""
    months, weeks, days, nanoseconds, is_index, negative = parts
    sign = "-" if negative else ""
    if is_index:
        return f"{sign}{nanoseconds}i"
    fine, unit = nanoseconds, "ns"
    # an interval in nanoseconds makes Polars return nanoseconds
    for size, coarser in ((1000, "us"), (1_000_000, "ms"), (1_000_000_000, "s")):
        if nanoseconds % size == 0:
            fine, unit = nanoseconds // size, coarser
    out = "".join(f"{n}{u}" for n, u in ((months, "mo"), (weeks, "w"), (days, "d"), (fine, unit)) if n)
    return sign + out if out else "0s"


def freeze(value: Any) -> Any:
    """Make an option hashable: lists become tuples, series :class:`~cudf_polars.plan.expressions.FrozenSeries`."""
    if isinstance(value, list | tuple):
        return tuple(freeze(v) for v in value)
    if type(value).__name__ == "PySeries":
        return FrozenSeries(pl.Series._from_pyseries(value))
    return value
