"""``cudf::strings``: positions are in characters, and cases map one character to one."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from cudf_polars.execute.gpu.program import CudfType, TypeId
from support.cudf_emulator.checks import library
from support.cudf_emulator.columns import FLOATS, INTEGERS, Values, array_of, poison, storage_of
from support.cudf_emulator.errors import refuse

__all__ = [
    "affix",
    "concat",
    "has",
    "is_float",
    "is_integer",
    "like",
    "mapped",
    "pad",
    "pattern_of",
    "recased",
    "replaced",
    "slice_columns",
    "sliced",
    "stripped",
    "text_of",
    "to_floats",
    "to_integers",
    "zfill",
]

T = TypeId
STRING, BOOL, INT32 = CudfType(T.STRING), CudfType(T.BOOL8), CudfType(T.INT32)


def _undefined() -> str:
    return str(poison(STRING, 1)[0])


def text_of(op: str, column: Values) -> Values:
    """Return a column that must be of texts."""
    if column.type != STRING:
        refuse(f"{op} is for texts, not {column.type.id.name}")
    return column


def mapped(op: str, column: Values, function: Callable[[str], Any], type: CudfType) -> Values:
    """Return what a function makes of each text."""
    values = [function(text) for text in text_of(op, column).data.tolist()]
    return Values(type, array_of(values, type), column.valid)


def _paired(op: str, a: Values, b: Values, function: Callable[[str, str], Any]) -> list[Any]:
    texts = (text_of(op, c).data.tolist() for c in (a, b))
    return [function(x, y) for x, y in zip(*texts, strict=True)]


def has(a: Values, target: Values) -> Values:
    """Return whether texts hold others; a null target gives null."""
    found = _paired("str.has", a, target, lambda text, part: part in text)
    return Values(BOOL, np.array(found, dtype=np.bool_), a.valid & target.valid)


def affix(op: str, a: Values, target: Values) -> Values:
    """Return whether texts start or end with others; a null target gives null."""
    test = str.startswith if op == "str.starts_with" else str.endswith
    found = _paired(op, a, target, test)
    return Values(BOOL, np.array(found, dtype=np.bool_), a.valid & target.valid)


def recased(op: str, a: Values) -> Values:
    """Return texts in another case. What Unicode maps to several characters has none here: undefined."""
    one = str.upper if op == "str.upper" else str.lower

    @functools.cache
    def change(character: str) -> str:
        changed = one(character)
        return changed if len(changed) == 1 else _undefined()

    def convert(text: str) -> str:
        return one(text) if text.isascii() else "".join(map(change, text))

    return mapped(op, a, convert, STRING)


def sliced(a: Values, start: int, stop: int) -> Values:
    """Return the characters from ``start`` to ``stop``; -1: to the end."""
    if start < 0 or stop < -1 or 0 <= stop < start:
        refuse(f"a slice of texts from {start} to {stop}")
    end = None if stop == -1 else stop
    return mapped("str.slice", a, lambda text: text[start:end], STRING)


def slice_columns(a: Values, starts: Values, stops: Values) -> Values:
    """Return the characters of each text between its own two positions."""
    if starts.type != stops.type or starts.type.id not in INTEGERS:
        refuse(f"str.slice_columns needs positions of one integer type, not {starts.type} and {stops.type}")
    if not (starts.valid.all() and stops.valid.all()):
        refuse("str.slice_columns: positions have no nulls")
    texts = text_of("str.slice_columns", a).data.tolist()
    cut = []
    for text, start, stop in zip(texts, starts.data.tolist(), stops.data.tolist(), strict=True):
        if start < 0 or stop < -1:
            cut.append(_undefined())
        else:
            cut.append(text[start : None if stop == -1 else stop])
    return Values(STRING, array_of(cut, STRING), a.valid)


def concat(columns: Sequence[Values], separator: str) -> Values:
    """Return the texts of rows one after another; null if one is null."""
    if len(columns) < 2:
        refuse("str.concat needs two columns")
    texts = [text_of("str.concat", c).data.tolist() for c in columns]
    joined = [separator.join(row) for row in zip(*texts, strict=True)]
    valid = np.logical_and.reduce([c.valid for c in columns])
    return Values(STRING, array_of(joined, STRING), valid)


# --- regular expressions ----------------------------------------------------------------------


@functools.cache
def pattern_of(pattern: str) -> re.Pattern[str]:
    """Return a regular expression that libcudf takes as Python's, which means the same where both take it."""
    plc = library()
    if plc is not None:
        flags = plc.strings.regex_flags.RegexFlags.DEFAULT
        try:
            plc.strings.regex_program.RegexProgram.create(pattern, flags)
        except RuntimeError as error:
            refuse(f"libcudf does not take the pattern {pattern!r}: {error}")
    if "[[" in pattern or "&&" in pattern:  # accepted, but the headers do not say what they mean
        refuse(f"what libcudf finds by {pattern!r} is not known")
    try:
        return re.compile(pattern)
    except re.error as error:
        refuse(f"the pattern {pattern!r}: {error}")


def like(a: Values, pattern: str, escape: str) -> Values:
    """Return whether whole texts match a pattern of ``%`` and ``_``."""
    if len(escape.encode()) > 1:
        refuse("the escape character of str.like has one byte")
    parts, escaped = [], False
    for character in pattern:
        if escape and character == escape and not escaped:
            escaped = True
            continue
        wild = {"%": ".*", "_": "."}.get(character)
        parts.append(wild if wild and not escaped else re.escape(character))
        escaped = False
    whole = re.compile("".join(parts), re.DOTALL)
    return mapped("str.like", a, lambda text: whole.fullmatch(text) is not None, BOOL)


def replaced(a: Values, target: str, by: str, count: int) -> Values:
    """Return texts with another text in the place of one."""
    if not target:
        refuse("str.replace needs a target")
    return mapped("str.replace", a, lambda text: text.replace(target, by, count), STRING)


# --- forms ----------------------------------------------------------------------

_SPACE = "".join(map(chr, range(0x21)))


def stripped(a: Values, side: str, characters: str) -> Values:
    """Return texts without some characters at their ends; by default spaces and control characters, of ASCII only."""
    cut = {"both": str.strip, "left": str.lstrip, "right": str.rstrip}.get(side)
    if cut is None:
        refuse(f"str.strip: there is no side {side!r}")
    return mapped("str.strip", a, lambda text: cut(text, characters or _SPACE), STRING)


def zfill(a: Values, width: int) -> Values:
    """Return texts with zeros in front, after a sign."""

    def fill(text: str) -> str:
        missing = "0" * (width - len(text))
        return text[0] + missing + text[1:] if text[:1] in ("+", "-") else missing + text

    return mapped("str.zfill", a, fill, STRING)


def pad(a: Values, width: int, side: str, fill: str) -> Values:
    """Return texts of at least ``width`` characters."""
    if len(fill) != 1:
        refuse("str.pad fills with one character")
    place = {"left": str.rjust, "right": str.ljust}.get(side)
    if place is None:
        refuse(f"str.pad: the side {side!r} is not emulated")
    return mapped("str.pad", a, lambda text: place(text, width, fill), STRING)


# --- numbers ----------------------------------------------------------------------

_INTEGER = re.compile(r"[-+]?[0-9]+")
_LEADING = re.compile(r"[-+]?[0-9]*")
_FLOAT = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")


def is_integer(a: Values, type: CudfType | None) -> Values:
    """Return whether texts are integers, that fit a type if there is one."""
    limits = None if type is None else np.iinfo(storage_of(type.id))

    def test(text: str) -> bool:
        if not _INTEGER.fullmatch(text):
            return False
        return limits is None or limits.min <= int(text) <= limits.max

    return mapped("str.is_integer", a, test, BOOL)


def to_integers(a: Values, type: CudfType) -> Values:
    """Return the integers that texts start with; what does not fit is undefined, and so is a text without digits."""
    if type.id not in INTEGERS:
        refuse(f"str.to_integers gives integers, not {type.id.name}")
    limits, bad = np.iinfo(storage_of(type.id)), poison(type, 1)[0]

    def convert(text: str) -> int:
        found = _LEADING.match(text)
        assert found is not None
        digits = found.group()
        if digits in ("", "+", "-"):
            return int(bad)
        return int(digits) if limits.min <= int(digits) <= limits.max else int(bad)

    return mapped("str.to_integers", a, convert, type)


def is_float(a: Values) -> Values:
    """Return whether texts are floats, loosely: words for infinities and NaN, and halves of exponents, pass too."""
    words = ("nan", "inf", "infinity")

    def test(text: str) -> bool:
        if text.lower().lstrip("+-") in words:
            return True
        return bool(_FLOAT.match(text)) and set(text) <= set("+-0123456789eE.")

    return mapped("str.is_float", a, test, BOOL)


def to_floats(a: Values, type: CudfType) -> Values:
    """Return texts as floats; what is none is undefined."""
    if type.id not in FLOATS:
        refuse(f"str.to_floats gives floats, not {type.id.name}")
    bad = float(poison(type, 1)[0])
    return mapped("str.to_floats", a, lambda text: float(text) if _FLOAT.fullmatch(text) else bad, type)
