"""Types that Polars has no name for: of expressions that it has planned without knowing what comes of them."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

__all__ = ["nameless_column"]


def nameless_column(schema: Mapping[str, pl.DataType]) -> str | None:
    """Return the first column whose rows cannot leave Polars, because their type has no name; ``None`` if all have."""
    return next((name for name, dtype in schema.items() if _is_nameless(dtype)), None)


def _is_nameless(dtype: object) -> bool:
    match dtype:
        case pl.List() | pl.Array():
            return _is_nameless(dtype.inner)
        case pl.Struct():
            return any(_is_nameless(field.dtype) for field in dtype.fields)
    return dtype == pl.Unknown
