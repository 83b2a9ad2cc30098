"""The transport of real engines: exchanges by ``rapidsmpf``, chunk by chunk in C++.

A fragment's output is an Arrow stream that C++ pulls, packs, sends and spills; what comes back is an Arrow stream
that the next fragment scans. Python sees neither.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rapidsmpf.coll.allgather import AllGather, allgather_bytes
from rapidsmpf.coll.allreduce import AllReduce
from rapidsmpf.coll.small import abandon_operations
from rapidsmpf.communicator.single import new_communicator
from rapidsmpf.error import RankFailedError
from rapidsmpf.memory.buffer import MemoryType
from rapidsmpf.shuffler import PartitionAssignment, Shuffler
from rapidsmpf.streaming.exchange import (
    Drained,
    RowRouting,
    RowStore,
    allgather_output_stream,
    drain_into_allgather,
    drain_into_shuffle,
    shuffle_output_stream,
)

from cudf_polars.execute.errors import QueryMismatchError, hide_secrets
from cudf_polars.execute.transport import ArrowStream

if TYPE_CHECKING:
    from rapidsmpf.communicator.communicator import Communicator
    from rapidsmpf.streaming.core.context import Context

    from cudf_polars.streaming.actor_graph.collectives.common import OpIds

__all__ = ["RapidsmpfTransport"]


class RapidsmpfTransport:
    """Joins the ranks of one query.

    Parameters
    ----------
    context
        Communicator, memory and threads.
    op_ids
        Maps the query's operation numbers to ids of the communicator; without it they are ids already.
    """

    def __init__(self, context: Context, op_ids: OpIds | None = None) -> None:
        self._context = context
        self._comm: Communicator = context.comm()
        self._op_ids = op_ids

    @property
    def rank(self) -> int:
        """This rank."""
        return int(self._comm.rank)

    @property
    def nranks(self) -> int:
        """Number of ranks."""
        return int(self._comm.nranks)

    @property
    def bytes_spilled(self) -> int:
        """How many bytes this rank has moved to a lower tier so far."""
        return int(self._context.br().bytes_spilled)

    @property
    def memory_left(self) -> int:
        """Bytes that this rank may still use; negative if it exceeds its limit and has nothing more to spill."""
        return int(self._context.br().memory_available(MemoryType.DEVICE))

    def shuffle(
        self, source: ArrowStream, keys: Sequence[str], *, op: int, partitions: int = 1
    ) -> Sequence[ArrowStream]:
        """Send each row to the partition that the hash of its keys selects."""
        routing = RowRouting.by_hash(list(keys), narrow=partitions > 1)
        return self._route(source, routing, op, partitions)

    def scatter(
        self, source: ArrowStream, column: str, *, op: int, partitions: int = 1
    ) -> Sequence[ArrowStream]:
        """Send each row to the partition that its ``column`` names; rows come in the order of source ranks."""
        return self._route(source, RowRouting.by_column(column, narrow=partitions > 1), op, partitions)

    def gather(self, source: ArrowStream, *, op: int, root: int = 0) -> ArrowStream:
        """Give ``root`` the rows of all ranks in rank order, the other ranks none."""
        (rows,) = self._route(source, RowRouting.to_partition(root), op, 1)
        return rows

    def keep(self, source: ArrowStream) -> RowStore:
        """Keep rows on this rank, where they may be spilled."""
        (rows,) = self._divide(source, RowRouting.to_partition(0), 1)
        return rows

    def split(
        self, source: ArrowStream, keys: Sequence[str], *, seed: int, partitions: int
    ) -> list[RowStore]:
        """Split rows of this rank by the hash of their keys."""
        return self._divide(source, RowRouting.by_hash(list(keys), seed=seed, narrow=True), partitions)

    def split_by(self, source: ArrowStream, column: str, *, partitions: int) -> list[RowStore]:
        """Split rows of this rank by the column that names their partition."""
        return self._divide(source, RowRouting.by_column(column, narrow=True), partitions)

    def _divide(self, source: ArrowStream, routing: RowRouting, partitions: int) -> list[RowStore]:
        comm = new_communicator(self._context.options(), self._comm.progress_thread)
        shuffler = Shuffler(comm, 0, partitions, self._context.br())
        drained = drain_into_shuffle(source, routing, shuffler, self._context)
        return [RowStore.of_partition(shuffler, n, drained, self._context) for n in range(partitions)]

    def allgather(self, source: ArrowStream, *, op: int) -> ArrowStream:
        """Give every rank the rows of all ranks, in rank order."""
        gathering = AllGather(self._comm, self._id(op), self._context.br())
        schema = drain_into_allgather(source, gathering, self._context)
        return allgather_output_stream(gathering, schema, self._context)

    def merge_bits(self, bits: bytearray, *, op: int) -> bytearray:
        """Give every rank the bits that are set on any."""
        if self.nranks == 1:
            return bits
        words = memoryview(bits).cast("Q")
        reduction = AllReduce(self._comm, self._id(op), words, "or", br=self._context.br())
        # Another rank may read its keys for longer than any timeout.
        return bytearray(reduction.wait_and_extract(timeout=math.inf))

    def allgather_bytes(self, value: bytes, *, op: int, timeout: float | None = None) -> list[bytes]:
        """Give every rank the ``value`` of each rank, by rank; TimeoutError after ``timeout`` seconds.

        Without a timeout this waits as long as the others are alive: one of them may compute for an hour.
        """
        if self.nranks == 1:
            return [value]
        return allgather_bytes(
            self._comm, self._id(op), value, timeout=math.inf if timeout is None else timeout
        )

    def abandon(self, error: BaseException) -> None:
        """Tell the other ranks that this query failed here.

        Their collectives of this query raise; the next query finds the ranks as if nothing had been. A rank that
        finds an error of its own (a column that does not exist, say, is missed by all) raises that; a mismatch is
        raised by all.
        """
        if self.nranks == 1 or self._op_ids is None or isinstance(error, QueryMismatchError):
            return
        hide_secrets(error)
        first, last = self._op_ids.range
        with contextlib.suppress(RankFailedError):  # the communicator is lost: all ranks know
            if isinstance(error, RankFailedError) and 0 <= error.rank < self.nranks:
                abandon_operations(self._comm, first, last, error.reason, origin=error.rank)
            else:
                abandon_operations(self._comm, first, last, f"{type(error).__name__}: {error}")

    def abort(self, error: BaseException) -> None:
        """Tell the other ranks that this one gives up altogether, unless they know the error themselves."""
        if self.nranks > 1 and not isinstance(error, QueryMismatchError | RankFailedError):
            hide_secrets(error)
            self._comm.abort(f"{type(error).__name__}: {error}")

    def _id(self, op: int) -> int:
        return op if self._op_ids is None else self._op_ids.id(op)

    def _route(
        self, source: ArrowStream, routing: RowRouting, op: int, partitions: int
    ) -> Sequence[ArrowStream]:
        shuffler = Shuffler(
            self._comm,
            self._id(op),
            self.nranks * partitions,
            self._context.br(),
            PartitionAssignment.CONTIGUOUS,  # partition p of rank r is r * partitions + p
        )
        schema = drain_into_shuffle(source, routing, shuffler, self._context)
        if partitions == 1:
            return [shuffle_output_stream(shuffler, schema, self._context)]
        return [_Partition(shuffler, number, schema, self._context) for number in shuffler.local_partitions()]


class _Partition:
    """The rows of one partition of this rank, which stay in the shuffle until they are asked for."""

    def __init__(self, shuffler: Shuffler, number: int, drained: Drained, context: Context) -> None:
        self._origin: tuple[Shuffler, int, Drained, Context] | None = (shuffler, number, drained, context)
        self._store: RowStore | None = None

    def store(self) -> RowStore:
        """Wait until all of them are here, and return them."""
        if self._store is None:
            assert self._origin is not None
            self._store = RowStore.of_partition(*self._origin)
            self._origin = None  # which has the shuffle
        return self._store

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> Any:
        """Return the rows, once."""
        return self.store().stream(last=True).__arrow_c_stream__()
