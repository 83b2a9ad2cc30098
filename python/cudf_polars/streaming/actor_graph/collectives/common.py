"""Operation ids: which messages belong to which collective.

An id is (epoch, node): each query and each :func:`reserve_op_id` block takes the next epoch, and the
exchanges of a query are numbered within it. Ranks that run the same sequence of queries therefore use the same
ids without talking to each other, also after a query failed half-way. Epoch 0 is never given out: ids below
``2**NODE_BITS`` are free for collectives made by hand.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

__all__ = ["OpIds", "reserve_op_id"]

NODE_BITS: Final = 12
EPOCH_BITS: Final = 16


class OpIds:
    """The operation ids of one query.

    Parameters
    ----------
    epoch
        The query's epoch.
    """

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch

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


_epochs = itertools.count()
_lock = threading.Lock()


def next_op_ids() -> OpIds:
    """Begin the next epoch of this process. All ranks must call this in the same order."""
    with _lock:
        return OpIds(next(_epochs) % ((1 << EPOCH_BITS) - 1) + 1)


@contextmanager
def reserve_op_id() -> Iterator[int]:
    """Reserve an operation id for one collective.

    All ranks must reserve in the same order; the collective must be complete when the block ends.

    Yields
    ------
    The operation id, equal on all ranks.
    """
    yield next_op_ids().id(0)
