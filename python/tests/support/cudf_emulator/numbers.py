"""Arithmetic and comparisons: ``binary_operation`` and ``unary_operation``."""

from __future__ import annotations

import operator
from collections.abc import Callable

import numpy as np

from cudf_polars.execute.gpu.program import CudfType, TypeId
from support.cudf_emulator.checks import check_binary
from support.cudf_emulator.columns import (
    DECIMALS,
    DURATIONS,
    FLOATS,
    INTEGERS,
    TIMESTAMPS,
    Array,
    Values,
    is_decimal,
    narrowed,
    poison,
    storage_of,
)
from support.cudf_emulator.errors import refuse

__all__ = ["BINARY", "UNARY", "binary", "rescaled", "truncated", "unary"]

T = TypeId
BINARY = {
    "add": "ADD",
    "sub": "SUB",
    "mul": "MUL",
    "div": "DIV",
    "true_div": "TRUE_DIV",
    "floor_div": "FLOOR_DIV",
    "mod": "MOD",
    "pymod": "PYMOD",
    "pow": "POW",
    "int_pow": "INT_POW",
    "atan2": "ATAN2",
    "equal": "EQUAL",
    "not_equal": "NOT_EQUAL",
    "less": "LESS",
    "greater": "GREATER",
    "less_equal": "LESS_EQUAL",
    "greater_equal": "GREATER_EQUAL",
    "null_equals": "NULL_EQUALS",
    "null_not_equals": "NULL_NOT_EQUALS",
    "null_max": "NULL_MAX",
    "null_min": "NULL_MIN",
    "null_logical_and": "NULL_LOGICAL_AND",
    "null_logical_or": "NULL_LOGICAL_OR",
    "bitwise_and": "BITWISE_AND",
    "bitwise_or": "BITWISE_OR",
    "bitwise_xor": "BITWISE_XOR",
    "shift_left": "SHIFT_LEFT",
    "shift_right": "SHIFT_RIGHT",
}
"""The primitives that are binary operations, with libcudf's names."""

_COMPARISONS: dict[str, Callable[[Array, Array], Array]] = {
    "equal": operator.eq,
    "not_equal": operator.ne,
    "less": operator.lt,
    "greater": operator.gt,
    "less_equal": operator.le,
    "greater_equal": operator.ge,
}
_BITWISE: dict[str, Callable[[Array, Array], Array]] = {
    "bitwise_and": operator.and_,
    "bitwise_or": operator.or_,
    "bitwise_xor": operator.xor,
}
_TICKS = {"DAYS": 1, "SECONDS": 86_400, "MILLISECONDS": 86_400_000}
_TICKS |= {"MICROSECONDS": 86_400 * 10**6, "NANOSECONDS": 86_400 * 10**9}


def binary(op: str, a: Values, b: Values, type: CudfType) -> Values:
    """Return a binary operation of two columns of one length, as libcudf computes it."""
    check_binary(BINARY[op], a.type, b.type, type)
    if op in ("null_logical_and", "null_logical_or"):
        return _kleene(op, a, b, type)
    if op in ("null_equals", "null_not_equals"):
        return _null_safe(op, a, b, type)
    if op in ("null_max", "null_min"):
        return _null_extreme(op, a, b, type)
    valid = a.valid & b.valid
    if op in _COMPARISONS:
        _expect(op, CudfType(T.BOOL8), type)
        left, right = _comparable(a, b)
        return Values(type, _compare(_COMPARISONS[op], left, right), valid)
    if is_decimal(a.type) or is_decimal(b.type):
        return Values(type, _decimals(op, a, b, type), valid)
    if a.type.id in (*TIMESTAMPS, *DURATIONS) or b.type.id in (*TIMESTAMPS, *DURATIONS):
        return Values(type, _times(op, a, b, type), valid)
    common = _common_type(a.type, b.type)
    if op == "true_div":
        if type.id not in FLOATS:
            refuse(f"{op} gives floats, not {type.id.name}")
        quotient = _divided(a.data.astype(np.float64), b.data.astype(np.float64))
        return Values(type, quotient.astype(storage_of(type.id)), valid)
    if op in ("pow", "atan2") and common.id not in FLOATS:
        refuse(f"{op} is emulated for floats only")
    _expect(op, common, type)
    left, right = (_as(column.data, common) for column in (a, b))
    if common.id in FLOATS:
        return Values(type, _floats(op, left, right).astype(left.dtype), valid)
    return Values(type, _integers(op, left, right, common), valid)


def _expect(op: str, wanted: CudfType, type: CudfType) -> None:
    if wanted != type:
        refuse(f"{op} gives {wanted}, and the program says {type}")


def _as(data: Array, type: CudfType) -> Array:
    with np.errstate(all="ignore"):
        return data.astype(storage_of(type.id), copy=False)


_WIDTH = {t: storage_of(t).itemsize for t in (*INTEGERS, *FLOATS, T.BOOL8)}


def _common_type(a: CudfType, b: CudfType) -> CudfType:
    """Return the common type of two numbers as C++ has it, but for the promotion of what is alike."""
    if a == b:
        return a
    both = (a.id, b.id)
    if any(i not in _WIDTH for i in both):
        refuse(f"there is no common type of {a.id.name} and {b.id.name}")
    for float_ in (T.FLOAT64, T.FLOAT32):
        if float_ in both:
            return CudfType(float_)
    # C++ promotes what is narrower than an int, then takes the wider, and of the same width the unsigned one.
    promoted = [i if _WIDTH[i] >= 4 else T.INT32 for i in both]
    width = max(_WIDTH[i] for i in promoted)
    widest = [i for i in promoted if _WIDTH[i] == width]
    unsigned = [i for i in widest if i.name.startswith("U")]
    return CudfType((unsigned or widest)[0])


# --- comparisons and logic ----------------------------------------------------------------------


def _comparable(a: Values, b: Values) -> tuple[Array, Array]:
    """Return the values of two columns as they are compared."""
    if is_decimal(a.type) or is_decimal(b.type):
        _same_decimals(a.type, b.type)
        scale = min(a.type.scale, b.type.scale)
        return rescaled(a, scale), rescaled(b, scale)
    if a.type == b.type:
        return a.data, b.data
    common = _common_type(a.type, b.type)  # UINT64 for INT64 and UINT64: -1 is large then
    return _as(a.data, common), _as(b.data, common)


def _compare(function: Callable[[Array, Array], Array], a: Array, b: Array) -> Array:
    with np.errstate(invalid="ignore"):
        return np.asarray(function(a, b)).astype(np.bool_)


def _kleene(op: str, a: Values, b: Values, type: CudfType) -> Values:
    if not a.type.id is b.type.id is type.id is T.BOOL8:
        refuse(f"{op} is emulated for BOOL8")
    decisive = op == "null_logical_or"
    decided = (a.valid & (a.data == decisive)) | (b.valid & (b.data == decisive))
    return Values(type, np.where(decided, decisive, not decisive), decided | (a.valid & b.valid))


def _null_safe(op: str, a: Values, b: Values, type: CudfType) -> Values:
    _expect(op, CudfType(T.BOOL8), type)
    left, right = _comparable(a, b)
    equal = np.where(a.valid & b.valid, _compare(operator.eq, left, right), a.valid == b.valid)
    answer = equal if op == "null_equals" else ~equal
    return Values(type, answer, np.ones(len(a), dtype=np.bool_))


def _null_extreme(op: str, a: Values, b: Values, type: CudfType) -> Values:
    if a.type != b.type or a.type != type:
        refuse(f"{op} is emulated for one type, not {a.type}, {b.type} and {type}")
    first = _compare(operator.ge if op == "null_max" else operator.le, a.data, b.data)
    data = np.where(b.valid & ~(a.valid & first), b.data, a.data)
    if a.type.id in FLOATS:  # which of two is larger where one is a NaN is not said
        unknown = a.valid & b.valid & (np.isnan(a.data) | np.isnan(b.data))
        data = np.where(unknown, poison(type, len(a)), data)
    return Values(type, data.astype(a.data.dtype), a.valid | b.valid)


# --- arithmetic ----------------------------------------------------------------------


def _divided(a: Array, b: Array) -> Array:
    with np.errstate(all="ignore"):
        return np.asarray(a / b)


def _floats(op: str, a: Array, b: Array) -> Array:
    with np.errstate(all="ignore"):
        match op:
            case "add":
                return np.asarray(a + b)
            case "sub":
                return np.asarray(a - b)
            case "mul":
                return np.asarray(a * b)
            case "div":
                return _divided(a, b)
            case "floor_div":
                return np.floor(_divided(a, b))
            case "mod":
                return np.fmod(a, b)
            case "pymod":
                remainder = np.fmod(a, b)  # of the dividend's sign
                other = (remainder != 0) & ((remainder < 0) != (b < 0))
                return np.where(other, remainder + b, remainder)
            case "pow":
                return np.power(a, b)
            case "atan2":
                return np.arctan2(a, b)
    refuse(f"{op} of floats")


def _integers(op: str, a: Array, b: Array, type: CudfType) -> Array:
    if type.id is T.BOOL8:
        if op in _BITWISE:
            return np.asarray(_BITWISE[op](a, b))
        refuse(f"{op} of BOOL8 is not emulated")
    if op in _BITWISE:
        return np.asarray(_BITWISE[op](a, b))
    with np.errstate(all="ignore"):
        match op:
            case "add":
                return np.asarray(a + b)
            case "sub":
                return np.asarray(a - b)
            case "mul":
                return np.asarray(a * b)
            case "int_pow":
                return _int_pow(a, b, type)
            case "shift_left" | "shift_right":
                wide = (b < 0) | (b >= 8 * a.dtype.itemsize)
                by = np.where(wide, 0, b).astype(a.dtype)
                shifted = np.left_shift(a, by) if op == "shift_left" else np.right_shift(a, by)
                return np.where(wide, poison(type, len(a)), shifted).astype(a.dtype)
            case "div" | "floor_div" | "mod" | "pymod":
                return _quotients(op, a, b, type)
    refuse(f"{op} of integers")


def _quotients(op: str, a: Array, b: Array, type: CudfType) -> Array:
    """Divide integers; by 0, and of the least by -1, the result is undefined."""
    bad = b == 0
    if a.dtype.kind == "i":
        bad |= (a == np.iinfo(a.dtype).min) & (b == -1)
    divisor = np.where(bad, 1, b).astype(a.dtype)
    down = a // divisor  # NumPy rounds down
    rest = a - down * divisor  # of the divisor's sign
    up = (rest != 0) & ((a < 0) != (divisor < 0))
    if op == "div":
        result = down + up.astype(a.dtype)
    elif op == "mod":
        result = np.where(up, rest - divisor, rest)
    else:
        result = down if op == "floor_div" else rest
    return np.where(bad, poison(type, len(a)), result).astype(a.dtype)


def _int_pow(a: Array, b: Array, type: CudfType) -> Array:
    bits = 8 * a.dtype.itemsize
    out = [0 if e < 0 else pow(x, e, 1 << bits) for x, e in zip(a.tolist(), b.tolist(), strict=True)]
    return np.array(out, dtype=np.uint64).astype(a.dtype)


# --- decimals ----------------------------------------------------------------------


def _same_decimals(a: CudfType, b: CudfType) -> None:
    if a.id is not b.id:
        refuse(f"decimals of one width meet only each other, not {a.id.name} and {b.id.name}")


def rescaled(column: Values, scale: int) -> Array:
    """Return a decimal's units at another scale: digits are cut off, or it wraps."""
    return truncated(column.data, column.type.scale, scale)


def truncated(units: Array, scale: int, to: int) -> Array:
    """Return units of 10 ** ``scale`` as units of 10 ** ``to``: what is too small is cut off."""
    if to == scale:
        return units
    factor = 10 ** abs(scale - to)
    exact = units.astype(object)
    made = exact * factor if to < scale else np.where(exact < 0, -(-exact // factor), exact // factor)
    return narrowed(made, units.dtype)


def _decimals(op: str, a: Values, b: Values, type: CudfType) -> Array:
    _same_decimals(a.type, b.type)
    scales = a.type.scale, b.type.scale
    scale = {"mul": sum(scales), "div": scales[0] - scales[1]}.get(op, min(scales))
    if op not in ("add", "sub", "mul", "div", "mod", "pymod"):
        refuse(f"{op} of decimals")
    _expect(op, CudfType(a.type.id, scale), type)
    if op in ("add", "sub", "mod", "pymod"):
        left, right = rescaled(a, scale), rescaled(b, scale)
    else:
        left, right = a.data, b.data
    dtype = storage_of(type.id)
    if op in ("add", "sub"):
        return narrowed(left + right if op == "add" else left - right, dtype)
    if op == "mul":
        return narrowed(left * right, dtype)
    x, y = left.astype(object), right.astype(object)
    bad = np.asarray(y == 0, dtype=np.bool_)
    y = np.where(bad, 1, y)
    rest = np.asarray(
        [abs(p) % abs(q) * (-1 if p < 0 else 1) for p, q in zip(x, y, strict=True)], dtype=object
    )
    if op == "div":
        rest = (x - rest) // y
    elif op == "pymod":
        rest = np.where((rest != 0) & ((rest < 0) != (y < 0)), rest + y, rest)
    return narrowed(np.where(bad, poison(type, len(a)), rest), dtype)


# --- times ----------------------------------------------------------------------


def _times(op: str, a: Values, b: Values, type: CudfType) -> Array:
    """Compute with timestamps and durations, in the finer of their units."""
    first, second = (
        "T" if c.type.id in TIMESTAMPS else "D" if c.type.id in DURATIONS else "N" for c in (a, b)
    )
    gives = {
        ("add", "T", "D"): "TIMESTAMP",
        ("add", "D", "T"): "TIMESTAMP",
        ("add", "D", "D"): "DURATION",
        ("sub", "T", "T"): "DURATION",
        ("sub", "T", "D"): "TIMESTAMP",
        ("sub", "D", "D"): "DURATION",
        ("mod", "D", "D"): "DURATION",
        ("pymod", "D", "D"): "DURATION",
    }.get((op, first, second))
    if gives is None:
        refuse(f"{op} of {a.type.id.name} and {b.type.id.name} is not emulated")
    units = [c.type.id.name.split("_")[1] for c in (a, b)]
    unit = max(units, key=_TICKS.__getitem__)
    _expect(op, CudfType(TypeId[f"{gives}_{unit}"]), type)
    left, right = (
        _as(c.data, CudfType(TypeId[f"DURATION_{unit}"]))
        * storage_of(type.id).type(_TICKS[unit] // _TICKS[u])
        for c, u in zip((a, b), units, strict=True)
    )
    return _integers(op, left, right, type)


# --- one argument ----------------------------------------------------------------------

_MATH: dict[str, Callable[[Array], Array]] = {
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "arcsin": np.arcsin,
    "arccos": np.arccos,
    "arctan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "arcsinh": np.arcsinh,
    "arccosh": np.arccosh,
    "arctanh": np.arctanh,
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "cbrt": np.cbrt,
    "ceil": np.ceil,
    "floor": np.floor,
    "abs": np.abs,
    "rint": np.rint,
}
UNARY = (*_MATH, "negate", "bit_invert", "bit_count", "not")
"""The primitives that are unary operations."""


def unary(op: str, a: Values, type: CudfType) -> Values:
    """Return a unary operation of a column, as libcudf computes it."""
    id_ = a.type.id
    signed = id_ in (*FLOATS, T.INT8, T.INT16, T.INT32, T.INT64)
    with np.errstate(all="ignore"):
        if op == "not":
            if id_ is not T.BOOL8:
                refuse("not is emulated for BOOL8")
            data = ~a.data
        elif op == "bit_count":
            _integral(op, a)
            _expect(op, CudfType(T.INT32), type)
            return Values(
                type, np.bitwise_count(a.data.view(f"u{a.data.itemsize}")).astype(np.int32), a.valid
            )
        elif op == "bit_invert":
            _integral(op, a)
            data = ~a.data
        elif op == "negate":
            if not signed and id_ not in DURATIONS:
                refuse(f"negate is for signed numbers and durations, not {id_.name}")
            data = -a.data
        elif op == "abs" and signed:
            data = np.abs(a.data)
        elif id_ in (T.DECIMAL32, T.DECIMAL64) and op in ("abs", "ceil", "floor"):
            data = _whole(op, a)
        elif id_ in FLOATS:
            data = _MATH[op](a.data)
        else:
            refuse(f"{op} of {id_.name}")
    _expect(op, a.type, type)
    return Values(type, data.astype(a.data.dtype), a.valid)


def _integral(op: str, a: Values) -> None:
    if a.type.id not in INTEGERS:
        refuse(f"{op} is for integers, not {a.type.id.name}")


def _whole(op: str, a: Values) -> Array:
    assert a.type.id in DECIMALS
    if op == "abs":
        return np.abs(a.data)
    unit = 10 ** max(0, -a.type.scale)
    exact = a.data.astype(object)
    made = exact // unit * unit if op == "floor" else -(-exact // unit) * unit
    return narrowed(made, a.data.dtype)
