"""Errors that a query over several ranks can raise, beside those of Polars itself."""

from __future__ import annotations

import contextlib
import re

import polars as pl
from rapidsmpf.error import RankFailedError

from cudf_polars.plan.cloud import without_secrets

__all__ = ["QueryMismatchError", "failure_of_rank", "hide_secrets", "name_step", "not_sorted"]


class QueryMismatchError(RuntimeError):
    """The ranks of one collective step do not run the same query.

    Every rank raises it, before any row moves, with the first difference between its own plan and that of the
    lowest rank that disagrees with it.
    """


def not_sorted(operation: str) -> pl.exceptions.InvalidOperationError:
    """Return what Polars raises where the rows of a step are not in the order that it needs."""
    return pl.exceptions.InvalidOperationError(
        f"argument in operation '{operation}' is not sorted, please sort the 'expr/series/column' first"
    )


def hide_secrets(error: BaseException) -> None:
    """Take the users and queries of URLs, which may be secret, out of an error's texts and of those of its causes."""
    seen: set[int] = set()
    left: list[BaseException | None] = [error]
    while left:
        found = left.pop()
        if found is None or id(found) in seen:
            continue
        seen.add(id(found))
        left += [found.__cause__, found.__context__]
        shown = tuple(without_secrets(value) if isinstance(value, str) else value for value in found.args)
        with contextlib.suppress(Exception):  # a user's class may not let us
            if shown != found.args:
                found.args = shown
            if isinstance(found, OSError) and isinstance(found.filename, str):
                found.filename = without_secrets(found.filename)


_STEP = "In the step: "


def name_step(error: BaseException, label: str) -> None:
    """Note on an error in which step it was raised, unless that is known."""
    if not any(note.startswith(_STEP) for note in getattr(error, "__notes__", ())):
        error.add_note(_STEP + label)


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
