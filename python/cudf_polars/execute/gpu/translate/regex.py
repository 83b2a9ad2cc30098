"""Regular expressions that mean the same to Polars (the Rust crate ``regex``) and to libcudf.

A small grammar: what is not in it is refused, whether or not libcudf would take it.
"""

from __future__ import annotations

import re

from cudf_polars.execute.gpu.translate.refusal import Unsupported

__all__ = ["common_pattern"]

_CLASS_ESCAPES = r"\\[\\\].^$*+?(){}|/\-]"
_CLASS = rf"\[\^?(?:[A-Za-z0-9_ ,:;@#%=<>!'\"/]-[A-Za-z0-9]|[A-Za-z0-9_ ,:;@#%=<>!'\"/.]|{_CLASS_ESCAPES})+\]"
_ATOM = rf"(?:[A-Za-z0-9_ ,:;@#%=<>!'\"/~&-]|\.|\\[.^$*+?(){{}}|\[\]\\]|{_CLASS})"
_COUNT = r"(?:\*|\+|\?|\{\d{1,3}\}|\{\d{1,3},\d{1,3}\}|\{\d{1,3},\})?"
_TOKEN = re.compile(rf"{_ATOM}{_COUNT}")


def common_pattern(pattern: str) -> str:
    """Return a pattern for libcudf that finds what Polars finds.

    Raises
    ------
    Unsupported
        If the pattern may mean something else to libcudf.
    """
    at, depth = 0, 0
    start_allowed = True
    while at < len(pattern):
        here = pattern[at]
        if here == "(":
            if pattern.startswith("(?", at):
                raise Unsupported(f"the regular expression {pattern!r}")
            depth += 1
            at += 1
            start_allowed = True
        elif here == ")":
            depth -= 1
            at += 1
            count = re.compile(_COUNT).match(pattern, at)
            at = count.end() if count else at
            start_allowed = False
        elif here == "|":
            at += 1
            start_allowed = True
        elif here == "^" and at == 0:
            at += 1
        else:
            token = _TOKEN.match(pattern, at)
            if token is None:
                raise Unsupported(f"the regular expression {pattern!r}")
            at = token.end()
            start_allowed = False
        if depth < 0:
            raise Unsupported(f"the regular expression {pattern!r}")
    if depth or (start_allowed and pattern):
        raise Unsupported(f"the regular expression {pattern!r}")
    return pattern
