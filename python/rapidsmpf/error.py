"""The exceptions that the C++ library raises, beside the built-in ones.

Every error is one of these or a standard exception: ``ValueError`` for an argument that cannot be, ``IndexError``
for a place that is not there, ``TimeoutError`` for a wait whose time was up, ``OSError`` when the operating system
refused something, and ``RuntimeError`` for misuse of an interface and everything else.
"""

from __future__ import annotations

__all__ = [
    "BadAlloc",
    "FormatError",
    "OptionTypeError",
    "OutOfMemory",
    "RankFailedError",
    "ReservationError",
    "SpillError",
]


class BadAlloc(MemoryError):
    """Memory could not be had. The message says which tier, how much was asked for and what was free."""


class OutOfMemory(BadAlloc):
    """The memory of a tier is exhausted."""


class ReservationError(BadAlloc):
    """A reservation could not be made, or was asked for more than it holds."""


class FormatError(ValueError):
    """Bytes that came off a wire or a disk do not have the form that they must have."""


class SpillError(RuntimeError):
    """Bytes could not be written to the spill space or read back.

    The message says where, how much, and what to try. Only the operation that needed the bytes fails: the process
    stays usable, and spilling works again when the disk does.
    """


class OptionTypeError(TypeError, ValueError):
    """An option was read before with another type."""


class RankFailedError(RuntimeError):
    """A rank died, left or raised: a collective that waits for it can never finish.

    When a rank has died, or has given up its communicator, that is unusable from then on: every pending and later wait
    raises this error. When only a collective was given up, or those of one query, others go on working.

    Parameters
    ----------
    rank
        The rank that failed.
    host
        Where it ran; empty when that is not known.
    pid
        Its process id on that host; 0 when that is not known.
    reason
        What is known of why.

    Attributes
    ----------
    rank, host, pid, reason
        As given.
    """

    def __init__(self, rank: int, host: str, pid: int, reason: str) -> None:
        place = f" (pid {pid} on {host})" if pid and host else f" (pid {pid})" if pid else ""
        super().__init__(f"rank {rank}{place} failed: {reason}")
        self.rank = rank
        self.host = host
        self.pid = pid
        self.reason = reason

    def __reduce__(self) -> tuple[type[RankFailedError], tuple[int, str, int, str]]:
        """Keep the fields when the error travels to another process."""
        return type(self), (self.rank, self.host, self.pid, self.reason)
