"""Errors that a query over several ranks can raise, beside those of Polars itself."""

from __future__ import annotations

__all__ = ["QueryMismatchError"]


class QueryMismatchError(RuntimeError):
    """The ranks of one collective step do not run the same query.

    Every rank raises it, before any row moves, with the first difference between its own plan and that of the
    lowest rank that disagrees with it.
    """
