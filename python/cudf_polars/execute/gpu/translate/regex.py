"""Regular expressions that mean the same to Polars (the Rust crate ``regex``) and to libcudf.

A small grammar: what is not in it is refused, whether or not libcudf would take it.
"""

from __future__ import annotations

import re

from cudf_polars.execute.gpu.translate.untranslatable import Unsupported

__all__ = ["common_pattern", "counting_pattern", "escaped", "plain_text"]

_SPECIAL = set("\\.+*?()|[]{}^$")
_PLAIN = r"[A-Za-z0-9_ ,:;@#%=<>!'\"/~&\u00a1-\uffff-]"
_ESCAPED = r"\\[.^$*+?(){}|\[\]\\]"
_IN_CLASS = rf"(?:[A-Za-z0-9]-[A-Za-z0-9]|[A-Za-z0-9_ ,:;@#%=<>!'\"/.]|{_ESCAPED})"
_CLASS = rf"\[\^?{_IN_CLASS}+\]"
_ATOM = rf"(?:{_PLAIN}|\.|{_ESCAPED}|{_CLASS})"
_COUNT = r"(?:\*|\+|\?|\{\d{1,2}\}|\{\d{1,2},\d{1,2}\}|\{\d{1,2},\})?"
_TOKEN = re.compile(rf"{_ATOM}{_COUNT}")
_COUNT_ALONE = re.compile(_COUNT)


def plain_text(pattern: str) -> str | None:
    """Return the text that a pattern stands for if it has no special characters but escaped ones."""
    out, at = [], 0
    while at < len(pattern):
        here = pattern[at]
        if here == "\\" and at + 1 < len(pattern) and pattern[at + 1] in _SPECIAL:
            at += 1
            here = pattern[at]
        elif here in _SPECIAL:
            return None
        out.append(here)
        at += 1
    return "".join(out)


def escaped(text: str) -> str:
    """Return a pattern for a text.

    Raises
    ------
    Unsupported
        If the text has nothing to find.
    """
    if not text:
        raise Unsupported("matches of an empty text")
    return "".join(f"\\{letter}" if letter in _SPECIAL else letter for letter in text)


def common_pattern(pattern: str) -> str:
    """Return a pattern for libcudf that finds what Polars finds.

    Raises
    ------
    Unsupported
        If the pattern may mean something else to libcudf.
    """
    refused = Unsupported(f"the regular expression {pattern!r}")
    at, depth = 0, 0
    expects = True
    while at < len(pattern):
        here = pattern[at]
        if here == "(" and not pattern.startswith("(?", at):
            depth, at, expects = depth + 1, at + 1, True
        elif here == ")" and depth and not expects:
            count = _COUNT_ALONE.match(pattern, at + 1)
            assert count is not None
            depth, at = depth - 1, count.end()
        elif here == "|" and not expects:
            at, expects = at + 1, True
        elif here == "^" and at == 0 and "|" not in pattern:
            at += 1
        else:
            token = _TOKEN.match(pattern, at)
            if token is None:
                raise refused
            at, expects = token.end(), False
        if pattern[at : at + 1] in ("*", "+", "?", "{"):
            raise refused  # lazy or repeated counts
    if depth or expects:
        raise refused
    try:
        re.compile(pattern)
    except re.error as error:
        raise refused from error
    return pattern


def counting_pattern(pattern: str) -> str:
    """Return a pattern for libcudf that finds the same places as Polars, one after the other.

    Raises
    ------
    Unsupported
        If the pattern may find other places, or nothing at a place.
    """
    common = common_pattern(pattern)
    if "|" in common or re.compile(common).match("") is not None:
        raise Unsupported(f"the places of the regular expression {pattern!r}")
    return common
