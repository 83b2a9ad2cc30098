"""The catalogue's expressions, sorted by how their rows relate to those of the table, which is found out by trying.

An expression that was tried over permuted rows and over some of the rows shows whether it works row by row, whether the
order counts, and how many rows it gives.
"""

from __future__ import annotations

import enum
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import polars as pl
from plan.expression_catalogue import CATALOGUE, FRAME, UNORDERED, evaluate

__all__ = ["Nature", "Template", "templates"]


class Nature(enum.Enum):
    """How the rows of an expression relate to those of the table."""

    ROWWISE = enum.auto()
    """Each from the same row of the table."""
    WHOLE = enum.auto()
    """As many, each from all rows in any order."""
    ORDERED = enum.auto()
    """As many, from all rows in their order."""
    SCALAR = enum.auto()
    """One value, from rows in any order."""
    SCALAR_ORDERED = enum.auto()
    """One value that depends on the order."""
    MANY = enum.auto()
    """Another number of rows."""


@dataclass(frozen=True)
class Template:
    """An expression of the catalogue.

    Attributes
    ----------
    columns
        Those that it reads.
    inexact
        Whether its last digits may differ with the order or the batches of rows.
    """

    text: str
    nature: Nature
    columns: frozenset[str]
    inexact: bool


_PERMUTATIONS = ([5, 4, 3, 2, 1, 0], [3, 0, 5, 1, 4, 2], [1, 0, 2, 3, 5, 4])
_SUBSETS = ([0, 1, 2], [3, 5], [4])
# Names of columns that are other things in some texts: a format, a separator, a method.
_WORD = re.compile(r"'(\w+)'")
_REGEX_COLUMNS = {"^[ij]$": ("i", "j")}
_SKIPPED = (
    "pl.all",
    "pl.exclude",
    "pl.nth",
    "pl.first()",
    "sql_expr",
    "rank('random'",
    "approx_n_unique",
    "shuffle",
    "sample",
    "sort_by(",
    "_by('j'",
    "_by(['j'",
    "arg_sort",
    "search_sorted",  # where rows are not sorted, the answer is anything
    "implode(maintain_order=False)",
    "arg_max",  # of ties, Polars takes the first or the last, by whether the column is known to be sorted
    "arg_min",
    "entropy",  # Polars' engines disagree about negative numbers
    "set_sorted",
)
# Exact wherever they come from: no arithmetic on floats but what is exact for eighths.
_EXACT = re.compile(
    r"^c\('\w+'\)(\.(sum|min|max|first|last|cast|abs|sort|reverse|shift|head|tail|get|fill_null|fill_nan|floor|ceil|round|clip)\b.*)?$"
)


# What ties, or gaps, would show to depend on the order, though the catalogue's few rows do not.
_TIES = re.compile(
    r"sort_by|max_by|min_by|arg_|ordinal|first|last|is_sorted|rolling|ewm|interpolate|cumulative|top_k|bottom_k|"
    r"search_sorted|implode|order_by|explode|diff|peak|hist|rle|'explode'"
)
# Functions that depend on other rows; over the catalogue's six rows, a large shift gives only nulls and looks row-wise.
_MOVED = re.compile(r"(?<!\.list)(?<!\.arr)\.(shift|diff|pct_change|rolling_\w+|ewm_\w+)\(")
_DROPPED = re.compile(r"\.(unique|drop_nulls|drop_nans|mode|rle)\(")
_DOUBLES = re.compile(r"is_(first|last)_distinct|is_unique|is_duplicated")
_STATISTICS = re.compile(r"\.(std|var|skew|kurtosis|entropy)\(|pl\.(corr|cov)\(")


def _evaluate(expr: pl.Expr, rows: Sequence[int]) -> pl.DataFrame | None:
    try:
        return FRAME[list(rows)].lazy().select(expr).collect()
    except BaseException:  # Polars panics on some
        return None


def _nature(expr: pl.Expr) -> Nature | None:
    whole = _evaluate(expr, range(6))
    if whole is None:
        return None
    permuted = [_evaluate(expr, rows) for rows in _PERMUTATIONS]
    parts = [_evaluate(expr, rows) for rows in _SUBSETS]
    if any(frame is None for frame in permuted):
        return Nature.MANY
    heights = {frame.height for frame in (whole, *permuted) if frame is not None}
    part_heights = [None if frame is None else frame.height for frame in parts]
    if heights == {1} and set(part_heights) <= {1, None}:
        same = all(whole.equals(frame) for frame in permuted if frame is not None)
        return Nature.SCALAR if same else Nature.SCALAR_ORDERED
    if heights != {6} or part_heights != [3, 2, 1]:
        return Nature.MANY
    moved = all(
        whole[list(rows)].equals(frame)
        for rows, frame in zip(_PERMUTATIONS, permuted, strict=True)
        if frame is not None
    )
    if not moved:
        return Nature.ORDERED
    alone = all(
        whole[list(rows)].equals(frame)
        for rows, frame in zip(_SUBSETS, parts, strict=True)
        if frame is not None
    )
    return Nature.ROWWISE if alone else Nature.WHOLE


_PLACES = re.compile(r"^c\('\w+'\)\.(get|gather)\(")
_WITH_TIES = {Nature.SCALAR: Nature.SCALAR_ORDERED, Nature.WHOLE: Nature.ORDERED}


def _is_float(dtype: pl.DataType) -> bool:
    return "Float" in str(dtype) or "f64" in str(dtype)


@cache
def templates() -> tuple[Template, ...]:
    """Return the catalogue's expressions that can be used over other tables than its own."""
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for texts in CATALOGUE.values():
            for text in texts:
                if any(skipped in text for skipped in _SKIPPED) or text in UNORDERED:
                    continue
                expr = evaluate(text)
                nature = _nature(expr)
                if nature is None:
                    continue
                if _DROPPED.search(text):
                    nature = Nature.MANY  # there is nothing to drop in the catalogue's rows
                elif _DOUBLES.search(text):
                    nature = Nature.ORDERED  # there are none in the catalogue's rows
                elif nature is Nature.ROWWISE and _MOVED.search(text):
                    nature = Nature.ORDERED
                elif _TIES.search(text):
                    nature = _WITH_TIES.get(nature, nature)
                elif nature is Nature.SCALAR and _PLACES.search(text):
                    nature = Nature.SCALAR_ORDERED  # the catalogue's rows end before it
                elif nature is Nature.SCALAR_ORDERED and _STATISTICS.search(text):
                    nature = Nature.SCALAR  # but for the last digits
                columns = {word for word in _WORD.findall(text) if word in FRAME.columns}
                columns |= {
                    name for pattern, names in _REGEX_COLUMNS.items() if pattern in text for name in names
                }
                dtypes = FRAME.lazy().select(expr).collect_schema().dtypes()
                inexact = any(map(_is_float, dtypes)) and not _EXACT.match(text)
                found.append(Template(text, nature, frozenset(columns), inexact))
    return tuple(found)
