"""Finds the coroutine code that g++ 12 miscompiles.

Inside the full expression of a ``co_await``, g++ 12 destroys the captures of a lambda and the members of
a braced aggregate twice, without a warning. So neither may stand there: name it first, then move it
in. Prints ``file:line: ...`` for each offence and exits with 1 if there is one.

    python scripts/lint_coroutines.py cpp
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

# Comments, strings and characters; a raw string first, because it may contain the others.
_NOT_CODE = re.compile(
    r'R"(?P<mark>[^()\s\\]{0,16})\(.*?\)(?P=mark)"'
    r"|//[^\n]*|/\*.*?\*/"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9A-Za-z_])'(?:\\.|[^'\\\n])+'",
    re.DOTALL,
)
# Uses of the operator, not its declarations.
_CO_AWAIT = re.compile(r"(?<!operator )\bco_await\b")


def blank(text: str) -> str:
    """Replace comments and literals by spaces, keeping every line and column in its place."""
    return _NOT_CODE.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)


def offences(text: str) -> Iterator[tuple[int, str]]:
    """Give the line and the kind of each offence in C++ source text."""
    code = blank(text)
    for match in _CO_AWAIT.finditer(code):
        depth = 0
        for position in range(match.end(), len(code)):
            character = code[position]
            if character == "(":
                depth += 1
            elif character == ")":
                depth -= 1
            elif character == "[" and not _is_subscript(code, position):
                yield code.count("\n", 0, position) + 1, "a lambda"
                break
            elif character == "{":
                yield code.count("\n", 0, position) + 1, "a braced initializer"
                break
            if depth < 0 or (character == ";" and depth == 0) or character == "}":
                break


def _is_subscript(code: str, position: int) -> bool:
    before = code[:position].rstrip()[-1:]
    word = re.search(r"\w+$", code[:position].rstrip())
    if word and word[0] in {"co_await", "return"}:
        return False
    return before.isalnum() or before in {"_", ")", "]"}


def main() -> int:
    """Check the sources below the folders that the arguments name."""
    found = 0
    for folder in sys.argv[1:]:
        for path in sorted(Path(folder).rglob("*.[ch]pp")):
            for line, kind in offences(path.read_text()):
                found += 1
                print(f"{path}:{line}: {kind} inside a co_await expression; name it first (g++ 12)")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
