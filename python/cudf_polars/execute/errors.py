"""Errors that a query over several ranks can raise, beside those of Polars itself."""

from __future__ import annotations

import re

import polars as pl
from rapidsmpf.error import RankFailedError

__all__ = ["QueryMismatchError", "failure_of_rank"]


class QueryMismatchError(RuntimeError):
    """The ranks of one collective step do not run the same query.

    Every rank raises it, before any row moves, with the first difference between its own plan and that of the
    lowest rank that disagrees with it.
    """


_FAILURE = re.compile(
    r"(?:^|got external error: )"
    r"rank (?P<rank>-?\d+)(?: \(pid (?P<pid>\d+)(?: on (?P<host>\S+))?\))? failed: (?P<reason>.*)",
    re.DOTALL,
)


def failure_of_rank(error: BaseException) -> RankFailedError | None:
    """Return the failure of a rank that an error of this query stands for, or None if it is an error of its own.

    What an exchange raises while Polars reads its stream comes out of Polars as an error of Polars, or of the next
    exchange that reads Polars' output: only the text is left.
    """
    if isinstance(error, RankFailedError):
        return error
    if type(error) not in (pl.exceptions.ComputeError, RuntimeError):
        return None
    found = _FAILURE.search(str(error))
    if found is None:
        return None
    return RankFailedError(
        int(found["rank"]), found["host"] or "", int(found["pid"] or 0), found["reason"].strip()
    )
