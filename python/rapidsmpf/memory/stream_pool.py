"""Streams of the compute device.

On a GPU they are RMM's. A CPU has one stream, on which all work is done when a call returns; a pool of it has the
interface of RMM's, so that a program need not know where it runs.
"""

from __future__ import annotations

import itertools

__all__ = ["HostStream", "StreamPool"]


class HostStream:
    """The stream of a CPU: whatever was enqueued on it is done."""

    def __cuda_stream__(self) -> tuple[int, int]:
        """Return the version of the protocol and the address: that of the default stream."""
        return 0, 0

    def synchronize(self) -> None:
        """Return at once, for there is nothing to wait for."""

    def is_default(self) -> bool:
        """Return whether this is the default stream, which it is."""
        return True

    def __eq__(self, other: object) -> bool:
        """All streams of a CPU are the same."""
        return isinstance(other, HostStream)

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return "HostStream()"


class StreamPool:
    """A pool of streams on a CPU.

    Parameters
    ----------
    pool_size
        How many streams.

    Raises
    ------
    ValueError
        If there are none.
    """

    def __init__(self, pool_size: int = 16) -> None:
        if pool_size <= 0:
            raise ValueError(f"the size of a stream pool must be greater than 0, got {pool_size}")
        self._streams = tuple(HostStream() for _ in range(pool_size))
        self._next = itertools.cycle(self._streams)

    def get_stream(self, stream_id: int | None = None) -> HostStream:
        """Return a stream.

        Parameters
        ----------
        stream_id
            Which one, counted modulo the size of the pool; None: the next in turn.
        """
        return next(self._next) if stream_id is None else self._streams[stream_id % len(self._streams)]

    def get_pool_size(self) -> int:
        """Return how many streams there are."""
        return len(self._streams)

    def __repr__(self) -> str:
        return f"StreamPool({len(self._streams)})"
