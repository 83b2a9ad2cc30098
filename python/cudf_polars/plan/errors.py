"""What is raised when a plan cannot be read in one way; :mod:`cudf_polars.plan.read` then takes another."""

from __future__ import annotations

__all__ = ["Unreadable"]


class Unreadable(Exception):
    """A part of the plan that the views do not show, or show without something that matters.

    Parameters
    ----------
    what
        In words, for notes and messages.
    """

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what
