"""A text of the user's Python functions in a query, so that ranks notice when theirs differ.

Polars prints a function as its address. Here it is identified by its code and its constants, and those of the
functions that it holds. Values that it captures are left out (the rank may be among them), as are the file and the
line in which it stands.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import pickle
import types
from collections.abc import Iterator
from typing import Any

__all__ = ["describe_functions"]

_PICKLE = b"\x80\x05\x95"
_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis))
_DEPTH = 8


def describe_functions(form: Any) -> str:
    """Return a digest of all Python functions in a JSON form, in their order; empty if there are none."""
    found = []
    for pickled in _pickles(form):
        try:
            found.append(_describe(pickle.loads(pickled), _DEPTH))
        except Exception:  # whatever unpickling the user's objects raises
            found.append("?")
    if not found:
        return ""
    return hashlib.blake2b("\n".join(found).encode("utf-8", "replace"), digest_size=8).hexdigest()


def _pickles(form: Any) -> Iterator[bytes]:
    stack = [form]
    while stack:
        f = stack.pop()
        if isinstance(f, dict):
            stack.extend(reversed(list(f.values())))
        elif isinstance(f, list) and f and isinstance(f[0], int):
            if all(isinstance(v, int) and 0 <= v < 256 for v in f[:16]):
                raw = bytes(f)
                at = raw[:4096].find(_PICKLE)
                if at >= 0:
                    yield raw[at:]
        elif isinstance(f, list):
            stack.extend(reversed(f))


def _describe(value: Any, depth: int) -> str:
    if isinstance(value, _PLAIN):
        return type(value).__name__
    if depth == 0:
        return type(value).__qualname__
    inner = functools.partial(_describe, depth=depth - 1)
    if isinstance(value, types.CodeType):
        consts = ", ".join(
            inner(c) if isinstance(c, types.CodeType) else _constant(c) for c in value.co_consts
        )
        return f"code({value.co_code.hex()}; {consts}; {value.co_names}; {value.co_argcount})"
    if isinstance(value, types.FunctionType):
        ours = (value.__module__ or "").split(".", 1)[0] == "polars"
        parts: list[Any] = [value.__qualname__ if ours else value.__code__]
        for cell in value.__closure__ or ():
            with contextlib.suppress(ValueError):  # an empty cell
                parts.append(cell.cell_contents)
        return f"function({', '.join(map(inner, parts))})"
    if isinstance(value, types.MethodType):
        return f"method({inner(value.__func__)}, {type(value.__self__).__qualname__})"
    if isinstance(value, functools.partial):
        return f"partial({inner(value.func)}, {inner(value.args)}, {inner(value.keywords)})"
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(inner, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{inner(k)}: {inner(v)}' for k, v in value.items())}}}"
    if isinstance(value, type | types.BuiltinFunctionType):
        return f"{value.__module__}.{value.__qualname__}"
    if callable(value):
        # an object that is called: its code and what it holds
        state = {name: getattr(value, name) for name in _attributes(value)}
        return f"{type(value).__qualname__}({inner(type(value).__call__)}, {inner(state)})"
    return type(value).__qualname__


def _attributes(value: object) -> list[str]:
    slots = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
    names = [*vars(value), *slots] if hasattr(value, "__dict__") else slots
    return sorted(name for name in names if hasattr(value, name) and not name.startswith("__"))


def _constant(value: Any) -> str:
    # the order of a set of texts differs between processes
    return repr(sorted(map(repr, value))) if isinstance(value, frozenset) else repr(value)
