"""All-gathers whose end is awaited."""

from __future__ import annotations

from typing import TYPE_CHECKING

import rapidsmpf.coll.allgather as blocking
from rapidsmpf.streaming.core.waits import GivesUp, gathered

if TYPE_CHECKING:
    from rapidsmpf.communicator.communicator import Communicator
    from rapidsmpf.memory.packed_data import PackedData
    from rapidsmpf.streaming.core.context import Context

__all__ = ["AllGather"]


class AllGather:
    """An all-gather in a network: each rank inserts chunks and gets those of all.

    Parameters
    ----------
    ctx
        Threads and memory.
    comm
        The ranks; None: those of the context.
    op_id
        The operation's id, the same on all ranks and used by no other operation that is in progress.

    Raises
    ------
    ValueError
        If the id is in use.
    """

    def __init__(self, ctx: Context, comm: Communicator | None, op_id: int) -> None:
        self._gather = blocking.AllGather(ctx.comm() if comm is None else comm, op_id, ctx.br())
        self._gives_up = GivesUp(self._gather)

    @property
    def comm(self) -> Communicator:
        """The ranks."""
        return self._gather.comm

    def insert(self, sequence_number: int, packed_data: PackedData) -> None:
        """Insert a chunk; it is taken, and left empty.

        Parameters
        ----------
        sequence_number
            Its place among those of this rank.
        packed_data
            The chunk.
        """
        self._gather.insert(sequence_number, packed_data)

    def insert_finished(self) -> None:
        """Say that this rank inserts nothing more."""
        self._gather.insert_finished()

    async def extract_all(self, ctx: Context, *, ordered: bool = True) -> list[PackedData]:
        """Wait for all ranks to have finished, and return their chunks, once.

        Parameters
        ----------
        ctx
            The context.
        ordered
            Whether by rank and sequence number.

        Raises
        ------
        RankFailedError
            If a rank failed.
        """
        return await gathered(ctx, self._gather, ordered)
