"""What happens when a step of a query cannot be distributed over the ranks: it runs on one of them, and says so."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Literal, TypeAlias

from cudf_polars.lower.user_code import user_stacklevel

__all__ = ["FallbackMode", "FallbackWarning", "report"]

FallbackMode: TypeAlias = Literal["warn", "raise", "silent"]


class FallbackWarning(UserWarning):
    """A step of the query gathers its input on one rank and runs there: right, but neither parallel nor distributed."""


def report(steps: Sequence[str], mode: FallbackMode) -> None:
    """Warn once, raise or keep silent about the ``steps`` that run on one rank.

    Raises
    ------
    NotImplementedError
        If there are any and ``mode`` is ``"raise"``.
    """
    if not steps or mode == "silent":
        return
    text = (
        "This query is not fully distributed: one rank gathers the input of, and alone runs, "
        + "; ".join(dict.fromkeys(steps))
        + "."
    )
    if mode == "raise":
        raise NotImplementedError(text + " (fallback_mode='raise')")
    warnings.warn(
        text + " Set fallback_mode='silent' to hide this.", FallbackWarning, stacklevel=user_stacklevel()
    )
