"""Random typed expressions over the columns of a frame, as Polars has them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeAlias, TypeVar

import polars as pl
from execute.gpu.choices import Choices
from execute.gpu.drawn_frames import POOLS

__all__ = ["Expressions"]

X = TypeVar("X")
Maker: TypeAlias = "Callable[[Expressions, int], pl.Expr]"

INTS = tuple(k for k in POOLS if "Int" in k)
FLOATS = ("Float64", "Float32")
NUMBERS = (*INTS, *FLOATS)
DECIMALS = ("Decimal 2", "Decimal 4")
DATETIMES = ("Datetime ms", "Datetime us", "Datetime ns")
DURATIONS = ("Duration us", "Duration ms")
TIMES = ("Date", *DATETIMES)
_PATTERNS = ("a", "^a", "b$", "a.b?", "[ab]+", "a|b", "(ab)+", "[^a]", "a{2}", "x.y", " ", "\\.", "ß|€")


@dataclass
class Expressions:
    """Draws expressions.

    Parameters
    ----------
    choices
        What decides.
    columns
        The names of the columns, by the name of their type.
    """

    choices: Choices
    columns: Mapping[str, Sequence[str]]

    @property
    def kinds(self) -> tuple[str, ...]:
        """The types of columns."""
        return tuple(self.columns)

    def pick(self, *values: X) -> X:
        """Draw one of some values."""
        return self.choices.pick(*values)

    def flag(self) -> bool:
        """Draw true or false."""
        return self.choices.pick(False, True)

    def some(self, wanted: Sequence[str]) -> tuple[str, ...]:
        """Return those types of ``wanted`` of which there are columns."""
        return tuple(kind for kind in wanted if kind in self.columns)

    # --- leaves ----------------------------------------------------------------------

    def column(self, kind: str) -> pl.Expr:
        """Return a column of a type; without one, a literal."""
        names = self.columns.get(kind)
        return pl.col(self.pick(*names)) if names else self.literal(kind)

    def value(self, kind: str) -> Any:
        """Return a value of a type, as Python has it."""
        dtype, pool = POOLS[kind]
        value = self.pick(*pool)
        if isinstance(dtype, pl.Datetime | pl.Duration):
            return pl.Series([value]).cast(dtype).item()
        return value

    def literal(self, kind: str) -> pl.Expr:
        """Return a literal of a type."""
        dtype, pool = POOLS[kind]
        value = self.pick(*pool)
        if isinstance(dtype, pl.Datetime | pl.Duration):
            return pl.lit(value).cast(dtype)
        if isinstance(dtype, pl.Decimal):
            return pl.lit(Decimal(value), dtype=dtype)
        return pl.lit(value, dtype=dtype)

    def leaf(self, kind: str) -> pl.Expr:
        """Return a column, or now and then a literal."""
        return self.column(kind) if self.choices.below(10) else self.literal(kind)

    # --- trees ----------------------------------------------------------------------

    def of(self, kind: str, depth: int) -> pl.Expr:
        """Return an expression of a type."""
        if depth <= 0 or self.pick(0, 0, 1):
            return self.leaf(kind)
        makers = [self._chosen]
        if kind in INTS:
            makers += [self._integer, self._integer, self._number, self._made_integer]
        elif kind in FLOATS:
            makers += [self._float, self._number]
        elif kind == "Boolean":
            makers += [
                self._compared,
                self._compared,
                self._logical,
                self._logical,
                self._tested,
                self._found,
            ]
        elif kind == "String":
            makers += [self._text, self._text]
        elif kind in DECIMALS:
            makers += [self._decimal]
        else:
            makers += [self._time]
        return self.pick(*makers)(kind, depth - 1)

    def any(self, depth: int) -> pl.Expr:
        """Return an expression of the type of some column, or a condition."""
        return self.of(self.pick(*self.kinds, "Boolean"), depth)

    def condition(self, depth: int) -> pl.Expr:
        """Return a condition that is no constant."""
        makers = (self._compared, self._compared, self._logical, self._tested, self._found)
        return self.pick(*makers)("Boolean", depth - 1)

    def _chosen(self, kind: str, depth: int) -> pl.Expr:
        match self.pick(*range(3)):
            case 0:
                return self.of(kind, depth).fill_null(self.of(kind, depth - 1))
            case 1:
                return pl.coalesce(self.of(kind, depth), self.leaf(kind))
            case _:
                other = pl.lit(None) if self.pick(0, 0, 1) else self.of(kind, depth)
                return pl.when(self.of("Boolean", depth)).then(self.of(kind, depth)).otherwise(other)

    # --- numbers ----------------------------------------------------------------------

    def _number(self, kind: str, depth: int) -> pl.Expr:
        a = self.of(kind, depth)
        match self.pick(*range(8)):
            case 0:
                return a.abs()
            case 1:
                return a.clip(self.value(kind), None) if self.flag() else a.clip(upper_bound=self.value(kind))
            case 2:
                return pl.min_horizontal(a, self.column(kind))
            case 3:
                return pl.max_horizontal(a, self.column(kind))
            case 4:
                return a.sign()
            case 5:
                return -a
            case 6:
                return self.cast(kind, depth)
            case _:
                return a.replace(self.value(kind), self.value(kind))

    def cast(self, kind: str, depth: int) -> pl.Expr:
        """Return a cast to a type of numbers, with nulls for what does not fit."""
        sources = self.some((*NUMBERS, "Boolean", *DECIMALS)) or (kind,)
        source = self.pick(*sources)
        strict = source == "Boolean" or (source in INTS and kind in FLOATS)
        return self.of(source, depth).cast(POOLS[kind][0], strict=strict)

    def _integer(self, kind: str, depth: int) -> pl.Expr:
        a, b = self.of(kind, depth), self.of(kind, depth)
        match self.pick(*range(8)):
            case 0:
                return a + b
            case 1:
                return a - b
            case 2:
                return a * b
            case 3:
                return a // b
            case 4:
                return a % b
            case 5:
                return a & b
            case 6:
                return a | b
            case _:
                return a ^ b if self.flag() else ~a

    def _made_integer(self, kind: str, depth: int) -> pl.Expr:
        sources = self.some(("String", *TIMES, *DURATIONS))
        if not sources:
            return self._integer(kind, depth)
        source = self.pick(*sources)
        a = self.of(source, depth)
        if source == "String":
            found = a.str.count_matches(self.pick(*_PATTERNS))
            made = self.pick(a.str.len_chars(), a.str.len_bytes(), found)
        elif source in DURATIONS:
            made = self._part(a, "total_days", "total_hours", "total_seconds", "total_milliseconds")
        else:
            parts = [
                "year",
                "month",
                "day",
                "weekday",
                "ordinal_day",
                "quarter",
                "week",
                "days_in_month",
                "iso_year",
            ]
            if source in DATETIMES:
                parts += ["hour", "minute", "second", "millisecond", "microsecond", "nanosecond", "timestamp"]
            made = self._part(a, *parts)
        return made.cast(POOLS[kind][0], strict=False)

    def _part(self, a: pl.Expr, *names: str) -> pl.Expr:
        made: pl.Expr = getattr(a.dt, self.pick(*names))()
        return made

    def _float(self, kind: str, depth: int) -> pl.Expr:
        a, b = self.of(kind, depth), self.of(kind, depth)
        match self.pick(*range(9)):
            case 0:
                return a + b
            case 1:
                return a - b
            case 2:
                return a * b
            case 3:
                return a / self.pick(0.5, 2.0, -4.0)  # what is exact
            case 4:
                return a.floor()
            case 5:
                return a.ceil()
            case 6:
                return a.round(0)
            case 7:
                return a // self.pick(0.5, 2.0, -4.0)
            case _:
                return a % self.pick(0.5, 2.0, -4.0)

    def rounded(self, depth: int) -> pl.Expr:
        """Return floats whose last digits may differ: nothing may be computed of them."""
        kinds = self.some(FLOATS) or self.some(NUMBERS)
        if not kinds:
            return self.any(depth)
        a, b = self.of(self.pick(*kinds), depth), self.of(self.pick(*kinds), depth)
        match self.pick(*range(6)):
            case 0:
                return a / b
            case 1:
                return a.sqrt()
            case 2:
                return (a.clip(-8, 8) if kinds[0] in FLOATS else a).exp()
            case 3:
                return a.log(self.pick(2.0, 10.0))
            case 4:
                return pl.mean_horizontal(a, b)
            case _:
                return a.cbrt()

    def _decimal(self, kind: str, depth: int) -> pl.Expr:
        a, b = self.column(self.pick(*DECIMALS)), self.leaf(self.pick(*DECIMALS))
        match self.pick(*range(4)):
            case 0:
                return a + b
            case 1:
                return a - b
            case 2:
                return a * b
            case _:
                return self.column(kind).round(self.pick(0, 1))

    # --- conditions ----------------------------------------------------------------------

    def _compared(self, kind: str, depth: int) -> pl.Expr:
        which = self.pick(*self.kinds)
        if {"Int64", "UInt64"} <= set(self.kinds) and self.pick(0, 0, 1):
            a, b = self.column("Int64"), self.column("UInt64")
        else:
            a, b = self.of(which, depth), self.of(which, depth)
        operator = self.pick("eq", "ne", "lt", "le", "gt", "ge", "eq_missing", "ne_missing")
        made: pl.Expr = getattr(a, operator)(b)
        return made

    def _logical(self, kind: str, depth: int) -> pl.Expr:
        a, b = self.of("Boolean", depth), self.of("Boolean", depth)
        match self.pick(*range(6)):
            case 0 | 1:
                return a & b
            case 2 | 3:
                return a | b
            case 4:
                return a ^ b
            case _:
                return ~a

    def _tested(self, kind: str, depth: int) -> pl.Expr:
        which = self.pick(*self.kinds)
        a = self.of(which, depth)
        match self.pick(*range(5)):
            case 0:
                return a.is_null()
            case 1:
                return a.is_not_null()
            case 2 if which in FLOATS:
                test = self.pick("is_nan", "is_not_nan", "is_finite", "is_infinite")
                tested: pl.Expr = getattr(a, test)()
                return tested
            case 3:
                closed: Any = self.pick("both", "left", "right", "none")
                return a.is_between(self.leaf(which), self.leaf(which), closed)
            case _:
                values: list[Any] = [self.value(which) for _ in range(self.pick(0, 1, 2, 3))]
                if self.flag():
                    values.append(None)
                haystack = pl.Series(values, dtype=POOLS[which][0])
                return a.is_in(haystack.implode(), nulls_equal=self.flag())

    def _found(self, kind: str, depth: int) -> pl.Expr:
        if "String" not in self.columns:
            return self._tested(kind, depth)
        text = self.of("String", depth).str
        match self.pick(*range(5)):
            case 0:
                return text.contains(self.pick(*_PATTERNS))
            case 1:
                return text.contains(self.leaf("String"), literal=True)
            case 2:
                return text.starts_with(self.leaf("String"))
            case 3:
                return text.ends_with(self.leaf("String"))
            case _:
                return text.contains_any(["a", self.pick("b", "ß", "")])

    # --- texts ----------------------------------------------------------------------

    def _text(self, kind: str, depth: int) -> pl.Expr:
        a = self.of("String", depth)
        match self.pick(*range(13)):
            case 0:
                return a + self.of("String", depth)
            case 1:
                return a.str.slice(self.pick(0, 1, 2, 5, -1, -2), self.pick(None, 0, 1, 3))
            case 2:
                return a.str.head(self.pick(0, 1, 2, -1))
            case 3:
                return a.str.tail(self.pick(0, 1, 2, -1))
            case 4:
                return a.str.strip_chars(self.pick(None, "a", "ab", " "))
            case 5:
                return a.str.strip_prefix(self.pick("a", "", "ä"))
            case 6:
                return a.str.strip_suffix(self.pick("b", "", "€"))
            case 7:
                return a.str.replace(self.pick("a", "b", "€"), self.pick("", "xy"), literal=True)
            case 8:
                return a.str.replace_all(self.pick(*_PATTERNS), self.pick("", "-"))
            case 9:
                return a.str.zfill(self.pick(0, 3, 5))
            case 10:
                return a.str.pad_start(4, "*") if self.flag() else a.str.pad_end(4, "é")
            case 11:
                others = self.some((*INTS, "Boolean"))
                return self.of(self.pick(*others), depth).cast(pl.String) if others else a
            case _:
                return pl.concat_str(a, self.of("String", depth), separator="-")

    # --- times ----------------------------------------------------------------------

    def _time(self, kind: str, depth: int) -> pl.Expr:
        a = self.column(kind)
        if kind in DURATIONS:
            b = self.leaf(kind)
            return self.pick(a + b, a - b, -a, a.abs())
        whole: list[pl.Expr] = [
            a.dt.offset_by(self.pick("1d", "-3d", "2w", "1mo", "-1y", "3q")),
            a.dt.truncate(self.pick("1d", "1mo", "1w", "1y", "2d")),
            a.dt.month_start(),
            a.dt.month_end(),
        ]
        if kind == "Date":
            dates = [self.column(k).dt.date() for k in self.some(DATETIMES)]
            return self.pick(*whole, *dates)
        unit = kind.split()[1]
        spans = [a + self.leaf(k) for k in self.some(DURATIONS) if k.endswith(unit)]
        return self.pick(
            *whole, *spans, a.dt.offset_by("90m"), a.dt.truncate("15m"), a + dt.timedelta(hours=-3)
        )

    # --- aggregates ----------------------------------------------------------------------

    def aggregate(self, depth: int, *, ordered: bool) -> pl.Expr:
        """Return an aggregate; ``ordered``: the rows have an order, so that there is a first one."""
        kind = self.pick(*self.kinds)
        general: list[Callable[[], pl.Expr]] = [
            lambda: self.of(kind, depth).count(),
            lambda: self.of(kind, depth).len(),
            lambda: self.column(kind).null_count(),
            lambda: self.of(kind, depth).n_unique(),
            lambda: self.of(kind, depth).filter(self.condition(depth)).len(),
            lambda: pl.len(),
        ]
        if kind != "Boolean" and kind not in DURATIONS:
            general += [lambda: self.of(kind, depth).min(), lambda: self.of(kind, depth).max()]
        if ordered:
            general += [lambda: self.column(kind).first(), lambda: self.column(kind).last()]
        if kind == "Boolean":
            general += [
                lambda: self.of(kind, depth).any(ignore_nulls=self.flag()),
                lambda: self.of(kind, depth).all(ignore_nulls=self.flag()),
                lambda: self.of(kind, depth).sum(),
                lambda: self.of(kind, depth).mean(),
            ]
        elif kind in FLOATS:
            general += [
                lambda: self.column(kind).sum(),
                lambda: self.column(kind).mean(),
                lambda: self.column(kind).median(),
                lambda: self._spread(self.column(kind)),
            ]
        elif kind in INTS:
            ways: tuple[Any, ...] = ("nearest", "lower", "higher", "midpoint", "linear")
            general += [
                lambda: self.of(kind, depth).sum(),
                lambda: self.of(kind, depth).sum(),
                lambda: self.column(kind).filter(self.condition(depth)).sum(),
                lambda: self._small(kind).mean(),
                lambda: self._small(kind).median(),
                lambda: self._spread(self._small(kind)),
                lambda: self._small(kind).quantile(self.pick(0.0, 0.25, 0.5, 0.9, 1.0), self.pick(*ways)),
            ]
        elif kind in DECIMALS:
            general += [lambda: self.of(kind, depth).sum(), lambda: self.column(kind).mean()]
        return self.pick(*general)()

    def _small(self, kind: str) -> pl.Expr:
        """Return numbers that are no larger than what floats hold exactly."""
        return self.column(kind) % 100

    def _spread(self, a: pl.Expr) -> pl.Expr:
        ddof = self.pick(0, 1, 2)
        return a.std(ddof) if self.flag() else a.var(ddof)
