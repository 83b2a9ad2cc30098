"""What a program asks that libcudf does not do."""

from __future__ import annotations

from typing import NoReturn

__all__ = ["ProgramError", "refuse"]


class ProgramError(Exception):
    """A program is not one that the operators run: types that libcudf does not take, places that name nothing."""


def refuse(reason: str) -> NoReturn:
    """Say that a program is wrong.

    Raises
    ------
    ProgramError
        Always.
    """
    raise ProgramError(reason)
