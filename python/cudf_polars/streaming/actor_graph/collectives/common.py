"""Operation ids: which messages belong to which collective.

An id has 28 bits. Ranks that do the same things in the same order use the same ids without talking to each other,
also after a query failed half-way:

- ``0 | lane | number | node``: exchange ``node`` of a query. Each engine on a communicator has a lane of its own, and
  numbers its queries there, so that the queries of engines that are used at the same time never meet. The ranks agree
  on the lane, and on the number at which it goes on, when the engine starts.
- ``1 | 0 | number``: reserved by :func:`reserve_op_id`, numbered by process.
- ``1 | 1 | number``: reserved by :func:`reserve_op_id` for one communicator, numbered there.

Numbers of queries begin with 1: ids below ``2**NODE_BITS`` are free for collectives made by hand. The client of a
cluster (Dask, Ray) numbers the queries itself: the communicators of its ranks are used by nothing else.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

if TYPE_CHECKING:
    from rapidsmpf.communicator.communicator import Communicator

__all__ = ["OpIds", "reserve_op_id"]

NODE_BITS: Final = 12
EPOCH_BITS: Final = 16
"""What is above the node: the number of a query, and its lane where there are lanes."""
LANES: Final = 7
"""Engines that a communicator can have at a time."""

_ID_BITS: Final = NODE_BITS + EPOCH_BITS
_NUMBER_BITS: Final = 12
_RESERVED: Final = 1 << (_ID_BITS - 1)
_OF_COMMUNICATOR: Final = 1 << (_ID_BITS - 2)
_STARTING: Final = LANES
"""The lane in which engines start: they have none of their own yet."""


class OpIds:
    """The operation ids of one query.

    Parameters
    ----------
    epoch
        The query's number, with its lane.
    stale
        Ids that are to be used again when half of the numbers have passed: the first and the last. They are named once
        in each quarter of the numbers, so that what is remembered of them can be forgotten.
    """

    def __init__(self, epoch: int, stale: tuple[int, int] | None = None) -> None:
        self.epoch = epoch
        self.stale = stale

    def id(self, node: int) -> int:
        """Return the id of exchange ``node`` of this query.

        Raises
        ------
        ValueError
            If ``node`` is not in ``[0, 2**NODE_BITS)``.
        """
        if not 0 <= node < 1 << NODE_BITS:
            raise ValueError(f"a query has at most {1 << NODE_BITS} exchanges, asked for number {node}")
        return (self.epoch << NODE_BITS) | node

    @property
    def range(self) -> tuple[int, int]:
        """The first and the last id of this query."""
        return self.epoch << NODE_BITS, ((self.epoch + 1) << NODE_BITS) - 1


@dataclass(frozen=True)
class LaneOffer:
    """What a rank tells the others when an engine starts, so that they choose the same lane.

    Attributes
    ----------
    busy
        The lanes that have an engine on this rank.
    numbers
        By lane, how many queries it has had on this rank.
    """

    busy: tuple[int, ...]
    numbers: tuple[int, ...]


class EngineOpIds:
    """The operation ids of one engine on one rank; any thread may ask for them.

    The lane is the engine's until :meth:`release` or until this object ends.
    """

    def __init__(self, of: CommunicatorOpIds, lane: int) -> None:
        self._of = of
        self._lane = lane
        self._release = weakref.finalize(self, of._free, lane)
        self._release.atexit = False

    def next(self) -> OpIds:
        """Begin the next query. All ranks must begin this engine's queries in the same order."""
        return self._of._next(self._lane)

    def release(self) -> None:
        """Give the lane to whichever engine starts next; nothing happens the second time."""
        self._release()


class CommunicatorOpIds:
    """Numbers the operations of one communicator on one rank; any thread may use it. See :meth:`of`."""

    _known: ClassVar[weakref.WeakKeyDictionary[Communicator, CommunicatorOpIds]] = weakref.WeakKeyDictionary()
    _known_lock = threading.Lock()

    def __init__(self) -> None:
        # Reentrant: the garbage collector may end an engine, which frees its lane, while this thread holds the lock.
        self._lock = threading.RLock()
        self._busy = [False] * LANES
        self._numbers = [0] * (LANES + 1)
        self._quarters = [0] * (LANES + 1)
        self._reserved = 0

    @classmethod
    def of(cls, comm: Communicator) -> CommunicatorOpIds:
        """Return the numbering of a communicator, which ends with it."""
        with cls._known_lock:
            return cls._known.setdefault(comm, cls())

    def start(self) -> tuple[OpIds, LaneOffer]:
        """Begin to start an engine: the ids by which its ranks find each other, and what to tell them."""
        with self._lock:
            busy = tuple(lane for lane in range(LANES) if self._busy[lane])
            offer = LaneOffer(busy, tuple(self._numbers[:LANES]))
            return self._next(_STARTING), offer

    def take(self, offers: Sequence[LaneOffer]) -> EngineOpIds:
        """Take the first lane that no rank uses.

        Parameters
        ----------
        offers
            Those of all ranks, by rank.

        Raises
        ------
        RuntimeError
            If there is none.
        """
        used = {lane for offer in offers for lane in offer.busy}
        with self._lock:
            lane = next((lane for lane in range(LANES) if lane not in used and not self._busy[lane]), None)
            if lane is None:
                raise RuntimeError(
                    f"this communicator has {LANES} engines already, on this rank or on others: shut down those that "
                    "are not used any more, or give engines communicators of their own"
                )
            # A rank that left an engine early has numbered fewer queries.
            self._numbers[lane] = max(offer.numbers[lane] for offer in offers)
            self._busy[lane] = True
        return EngineOpIds(self, lane)

    def reserve(self) -> int:
        """Return an id for one collective of this communicator."""
        with self._lock:
            number = self._reserved
            self._reserved += 1
        return _RESERVED | _OF_COMMUNICATOR | _wrapped(number)

    def _next(self, lane: int) -> OpIds:
        with self._lock:
            number = self._numbers[lane] % ((1 << _NUMBER_BITS) - 1) + 1
            self._numbers[lane] += 1
            quarter = number >> (_NUMBER_BITS - 2)
            stale = None
            if quarter != self._quarters[lane]:
                self._quarters[lane] = quarter
                first = lane << _NUMBER_BITS | ((quarter + 2) % 4) << (_NUMBER_BITS - 2)
                stale = first << NODE_BITS, (first + (1 << (_NUMBER_BITS - 2)) << NODE_BITS) - 1
        return OpIds(lane << _NUMBER_BITS | number, stale)

    def _free(self, lane: int) -> None:
        with self._lock:
            self._busy[lane] = False


_reserved = 0
_reserved_lock = threading.Lock()


def _wrapped(number: int) -> int:
    """Return a number as it stands in a reserved id. The last id of all belongs to the library."""
    return number % (_OF_COMMUNICATOR - 1)


@contextmanager
def reserve_op_id(*, comm: Communicator | None = None) -> Iterator[int]:
    """Reserve an operation id for one collective.

    All ranks must reserve in the same order; the collective must be complete when the block ends. No engine uses
    the id.

    Parameters
    ----------
    comm
        The communicator of the collective, ``engine.comm`` say: then only what is reserved for it counts. This is
        needed where several ranks are threads of one process, or where several threads of a rank reserve for
        communicators of their own. By default all that this process reserves counts.

    Yields
    ------
    The operation id, equal on all ranks.
    """
    global _reserved
    if comm is not None:
        yield CommunicatorOpIds.of(comm).reserve()
        return
    with _reserved_lock:
        number = _reserved
        _reserved += 1
    yield _RESERVED | _wrapped(number)
