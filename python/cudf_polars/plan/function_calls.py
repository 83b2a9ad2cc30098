"""Writes functions of a plan as calls of Polars' API, from the names of their options."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import polars as pl

__all__ = ["Call", "named_options", "parse_call"]

Options: TypeAlias = tuple["str | Options", ...]


@dataclass(frozen=True, slots=True)
class Call:
    """A call of Polars' API.

    Attributes
    ----------
    target
        ``"str.contains"``, a method of the first input, or ``"pl.coalesce"``, a function of all inputs.
    options
        Names of the keyword arguments, in the order in which the plan views have the options. A tuple stands for
        options that the view has in a tuple. ``-name`` is not passed; ``name!value`` is not, and must be that.
    inputs
        Names of the keyword arguments that take inputs (after the first, for a method); if empty, they are positional.
    """

    target: str
    options: Options = ()
    inputs: tuple[str, ...] = ()

    def __call__(self, inputs: Sequence[pl.Expr], args: tuple[Any, ...]) -> pl.Expr:
        """Return the call for these inputs and options.

        Raises
        ------
        TypeError, ValueError, AttributeError
            When Polars has no such call.
        """
        root, _, path = self.target.partition(".")
        function: Any = pl
        positional = list(inputs)
        if root != "pl":
            function, path = positional.pop(0), self.target
        for part in path.split("."):
            function = getattr(function, part)
        keywords = dict(_passed(self.options, args))
        if self.inputs:
            keywords |= zip(self.inputs, positional, strict=True)
            positional = []
        result: pl.Expr = function(*positional, **keywords)
        return result


def _pairs(options: Options, args: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    for option, value in zip(options, args, strict=True):
        if isinstance(option, tuple):
            yield from _pairs(option, value)
        else:
            yield option, value


def _passed(options: Options, args: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    for option, value in _pairs(options, args):
        name, _, wanted = option.partition("!")
        if wanted and str(value) != wanted:
            raise ValueError(f"{name}={value!r}")
        if not wanted and not name.startswith("-"):
            yield name, list(value) if isinstance(value, tuple) else value


def named_options(options: Options, args: Sequence[Any]) -> list[tuple[str, Any]]:
    """Return options with their names.

    Raises
    ------
    ValueError
        When there are more or fewer options than names.
    """
    return [(option.partition("!")[0].removeprefix("-"), value) for option, value in _pairs(options, args)]


def parse_call(name: str, text: str) -> Call:
    """Return the call that a text describes.

    Parameters
    ----------
    name
        What is called if the text does not say.
    text
        Names of options; those of inputs begin with ``&``; a tuple of options is in parentheses, and what is called
        stands behind ``->``: ``"window_size -weights (ddof) &by -> rolling_std_by"``.
    """
    words, _, target = text.partition("->")
    inputs = []
    stack: list[list[str | Options]] = [[]]
    for word in words.replace("(", " ( ").replace(")", " ) ").split():
        if word == "(":
            stack.append([])
        elif word == ")":
            group = tuple(stack.pop())
            stack[-1].append(group)
        elif word.startswith("&"):
            inputs.append(word[1:])
        else:
            stack[-1].append(word)
    (options,) = stack
    return Call(target.strip() or name, tuple(options), tuple(inputs))
