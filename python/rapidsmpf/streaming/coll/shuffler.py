"""Shuffles whose ends are awaited."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rapidsmpf.shuffler import PartitionAssignment, Shuffler
from rapidsmpf.streaming.core.waits import GivesUp, wait_any, wait_on

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rapidsmpf.communicator.communicator import Communicator
    from rapidsmpf.memory.packed_data import PackedData
    from rapidsmpf.streaming.core.context import Context

__all__ = ["ShufflerAsync"]


class ShufflerAsync:
    """A shuffle in a network: each rank inserts, says when it has finished, and takes out the partitions that it owns.

    When it is made in an actor whose network fails before this rank has finished, the errors of the other ranks name
    the cause.

    Parameters
    ----------
    ctx
        Threads and memory.
    comm
        The ranks; None: those of the context.
    op_id
        The operation's id, the same on all ranks and used by no other operation that is in progress.
    total_num_partitions
        Number of partitions over all ranks.
    partition_assignment
        Which rank owns which partition.

    Raises
    ------
    ValueError
        If the id is in use, or there are no partitions.
    """

    def __init__(
        self,
        ctx: Context,
        comm: Communicator | None,
        op_id: int,
        total_num_partitions: int,
        partition_assignment: PartitionAssignment = PartitionAssignment.ROUND_ROBIN,
    ) -> None:
        self._context = ctx
        self._shuffler = Shuffler(
            ctx.comm() if comm is None else comm, op_id, total_num_partitions, ctx.br(), partition_assignment
        )
        self._gives_up = GivesUp(self._shuffler)

    @property
    def comm(self) -> Communicator:
        """The ranks."""
        return self._shuffler.comm

    def local_partitions(self) -> list[int]:
        """Return the partitions that this rank owns, ascending."""
        return self._shuffler.local_partitions()

    def insert(self, chunks: Mapping[int, PackedData]) -> None:
        """Insert chunks; they are taken, and left empty.

        Parameters
        ----------
        chunks
            Packed data by partition.
        """
        self._shuffler.insert_chunks(dict(chunks))

    async def insert_finished(self, ctx: Context | None = None) -> None:
        """Say that this rank inserts nothing more.

        Parameters
        ----------
        ctx
            The context.
        """
        self._shuffler.insert_finished()

    async def extract_async(self, ctx: Context, pid: int) -> list[PackedData]:
        """Wait for a partition of this rank to be complete, and return its chunks.

        Parameters
        ----------
        ctx
            The context.
        pid
            The partition.

        Raises
        ------
        IndexError
            If it does not exist or was waited for.
        RankFailedError
            If a rank failed.
        """
        await wait_on(ctx, self._shuffler, pid)
        return self._shuffler.extract(pid)

    async def extract_any_async(self, ctx: Context) -> tuple[int, list[PackedData]] | None:
        """Wait for any partition of this rank, and return it with its chunks; None when all were extracted.

        Parameters
        ----------
        ctx
            The context.

        Raises
        ------
        RankFailedError
            If a rank failed.
        """
        try:
            pid = await wait_any(ctx, self._shuffler)
        except IndexError:
            return None
        return pid, self._shuffler.extract(pid)
