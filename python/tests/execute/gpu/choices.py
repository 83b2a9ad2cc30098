"""Where random queries come from: numbers, each below a limit, that can be told again and made fewer."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TypeVar

__all__ = ["Choices", "from_seed", "shortest"]

X = TypeVar("X")


class Choices:
    """Choices, remembered in their order.

    Parameters
    ----------
    below
        Gives a number below another.
    """

    def __init__(self, below: Callable[[int], int]) -> None:
        self._below = below
        self.made: list[int] = []

    def below(self, count: int) -> int:
        """Choose a number from 0, below ``count``."""
        number = self._below(count)
        self.made.append(number)
        return number

    def pick(self, *values: X) -> X:
        """Choose one of some values."""
        return values[self.below(len(values))]


def from_seed(seed: int) -> Choices:
    """Return choices that follow from a number."""
    return Choices(random.Random(seed).randrange)


def told(numbers: Sequence[int]) -> Choices:
    """Return choices that have been made before; what follows is 0, which stands for what is simplest."""
    left = iter(numbers)
    return Choices(lambda count: min(next(left, 0), count - 1))


def shortest(numbers: Sequence[int], fails: Callable[[Choices], bool], tries: int = 600) -> Choices:
    """Return a shorter sequence, or one of smaller numbers, that fails too.

    Parameters
    ----------
    fails
        Makes what the choices say, and returns whether it fails.
    """
    best = list(numbers)

    def attempt(candidate: list[int]) -> bool:
        nonlocal best, tries
        tries -= 1
        choices = told(candidate)
        if candidate == best or not fails(choices):
            return False
        best = choices.made[: len(candidate)]
        return True

    size = max(1, len(best) // 2)
    while tries > 0:
        smaller = False
        at = 0
        while at < len(best) and tries > 0:
            if attempt(best[:at] + best[at + size :]) or attempt(best[:at] + [0] * size + best[at + size :]):
                smaller = True
            else:
                at += size
        if size == 1 and not smaller:
            break
        size = max(1, size // 2)
    return told(best)
