"""Edits of a query's lines, by which a comparison asks Polars what a difference comes of."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from differential.relation import Line

__all__ = ["named_expressions", "with_magnitudes", "without_expression"]

_SPREADS = ("std", "var")


def named_expressions(lines: Sequence[Line]) -> Iterator[tuple[int, str]]:
    """Yield the line and the name of each expression that ends with ``.alias(name)``."""
    for place, line in enumerate(lines):
        for node in ast.walk(ast.parse(line.text, mode="eval")):
            if (name := _alias_of(node)) is not None:
                yield place, name


def without_expression(lines: Sequence[Line], place: int, name: str) -> list[Line]:
    """Return the lines with null in place of the expression of that name in one of them."""
    null = ast.parse("pl.lit(None)", mode="eval").body

    def edit(node: ast.AST) -> None:
        if _alias_of(node) == name:
            assert isinstance(node, ast.Call)
            assert isinstance(node.func, ast.Attribute)
            node.func.value = null

    return [_edited(line, edit) if at == place else line for at, line in enumerate(lines)]


def with_magnitudes(lines: Sequence[Line]) -> list[Line] | None:
    """Return the lines with the largest absolute value in place of each ``std`` and ``var``; ``None`` if there is none.

    Both are computed of values with as many digits as a float has, and cannot have digits that these do not have.
    """
    found = False

    def edit(node: ast.AST) -> None:
        nonlocal found
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _SPREADS:
            found = True
            node.func.value = ast.parse(
                f"({ast.unparse(node.func.value)}).cast(pl.Float64).abs()", mode="eval"
            ).body
            node.func.attr = "max"
            node.args, node.keywords = [], []

    edited = [_edited(line, edit) for line in lines]
    return edited if found else None


def _alias_of(node: ast.AST) -> str | None:
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "alias"
        and len(node.args) == 1
        and isinstance(node.args[0], ast.Constant)
    ):
        return str(node.args[0].value)
    return None


def _edited(line: Line, edit: Callable[[ast.AST], None]) -> Line:
    tree = ast.parse(line.text, mode="eval")
    for node in ast.walk(tree):
        edit(node)
    return replace(line, text=ast.unparse(tree))
