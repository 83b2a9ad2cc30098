"""Functions of texts."""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from cudf_polars.execute.gpu.translate import operators
from cudf_polars.execute.gpu.translate.casts import cast
from cudf_polars.execute.gpu.translate.functions.call import (
    Form,
    FunctionCall,
    add,
    subtract,
    where,
)
from cudf_polars.execute.gpu.translate.ranges import Range
from cudf_polars.execute.gpu.translate.regex import common_pattern, counting_pattern, escaped, plain_text
from cudf_polars.execute.gpu.translate.typed import Typed, call, condition, null
from cudf_polars.execute.gpu.translate.types import INT32
from cudf_polars.execute.gpu.translate.untranslatable import Unsupported
from cudf_polars.plan.expressions import CastMode

__all__ = ["FORMS"]

_STRING, _INT32 = pl.String(), pl.Int32()
_LENGTHS = Range((0, 2**31 - 1))
_WHITE_SPACE = "".join(
    map(
        chr,
        (
            *range(0x09, 0x0E),
            0x20,
            0x85,
            0xA0,
            0x1680,
            *range(0x2000, 0x200B),
            0x2028,
            0x2029,
            0x202F,
            0x205F,
            0x3000,
        ),
    )
)
"""What Polars strips when it is not told what: the characters with the property White_Space."""
_MOST_TEXTS = 16


def _text(c: FunctionCall, place: int = 0) -> Typed:
    value = c.column(place)
    if not isinstance(value.dtype, pl.String):
        raise Unsupported(f"{c.name} of {value.dtype}")
    return value


def _length(op: str) -> Form:
    def form(c: FunctionCall) -> Typed:
        return call("cast", (_count(op, _text(c)),), pl.UInt32(), range=_LENGTHS)

    return form


def _count(op: str, value: Typed, options: tuple[str, ...] = ()) -> Typed:
    return call(op, (value,), _INT32, options, type=INT32, range=_LENGTHS)


def _size(c: FunctionCall, value: Typed) -> Typed:
    """Return the length of texts, 0 of a null: positions must not be null."""
    size = _count("str.length", value)
    if not size.nullable:
        return size
    return call("replace_nulls", (size, c.whole(0, _INT32)), _INT32, range=_LENGTHS, nullable=False)


# --- finding ----------------------------------------------------------------------


def _contains(c: FunctionCall) -> Typed:
    value = _text(c)
    literal, _strict = c.options
    found = c.input(1)
    if found.is_null_literal:
        return null(pl.Boolean())
    if literal:
        return condition("str.has", value, found)
    pattern = c.text(1)
    plain = plain_text(pattern)
    if plain is not None:
        return condition("str.has", value, c.constants.value(plain, _STRING))
    return condition("str.contains", value, options=(common_pattern(pattern),))


def _starts(op: str) -> Form:
    def form(c: FunctionCall) -> Typed:
        other = c.input(1)
        return null(pl.Boolean()) if other.is_null_literal else condition(op, _text(c), other)

    return form


def _contains_any(c: FunctionCall) -> Typed:
    value, texts = _text(c), c.series(1)
    (ignore_case,) = c.options
    if ignore_case or texts.has_nulls() or not 0 < len(texts) <= _MOST_TEXTS:
        raise Unsupported(f"{c.name} of {len(texts)} texts, or whatever their case")
    tests = [condition("str.has", value, c.constants.value(text, _STRING)) for text in texts]
    out = tests[0]
    for test in tests[1:]:
        out = operators.any_of(out, test)
    return out


def _count_matches(c: FunctionCall) -> Typed:
    (literal,) = c.options
    pattern = c.text(1)
    plain = pattern if literal else plain_text(pattern)
    wanted = counting_pattern(pattern) if plain is None else escaped(plain)
    return call("cast", (_count("str.count", _text(c), (wanted,)),), pl.UInt32(), range=_LENGTHS)


# --- parts ----------------------------------------------------------------------


def _slice(c: FunctionCall) -> Typed:
    length = c.input(2)
    return _part(c, _text(c), c.number(1), None if length.is_null_literal else c.number(2))


def _head(c: FunctionCall) -> Typed:
    count = c.number(1)
    if count >= 0:
        return _part(c, _text(c), 0, count)
    value = _text(c)
    size = _size(c, value)
    zero = subtract(size, size)
    return _between(value, zero, _at_least_zero(c, subtract(size, c.whole(-count, _INT32))))


def _tail(c: FunctionCall) -> Typed:
    count = c.number(1)
    if count < 0:
        return _part(c, _text(c), -count, None)
    return _part(c, _text(c), -count, count)


def _part(c: FunctionCall, value: Typed, offset: int, length: int | None) -> Typed:
    """Return characters from an offset, which counts from the end if it is negative."""
    if abs(offset) >= 2**31 or (length is not None and not 0 <= length < 2**31):
        raise Unsupported("a slice of texts of this length")
    if length == 0:
        return call("str.slice", (value,), _STRING, (0, 0))
    if offset >= 0:
        stop = -1 if length is None else min(offset + length, 2**31 - 1)
        return call("str.slice", (value,), _STRING, (offset, stop))
    size = _size(c, value)
    start = subtract(size, c.whole(-offset, _INT32))
    end = size if length is None else add(start, c.whole(min(length, 2**30), _INT32))
    return _between(value, _at_least_zero(c, start), _at_least_zero(c, end))


def _at_least_zero(c: FunctionCall, number: Typed) -> Typed:
    zero = c.whole(0, _INT32)
    return where(condition("less", number, zero), zero, number)


def _between(value: Typed, start: Typed, stop: Typed) -> Typed:
    return call("str.slice_columns", (value, start, stop), _STRING, nullable=value.nullable)


def _strip(side: str) -> Form:
    def form(c: FunctionCall) -> Typed:
        value = _text(c)
        characters = _WHITE_SPACE if c.input(1).is_null_literal else c.text(1)
        return call("str.strip", (value,), _STRING, (side, characters)) if characters else value

    return form


def _strip_prefix(c: FunctionCall) -> Typed:
    value, prefix = _text(c), c.text(1)
    if not prefix:
        return value
    rest = call("str.slice", (value,), _STRING, (len(prefix), -1))
    return where(condition("str.starts_with", value, c.input(1)), rest, value)


def _strip_suffix(c: FunctionCall) -> Typed:
    value, suffix = _text(c), c.text(1)
    if not suffix:
        return value
    size = _size(c, value)
    end = _at_least_zero(c, subtract(size, c.whole(len(suffix), _INT32)))
    rest = _between(value, subtract(size, size), end)
    return where(condition("str.ends_with", value, c.input(1)), rest, value)


# --- other texts ----------------------------------------------------------------------


def _replace(c: FunctionCall) -> Typed:
    count, literal = c.options
    target, replacement = c.text(1), c.text(2)
    plain = target if literal else plain_text(target)
    if not literal and "$" in replacement:
        raise Unsupported("a replacement that names groups")
    if plain == "":
        raise Unsupported("a replacement of nothing")
    if plain is not None:
        return call("str.replace", (_text(c),), _STRING, (plain, replacement, count))
    if "\\" in replacement:
        raise Unsupported("a replacement with a backslash")
    return call("str.replace_re", (_text(c),), _STRING, (counting_pattern(target), replacement, count))


def _zfill(c: FunctionCall) -> Typed:
    width = c.number(1)
    if not 0 <= width < 2**20:
        raise Unsupported(f"texts of {width} characters")
    return call("str.zfill", (_text(c),), _STRING, (width,))


def _pad(side: str) -> Form:
    def form(c: FunctionCall) -> Typed:
        width = c.number(1)
        (fill,) = c.options
        if not 0 <= width < 2**20:
            raise Unsupported(f"texts of {width} characters")
        return call("str.pad", (_text(c),), _STRING, (width, side, fill))

    return form


def _concat(c: FunctionCall) -> Typed:
    separator, ignore_nulls = c.options
    return _joined(c, c.inputs(), separator, ignore_nulls=ignore_nulls)


def _format(c: FunctionCall) -> Typed:
    text, insertions = c.options
    raw = text.encode()  # positions are bytes
    parts: list[Typed] = []
    last = 0
    for at, value in zip(insertions, c.inputs(), strict=True):
        if at > last:
            parts.append(c.constants.value(raw[last:at].decode(), _STRING))
        parts.append(value)
        last = at
    if len(raw) > last:
        parts.append(c.constants.value(raw[last:].decode(), _STRING))
    return _joined(c, parts, "", ignore_nulls=False)


def _joined(c: FunctionCall, values: list[Typed], separator: str, *, ignore_nulls: bool) -> Typed:
    if any(v.is_null_literal for v in values) and not ignore_nulls:
        return null(_STRING)
    texts = [cast(v, _STRING, CastMode.NON_STRICT, c.constants) for v in values]
    if ignore_nulls and any(v.nullable for v in texts):
        raise Unsupported("a concatenation that ignores nulls")
    columns = [t for t in texts if t.literal is None]
    if not columns:
        raise Unsupported("a concatenation of constants")
    # constants take the length of the column beside which they stand
    valid = condition("is_valid", columns[0], nullable=False)
    parts = tuple(t if t.literal is None else where(valid, t, t) for t in texts)
    if len(parts) == 1:
        return parts[0]
    return replace(call("str.concat", parts, _STRING, (separator,)), range=Range())


FORMS: dict[str, Form] = {
    "str.len_chars": _length("str.length"),
    "str.len_bytes": _length("str.bytes"),
    "str.contains": _contains,
    "str.contains_any": _contains_any,
    "str.starts_with": _starts("str.starts_with"),
    "str.ends_with": _starts("str.ends_with"),
    "str.count_matches": _count_matches,
    "str.slice": _slice,
    "str.head": _head,
    "str.tail": _tail,
    "str.strip_chars": _strip("both"),
    "str.strip_chars_start": _strip("left"),
    "str.strip_chars_end": _strip("right"),
    "str.strip_prefix": _strip_prefix,
    "str.strip_suffix": _strip_suffix,
    "str.replace": _replace,
    "str.zfill": _zfill,
    "str.pad_start": _pad("left"),
    "str.pad_end": _pad("right"),
    "str.concat_horizontal": _concat,
    "str.format": _format,
}
