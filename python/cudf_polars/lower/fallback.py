"""What happens when a step of a query cannot be distributed over the ranks: it runs on one of them, and says so."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Literal, TypeAlias

from cudf_polars.lower.user_code import user_stacklevel

__all__ = ["FallbackMode", "FallbackWarning", "HostStepWarning", "report", "warn_of_host_steps"]

FallbackMode: TypeAlias = Literal["warn", "raise", "silent"]


class FallbackWarning(UserWarning):
    """A step of the query gathers its input on one rank and runs there: right, but neither parallel nor distributed."""


class HostStepWarning(FallbackWarning):
    """A part of a query runs on the CPU though the compute device is a GPU: right, but slower."""


def warn_of_host_steps(steps: Sequence[str]) -> None:
    """Warn once of what a GPU left to the CPU."""
    warnings.warn(
        "This query runs on the CPU in part: "
        + "; ".join(steps)
        + ". Set fallback_mode='silent' to hide this.",
        HostStepWarning,
        stacklevel=user_stacklevel(),
    )


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
