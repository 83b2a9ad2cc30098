"""Expressions of a typed plan: frozen, hashable, independent of the Polars version that they were read from.

Two expressions are equal when they compute the same thing in the same way over columns of the same names; the
``dtype`` annotation takes no part in that, except in :class:`Literal`, where it is part of the value.
Function names are those of the Polars API (``"str.to_uppercase"``, ``"dt.year"``, ``"is_null"``); the table
of all of them, with what is known of each, is in :mod:`cudf_polars.plan.functions`.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from cudf_polars.plan.tree import Tree

__all__ = [
    "Agg",
    "BinaryOp",
    "Cast",
    "CastMode",
    "Column",
    "Explode",
    "Expr",
    "Filter",
    "FrozenSeries",
    "Function",
    "Gather",
    "Len",
    "Literal",
    "NamedExpr",
    "Opaque",
    "OpaqueSource",
    "Operator",
    "Rolling",
    "Slice",
    "Sort",
    "SortBy",
    "StructEval",
    "Ternary",
    "Window",
]


class Operator(enum.StrEnum):
    """Binary operators; the value is how the operator is written in dumps."""

    EQ = "=="
    EQ_MISSING = "==v"
    NE = "!="
    NE_MISSING = "!=v"
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="
    ADD = "+"
    SUB = "-"
    MUL = "*"
    TRUE_DIV = "/"
    RUST_DIV = "rust/"
    TRUNC_DIV = "trunc/"
    FLOOR_DIV = "//"
    MOD = "%"
    AND = "&"
    OR = "|"
    XOR = "^"


class CastMode(enum.StrEnum):
    """What a cast does with values that the target cannot hold."""

    STRICT = "strict"
    """Raise."""
    NON_STRICT = "non_strict"
    """Make them null."""
    WRAP = "wrap"
    """Wrap integers around."""


@dataclass(frozen=True, slots=True)
class Expr(Tree["Expr"]):
    """Base of all expressions.

    Attributes
    ----------
    dtype
        Type of the result if Polars shows it, else ``None``. Not compared by ``==``.
    """

    dtype: pl.DataType | None = field(default=None, kw_only=True, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class NamedExpr:
    """An expression with the name of the column that it makes."""

    name: str
    expr: Expr

    def with_expr(self, expr: Expr) -> NamedExpr:
        """Return another expression under the same name."""
        return self if expr is self.expr else NamedExpr(self.name, expr)


@dataclass(frozen=True, slots=True)
class Column(Expr):
    """A column of the input, by name."""

    name: str


class FrozenSeries:
    """A series inside a literal: equal when dtype and values are, hashable by content.

    Parameters
    ----------
    series
        Must not be changed afterwards.
    """

    __slots__ = ("_hash", "series")

    def __init__(self, series: pl.Series) -> None:
        self.series = series
        self._hash: int | None = None

    def __eq__(self, other: object) -> bool:
        """Compare types and values."""
        if self is other:
            return True
        if not isinstance(other, FrozenSeries):
            return NotImplemented
        a, b = self.series, other.series
        return a.dtype == b.dtype and len(a) == len(b) and a.equals(b, null_equal=True)

    def __hash__(self) -> int:
        """Hash types and values."""
        if self._hash is None:
            try:
                content = int(self.series.hash(seed=0).sum() or 0)
            except pl.exceptions.PolarsError:
                content = 0  # a type that Polars cannot hash: length and type still tell most apart
            self._hash = hash((str(self.series.dtype), len(self.series), content))
        return self._hash

    def __repr__(self) -> str:
        """Show type and length."""
        return f"FrozenSeries({self.series.dtype}, len={len(self.series)})"


@dataclass(frozen=True, slots=True, eq=False)
class Literal(Expr):
    """A constant.

    Attributes
    ----------
    value
        A Python scalar that Polars' ``lit`` takes, or a :class:`FrozenSeries`.
    scalar
        A scalar repeats to the length that is asked for; a series of one row does not everywhere.
    """

    value: Any
    scalar: bool = True

    def _key(self) -> tuple[Any, ...]:
        value = self.value
        # repr tells 1 from True and 1.0, and makes NaN equal to NaN
        shown: Any = value if isinstance(value, FrozenSeries) else (type(value).__name__, repr(value))
        return (str(self.dtype), self.scalar, shown)

    def __eq__(self, other: object) -> bool:
        """Compare types and values; NaN equals NaN, and 1 is not 1.0."""
        if not isinstance(other, Literal):
            return NotImplemented
        return self is other or self._key() == other._key()

    def __hash__(self) -> int:
        """Hash what ``==`` compares."""
        return hash(self._key())


@dataclass(frozen=True, slots=True)
class BinaryOp(Expr):
    """``left op right``, both already of the types that the operator needs."""

    _child_fields = ("left", "right")

    op: Operator
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True)
class Cast(Expr):
    """A change of type."""

    _child_fields = ("child",)

    child: Expr
    to: pl.DataType
    mode: CastMode = CastMode.STRICT


@dataclass(frozen=True, slots=True)
class Agg(Expr):
    """An aggregation of one expression.

    Attributes
    ----------
    name
        ``sum sum_or_null mean median min max nan_min nan_max n_unique first last first_non_null last_non_null
        std var count len implode item``. ``count`` leaves out nulls, ``len`` does not; ``sum_or_null`` is null
        where no value is not null, ``sum`` is 0.
    options
        ``(ddof,)`` for ``std`` and ``var``, ``(maintain_order,)`` for ``implode``, ``(allow_empty,)`` for
        ``item``.
    """

    _child_fields = ("child",)

    name: str
    child: Expr
    options: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Function(Expr):
    """A named function of any number of inputs.

    Attributes
    ----------
    name
        As in the Polars API, see :mod:`cudf_polars.plan.functions`.
    args
        What is not an expression: flags, formats, windows. Lists are tuples; durations are strings
        (``"1mo2d"``).
    """

    _child_fields = ("inputs",)

    name: str
    inputs: tuple[Expr, ...]
    args: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Ternary(Expr):
    """``when(predicate).then(truthy).otherwise(falsy)``."""

    _child_fields = ("predicate", "truthy", "falsy")

    predicate: Expr
    truthy: Expr
    falsy: Expr


@dataclass(frozen=True, slots=True)
class Filter(Expr):
    """The rows of ``child`` where ``predicate`` holds."""

    _child_fields = ("child", "predicate")

    child: Expr
    predicate: Expr


@dataclass(frozen=True, slots=True)
class Len(Expr):
    """Number of rows (of the group)."""


@dataclass(frozen=True, slots=True)
class Slice(Expr):
    """``length`` rows of ``child`` from ``offset``."""

    _child_fields = ("child", "offset", "length")

    child: Expr
    offset: Expr
    length: Expr


@dataclass(frozen=True, slots=True)
class Sort(Expr):
    """``child`` sorted by itself."""

    _child_fields = ("child",)

    child: Expr
    descending: bool
    nulls_last: bool
    maintain_order: bool = False


@dataclass(frozen=True, slots=True)
class SortBy(Expr):
    """``child`` in the order of other expressions; flags are per key."""

    _child_fields = ("child", "by")

    child: Expr
    by: tuple[Expr, ...]
    descending: tuple[bool, ...]
    nulls_last: tuple[bool, ...]
    maintain_order: bool


@dataclass(frozen=True, slots=True)
class Gather(Expr):
    """Rows of ``child`` by index.

    Attributes
    ----------
    scalar
        One index, one value (``Expr.get``); otherwise ``Expr.gather``.
    null_on_oob
        An index out of bounds gives null instead of an error.
    """

    _child_fields = ("child", "indices")

    child: Expr
    indices: Expr
    scalar: bool
    null_on_oob: bool = False


@dataclass(frozen=True, slots=True)
class Explode(Expr):
    """One row for each element of each list."""

    _child_fields = ("child",)

    child: Expr
    empty_as_null: bool
    keep_nulls: bool


@dataclass(frozen=True, slots=True)
class Window(Expr):
    """``child.over(partition_by, order_by=...)``.

    Attributes
    ----------
    mapping
        ``"group_to_rows"``, ``"explode"`` or ``"join"``.
    """

    _child_fields = ("child", "partition_by", "order_by")

    child: Expr
    partition_by: tuple[Expr, ...]
    order_by: Expr | None
    descending: bool
    nulls_last: bool
    mapping: str


@dataclass(frozen=True, slots=True)
class Rolling(Expr):
    """``child.rolling(index, period=..., offset=..., closed=...)``; durations are strings."""

    _child_fields = ("child", "index")

    child: Expr
    index: Expr
    period: str
    offset: str
    closed: str


@dataclass(frozen=True, slots=True)
class StructEval(Expr):
    """``child.struct.with_fields(...)`` with fields that do not refer to the struct's own."""

    _child_fields = ("child", "fields")

    child: Expr
    fields: tuple[NamedExpr, ...]


@dataclass(frozen=True, slots=True, eq=False)
class OpaqueSource:
    """The original of an expression that Polars does not show; compared by identity.

    Attributes
    ----------
    id
        Number of this expression in its plan, the same on every rank that reads the same query.
    expr
        The original, over columns called :attr:`roots`.
    roots
        Columns that it reads.
    text
        How Polars prints it, without addresses.
    elementwise
        Each row of the result depends on the same row of the inputs only.
    scalar
        The result is one value, repeated to any length.
    length_preserving
        The result has a row for each input row.
    functions
        Digest of the Python functions in it; empty if there are none.
    process_local
        The result has a meaning only in the process that computed it: codes of categories.
    """

    id: int
    expr: pl.Expr
    roots: tuple[str, ...]
    dtype: pl.DataType
    text: str
    elementwise: bool
    scalar: bool
    length_preserving: bool
    functions: str = ""
    process_local: bool = False


@dataclass(frozen=True, slots=True)
class Opaque(Expr):
    """An expression that only Polars can evaluate: the original one over other inputs.

    Attributes
    ----------
    inputs
        What takes the place of each of ``source.roots``.
    """

    _child_fields = ("inputs",)

    source: OpaqueSource
    inputs: tuple[Expr, ...]
