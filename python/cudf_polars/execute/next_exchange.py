"""Two inputs at once: what the next exchange sends is made while the one before it runs."""

from __future__ import annotations

from collections.abc import Container, Generator, Sequence
from contextlib import contextmanager
from inspect import GEN_CREATED, getgeneratorstate

from cudf_polars.execute.fragment_runs import BegunFragment, FragmentRuns
from cudf_polars.execute.partitions import PartitionPlan
from cudf_polars.execute.pieces import Fragments
from cudf_polars.lower.physical import Broadcast, Gather, Local, Materialize, Shuffle, Stream, walk

__all__ = ["NextExchange", "bytes_ahead"]

_AHEAD = 64 << 20
_OF_LIMIT = 8
"""Rows that wait for their exchange take so many bytes at most, and such a part of what a partition may take."""


def bytes_ahead(plan: PartitionPlan, *, on_cpu: bool) -> int:
    """Return how many bytes of rows may be made before their exchange takes them.

    Where rows do not fit in memory, all processors have work, and there is no room for rows that wait. On a GPU two
    fragments would share its memory.
    """
    if plan.count > 1 or not on_cpu:
        return 0
    return _AHEAD if plan.limit is None else min(_AHEAD, plan.limit // _OF_LIMIT)


class NextExchange:
    """Begins, while an exchange runs, the fragment whose rows the next one sends.

    All ranks run the exchanges of a query in the same order, one after the other: their collectives meet by that. What
    an exchange waits for are mostly the rows that it sends: files that are read, from a store with a long way, say. So
    those of both inputs of a join, or of the inputs of a union, are made at the same time though they are sent in turn.
    At most one fragment runs before its turn.

    Parameters
    ----------
    fragments, runs
        Make fragments, and run them.
    done
        The streams that have run, or run.
    ahead
        Bytes of rows that may wait; 0: nothing begins before its turn.
    """

    def __init__(self, fragments: Fragments, runs: FragmentRuns, done: Container[Stream], ahead: int) -> None:
        self._fragments, self._runs, self._done, self._ahead = fragments, runs, done, ahead
        self._siblings: list[Sequence[Stream]] = []
        self._begun: dict[Stream, BegunFragment] = {}

    @contextmanager
    def to_follow(self, streams: Sequence[Stream]) -> Generator[None]:
        """Say which streams are prepared after what runs in this block."""
        self._siblings.append(streams)
        try:
            yield
        finally:
            self._siblings.pop()

    def begin(self) -> None:
        """Begin the next exchange's fragment, if it reads nothing that another exchange gives."""
        if self._begun or not self._ahead:
            return
        exchange = self._following()
        if not isinstance(exchange, Shuffle | Broadcast | Gather | Materialize):
            return
        if isinstance(exchange, Materialize) and exchange.shared:
            return  # it is collected
        (stream,) = exchange.inputs
        if isinstance(stream, Materialize) and self._is_unread(stream):
            (stream,) = stream.inputs
        if not isinstance(stream, Local) or self._fragments.is_absent(stream):
            return
        rows = self._fragments.rows
        if all(
            isinstance(step, Local) or (step in rows and rows[step].is_frame)
            for step in self._fragments.steps(stream)
        ):
            (fragment,) = self._fragments.of(stream)
            self._begun[stream] = self._runs.begin(stream, fragment, at_once=True, ahead=self._ahead)

    def take(self, stream: Stream) -> BegunFragment | None:
        """Return the fragment that ends in ``stream`` if it runs already, to the exchange that sends its rows."""
        return self._begun.pop(stream, None)

    def close(self) -> None:
        """Drop the fragment that runs before its turn, if any; the device ends it."""
        self._begun.clear()

    def _following(self) -> Stream | None:
        """Return the exchange that runs next of those that are known."""
        for siblings in reversed(self._siblings):
            for sibling in siblings:
                for stream in walk(sibling):
                    if not isinstance(stream, Local) and stream not in self._done:
                        return stream
        return None

    def _is_unread(self, stream: Materialize) -> bool:
        """Whether the fragment behind ``stream`` was left to who reads it, which has not begun."""
        rows = self._fragments.rows.get(stream)
        rest = None if rows is None else rows.rest
        return isinstance(rest, Generator) and getgeneratorstate(rest) == GEN_CREATED
