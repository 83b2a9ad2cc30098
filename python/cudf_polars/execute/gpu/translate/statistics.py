"""What the footers of Parquet files say of a column: whether it may hold nulls, and between what its numbers lie."""

from __future__ import annotations

import decimal
import functools
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from cudf_polars.execute.gpu.translate.ranges import Interval, Range, limits_of
from cudf_polars.execute.gpu.translate.types import is_integer, scale_of
from cudf_polars.lower.column_bounds import Column, read_column
from cudf_polars.lower.footers import FooterError, read_footer, read_row_groups
from cudf_polars.plan.file_versions import file_version

__all__ = ["column_range", "file_rows", "have_columns", "may_hold_nulls", "types_in_files"]

_FILES = 64
_COLUMNS = 4096
_EXACT = decimal.Context(prec=100)


def file_rows(paths: Sequence[str]) -> float | None:
    """Return the number of rows of files, ``None`` if a footer cannot be read."""
    try:
        return float(sum(_rows_of(path, *file_version(path)) for path in _plain(paths)))
    except FooterError:
        return None


def types_in_files(paths: Sequence[str], name: str) -> set[pl.DataType | None]:
    """Return the types that a column has in files, ``None`` among them if one does not have it or cannot be read."""
    return {_type_of(path, name, *file_version(path)) for path in _plain(paths)}


def have_columns(paths: Sequence[str], given: Iterable[str] | None) -> bool:
    """Whether all files have the columns ``given``, or those of the first: of others Polars says what is wrong."""
    found = [frozenset(_types_of(path, *file_version(path))) for path in _plain(paths)]
    wanted = set(found[:1]) if given is None else {frozenset(given)}
    return set(found) <= wanted


def may_hold_nulls(paths: Sequence[str], name: str) -> bool:
    """Whether a column may hold nulls: it need not be required where a file cannot be read here."""
    return not all(_is_required(path, name, *file_version(path)) for path in _plain(paths))


def column_range(paths: Sequence[str], name: str, dtype: pl.DataType) -> Range:
    """Return the range of a column, which has the type ``dtype`` in all files; the statistics are read when they are
    asked for."""

    def learn() -> Interval | None:
        found = [_interval(path, name, dtype, *file_version(path)) for path in _plain(paths)]
        known = [interval for interval in found if interval is not None]
        if len(known) < len(found) or not known:
            return None
        return (min(low for low, _ in known), max(high for _, high in known))

    if isinstance(dtype, pl.Decimal) or is_integer(dtype):
        return Range(limits_of(dtype), learn)
    return Range(limits_of(dtype))


def _plain(paths: Iterable[str]) -> Iterator[str]:
    """Yield paths as what is kept of them: a file in memory exists as long as its own path does."""
    return map(str, paths)


@functools.lru_cache(maxsize=_COLUMNS)
def _rows_of(path: str, *version: int) -> int:
    summary = _summary(path, *version)
    return sum(group.rows for group in read_row_groups(path)) if summary is None else summary[0]


@functools.lru_cache(maxsize=_FILES)
def _footer(path: str, *version: int) -> bytes | None:
    """Return the footer of one version of a file between magic bytes, ``None`` if it cannot be read."""
    try:
        return read_footer(path) if version else None
    except FooterError:
        return None


@functools.lru_cache(maxsize=_COLUMNS)
def _column(path: str, name: str, *version: int) -> Column | None:
    """Return what the footer of one version of a file says of a column, ``None`` if it cannot be read."""
    footer = _footer(path, *version)
    try:
        return None if footer is None else read_column(footer, path, name)
    except FooterError:
        return None


@functools.lru_cache(maxsize=_COLUMNS)
def _type_of(path: str, name: str, *version: int) -> pl.DataType | None:
    return _types_of(path, *version).get(name)


@functools.lru_cache(maxsize=_COLUMNS)
def _types_of(path: str, *version: int) -> Mapping[str, pl.DataType]:
    try:
        return pl.read_parquet_schema(path) if version else {}
    except (pl.exceptions.PolarsError, OSError):
        return {}


def _is_required(path: str, name: str, *version: int) -> bool:
    summary = _summary(path, *version)
    if summary is not None:
        return name in summary[1] and summary[1][name][0]
    column = _column(path, name, *version)
    return column is not None and column.is_required


@functools.lru_cache(maxsize=_COLUMNS)
def _interval(path: str, name: str, dtype: pl.DataType, *version: int) -> Interval | None:
    summary = _summary(path, *version) if _is_signed(dtype) else None
    if summary is not None and name in summary[1]:
        return summary[1][name][1]
    column = _column(path, name, *version)
    if column is None:
        return None
    scale = scale_of(dtype) if isinstance(dtype, pl.Decimal) else 0
    least: Any = None
    most: Any = None
    for chunk in column.chunks:
        if chunk.bounds is None:
            if chunk.nulls == chunk.rows:
                continue  # only nulls
            return None
        low, high = chunk.bounds
        if not isinstance(low, int | decimal.Decimal) or not isinstance(high, int | decimal.Decimal):
            return None
        least = low if least is None else min(least, low)
        most = high if most is None else max(most, high)
    if least is None:
        return (0, 0)
    return _units(least, scale), _units(most, scale)


@functools.lru_cache(maxsize=_FILES)
def _summary(path: str, *version: int) -> tuple[int, Mapping[str, tuple[bool, Interval | None]]] | None:
    """Return what the operators' own footer parser finds, which their scans then need not parse again.

    It is ``None`` unless a GPU engine has imported that parser.
    """
    module = sys.modules.get("rapidsmpf.compute")
    if module is None or not version:
        return None
    try:
        found: tuple[int, Mapping[str, tuple[bool, Interval | None]]] = module.summarize_footer(path)
    except (RuntimeError, OSError):
        return None
    return found


def _is_signed(dtype: pl.DataType) -> bool:
    """Whether the statistics of a column of that type are signed integers, or decimals."""
    return isinstance(dtype, pl.Decimal) or dtype in (pl.Int8, pl.Int16, pl.Int32, pl.Int64)


def _units(value: int | decimal.Decimal, scale: int) -> int:
    return int(decimal.Decimal(value).scaleb(scale, _EXACT))
