"""What ranks do together to write to one table under one commit, for each format of tables.

A *write* is what the user called. One process makes a *plan* of it, which is the same on all ranks; each rank opens the
plan's *sink* and writes its rows, and rank 0 commits what all have written.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeAlias

import polars as pl

from cudf_polars.execute.transport import Transport

__all__ = ["Agreed", "Refused", "TableFormat", "TablePlan", "TableSink", "TableWrite"]


class TableWrite(ABC):
    """A call that ranks may be able to share."""

    @abstractmethod
    def plan(self) -> TablePlan | str | None:
        """Decide how ranks write.

        Returns
        -------
        Why one process has to write; or None if Polars, given no rows, says why nothing is to be written.
        """

    @abstractmethod
    def answer(self, result: Any) -> Any:
        """Return what the user gets, of what the sink's :meth:`TableSink.result` was."""


class TablePlan(ABC):
    """How ranks write; travels to them.

    Attributes
    ----------
    step
        The name of the user's method.
    """

    step: ClassVar[str]

    @abstractmethod
    def end(self) -> None:
        """Remove what was made for the plan, except what has been committed."""

    @abstractmethod
    def open_sink(self, transport: Transport, first_op: int) -> TableSink:
        """Return this rank's part, which uses the transport's operations from ``first_op`` on."""


class TableSink(ABC):
    """One rank's part of a write. All methods but :meth:`discard` are called on all ranks."""

    @abstractmethod
    def why_not(self) -> str | None:
        """Return why these ranks cannot write, the same on all of them; None if they can."""

    @abstractmethod
    def write(self, rows: pl.LazyFrame, optimizations: pl.QueryOptFlags | None = None) -> None:
        """Run the query of this rank's rows, with these optimisations if any, and write them."""

    @abstractmethod
    def commit(self, facts: bytes) -> list[bytes]:
        """Commit what all ranks wrote, when they have written; returns what each rank tells besides, by rank."""

    @abstractmethod
    def discard(self) -> None:
        """Remove what this rank wrote, if it is not committed."""

    def result(self) -> Any:
        """Return what came of the commit, or raise why there is none. No rank waits for another one any more."""
        return None


@dataclass(frozen=True)
class Refused:
    """What all ranks raise instead of writing, when none waits for another one any more."""

    error: BaseException


Agreed: TypeAlias = TablePlan | str | Refused | None
"""A plan; why one process has to write; what all ranks raise; or None as in :meth:`TableWrite.plan`."""


class _Agree(Protocol):
    def __call__(self, write: Any, transport: Transport, *, op: int) -> Agreed: ...


class _Read(Protocol):
    def __call__(self, arguments: Mapping[str, Any]) -> TableWrite | str: ...


@dataclass(frozen=True)
class TableFormat:
    """How tables of one format are written.

    Attributes
    ----------
    read
        Reads the arguments of the user's call; why one process has to write, if it does.
    agree
        Called on all ranks with what ``read`` returned: plans on rank 0, and returns the same everywhere. Uses the
        transport's operations from ``op`` on.
    """

    read: _Read
    agree: _Agree
