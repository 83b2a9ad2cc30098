"""Expressions of a program over a chunk of rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from cudf_polars.execute.gpu.primitives import PRIMITIVES
from cudf_polars.execute.gpu.program import Call, Column, Constant, CudfType, TypeId, Value
from support.cudf_emulator import casts, choices, nested, numbers, texts, times
from support.cudf_emulator.columns import INTEGERS, Values, array_of, nulls
from support.cudf_emulator.errors import refuse

__all__ = ["Evaluator"]

Options: TypeAlias = tuple[int | float | str, ...]
STRING, BOOL, INT32 = CudfType(TypeId.STRING), CudfType(TypeId.BOOL8), CudfType(TypeId.INT32)


class Evaluator:
    """Computes expressions over one chunk; equal ones once.

    Parameters
    ----------
    columns
        The chunk's.
    constants
        The program's, by number and type.
    rows
        The chunk's rows.
    """

    def __init__(self, columns: Sequence[Values], constants: Callable[[Constant], Values], rows: int) -> None:
        self._columns = columns
        self._constants = constants
        self._rows = rows
        self._done: dict[Call, Values] = {}

    def column(self, value: Value) -> Values:
        """Return the values of an expression, one for each row.

        Raises
        ------
        ProgramError
            If libcudf does not do what is asked.
        """
        match value:
            case Column(index, type):
                if not 0 <= index < len(self._columns):
                    refuse(f"there is no column {index}")
                found = self._columns[index]
                if found.type != type:
                    refuse(f"column {index} has the type {found.type}, and the program says {type}")
                return found
            case Constant():  # fills the chunk's length
                scalar = self._scalar(value)
                return scalar.take(np.zeros(self._rows, dtype=np.int64))
            case Call():
                if value not in self._done:
                    self._done[value] = self._call(value)
                return self._done[value]

    def _scalar(self, value: Constant) -> Values:
        found = self._constants(value)
        if len(found) != 1:
            refuse("a set of values where a scalar is meant")
        return found

    def _call(self, call: Call) -> Values:
        primitive = PRIMITIVES.get(call.op)
        if primitive is None:
            refuse(f"there is no primitive {call.op!r}")
        if primitive.arity is not None and primitive.arity != len(call.args):
            refuse(f"{call.op} takes {primitive.arity} arguments, not {len(call.args)}")
        made = self._made(call)
        if made.type != call.type:
            refuse(f"{call.op} gives {made.type}, and the program says {call.type}")
        if len(made) != self._rows:
            refuse(f"{call.op} gave {len(made)} rows for {self._rows}")
        return made

    def _made(self, call: Call) -> Values:
        op, args, type, options = call.op, call.args, call.type, call.options
        if op == "null":
            return nulls(type, self._rows)
        if op == "contains":
            haystack, needles = args
            if not isinstance(haystack, Constant):
                refuse("contains looks into a constant")
            return choices.contains(self._constants(haystack), self.column(needles))
        if op == "clamp":
            column, *limits = args
            scalars = [self._scalar(limit) for limit in limits if isinstance(limit, Constant)]
            if len(scalars) != 2:
                refuse("clamp has constant limits")
            return choices.clamp(self.column(column), *scalars)
        columns = [self.column(arg) for arg in args]
        if op in numbers.BINARY:
            return numbers.binary(op, columns[0], columns[1], type)
        if op in numbers.UNARY:
            return numbers.unary(op, columns[0], type)
        return _FORMS[op](columns, options, type)


Form: TypeAlias = Callable[[list[Values], Options, CudfType], Values]


def _plain(function: Callable[..., Values]) -> Form:
    """Return the form of a function of columns alone."""
    return lambda columns, options, type: function(*columns)


def _with_options(function: Callable[..., Values]) -> Form:
    return lambda columns, options, type: function(*columns, *options)


def _typed(function: Callable[..., Values]) -> Form:
    """Return the form of a function that is told the type of its result."""
    return lambda columns, options, type: function(*columns, *options, type)


def _is_integer(columns: list[Values], options: Options, type: CudfType) -> Values:
    (text,) = columns
    return texts.is_integer(text, CudfType(TypeId(int(options[0]))) if options else None)


def _search(columns: list[Values], options: Options, type: CudfType) -> Values:
    pattern = texts.pattern_of(str(options[0]))
    return texts.mapped("str.contains", columns[0], lambda text: pattern.search(text) is not None, BOOL)


def _matches(columns: list[Values], options: Options, type: CudfType) -> Values:
    pattern = texts.pattern_of(str(options[0]))
    return texts.mapped("str.matches", columns[0], lambda text: pattern.match(text) is not None, BOOL)


def _count(columns: list[Values], options: Options, type: CudfType) -> Values:
    pattern = texts.pattern_of(str(options[0]))
    return texts.mapped("str.count", columns[0], lambda text: sum(1 for _ in pattern.finditer(text)), INT32)


def _replace_re(columns: list[Values], options: Options, type: CudfType) -> Values:
    source, by, count = options
    pattern = texts.pattern_of(str(source))
    most = int(count)
    if most == 0:
        return columns[0]
    return texts.mapped(
        "str.replace_re",
        columns[0],
        lambda text: pattern.sub(lambda _: str(by), text, count=max(most, 0)),
        STRING,
    )


def _from_integers(columns: list[Values], options: Options, type: CudfType) -> Values:
    (a,) = columns
    if a.type.id not in INTEGERS:
        refuse(f"str.from_integers is for integers, not {a.type.id.name}")
    return Values(STRING, array_of(list(map(str, a.data.tolist())), STRING), a.valid)


def _from_booleans(columns: list[Values], options: Options, type: CudfType) -> Values:
    (a,) = columns
    if a.type != BOOL:
        refuse(f"str.from_booleans is for BOOL8, not {a.type.id.name}")
    return Values(STRING, array_of(["true" if x else "false" for x in a.data.tolist()], STRING), a.valid)


def _text(op: str, function: Callable[[str], object], type: CudfType) -> Form:
    return lambda columns, options, _: texts.mapped(op, columns[0], function, type)


_FORMS: dict[str, Form] = {
    "is_null": lambda c, o, t: choices.is_null(c[0], null=True),
    "is_valid": lambda c, o, t: choices.is_null(c[0], null=False),
    "is_nan": lambda c, o, t: choices.is_nan(c[0], nan=True),
    "is_not_nan": lambda c, o, t: choices.is_nan(c[0], nan=False),
    "cast": _typed(casts.cast),
    "bit_cast": _typed(casts.bit_cast),
    "round": _typed(casts.round_),
    "round_decimal": _typed(casts.round_decimal),
    "copy_if_else": _plain(choices.copy_if_else),
    "replace_nulls": _plain(choices.replace_nulls),
    "nans_to_nulls": _plain(choices.nans_to_nulls),
    "normalize_nans_and_zeros": _plain(choices.normalize_nans_and_zeros),
    "str.length": _text("str.length", len, INT32),
    "str.bytes": _text("str.bytes", lambda text: len(text.encode()), INT32),
    "str.contains": _search,
    "str.matches": _matches,
    "str.count": _count,
    "str.like": _with_options(texts.like),
    "str.find": lambda c, o, t: texts.mapped("str.find", c[0], lambda text: text.find(str(o[0])), INT32),
    "str.has": _plain(texts.has),
    "str.starts_with": lambda c, o, t: texts.affix("str.starts_with", c[0], c[1]),
    "str.ends_with": lambda c, o, t: texts.affix("str.ends_with", c[0], c[1]),
    "str.upper": lambda c, o, t: texts.recased("str.upper", c[0]),
    "str.lower": lambda c, o, t: texts.recased("str.lower", c[0]),
    "str.slice": _with_options(texts.sliced),
    "str.slice_columns": _plain(texts.slice_columns),
    "str.concat": lambda c, o, t: texts.concat(c, str(o[0])),
    "str.replace": _with_options(texts.replaced),
    "str.replace_re": _replace_re,
    "str.strip": _with_options(texts.stripped),
    "str.zfill": _with_options(texts.zfill),
    "str.pad": _with_options(texts.pad),
    "str.repeat": lambda c, o, t: texts.mapped("str.repeat", c[0], lambda text: text * int(o[0]), STRING),
    "str.reverse": _text("str.reverse", lambda text: text[::-1], STRING),
    "str.is_integer": _is_integer,
    "str.to_integers": _typed(texts.to_integers),
    "str.is_float": _plain(texts.is_float),
    "str.to_floats": _typed(texts.to_floats),
    "str.from_integers": _from_integers,
    "str.from_booleans": _from_booleans,
    "str.to_timestamps": _typed(times.to_timestamps),
    "str.is_timestamp": _with_options(times.is_timestamp),
    "str.from_timestamps": _with_options(times.from_timestamps),
    "dt.component": _with_options(times.component),
    "dt.day_of_year": _plain(times.day_of_year),
    "dt.last_day_of_month": _plain(times.last_day_of_month),
    "dt.is_leap_year": _plain(times.is_leap_year),
    "dt.days_in_month": _plain(times.days_in_month),
    "dt.quarter": _plain(times.quarter),
    "dt.add_months": _plain(times.add_months),
    "dt.floor": _with_options(times.floor),
    "list.length": _plain(nested.length),
    "list.contains": _plain(nested.contains),
    "list.get": _with_options(nested.get),
    "list.sum": lambda c, o, t: nested.reduce("list.sum", c[0], t),
    "list.min": lambda c, o, t: nested.reduce("list.min", c[0], t),
    "list.max": lambda c, o, t: nested.reduce("list.max", c[0], t),
    "struct.field": _with_options(nested.field),
}
