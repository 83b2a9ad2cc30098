"""What the executor needs from the ranks: the seam between query plans and the exchange library.

A fragment's output reaches other ranks only through a :class:`Transport`. The engine gives the executor one
that moves chunks with ``rapidsmpf`` (C++, see :mod:`cudf_polars.execute.exchange`); tests give it one that joins
threads of one process. Every method is collective: all ranks call it with the same ``op`` in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    from typing_extensions import TypeIs


class ArrowStream(Protocol):
    """Anything that exports an Arrow C stream once (a data frame, a batch iterator, an exchange's output)."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> Any:
        """Return a ``PyCapsule`` named ``arrow_array_stream``."""
        ...


class StoredRows(Protocol):
    """Rows that are kept on this rank, where they may be spilled, to be read several times."""

    @property
    def rows(self) -> int:
        """Number of rows."""
        ...

    @property
    def nbytes(self) -> int:
        """Bytes that they take, packed."""
        ...

    def stream(self, *, last: bool = False) -> ArrowStream:
        """Return the rows; with ``last``, nothing else reads them now or afterwards, and reading frees their memory."""
        ...


class PartitionRows(ArrowStream, Protocol):
    """The rows of a partition, which can be read once."""

    def store(self) -> StoredRows:
        """Wait until all of them are here, and return them instead: later calls get the same."""
        ...


Source: TypeAlias = ArrowStream | StoredRows
"""Where the rows of a step come from."""


def is_stream(source: Source) -> TypeIs[ArrowStream]:
    """Whether the rows can be read once."""
    return hasattr(
        source, "__arrow_c_stream__"
    )  # isinstance() takes ten times as long, and every piece of a step asks


def may_be_stored(source: Source) -> TypeIs[PartitionRows]:
    """Whether it can be kept in the place of being read."""
    return hasattr(source, "store")


class Transport(Protocol):
    """Collective operations over the ranks of one query.

    Notes
    -----
    ``source`` is drained before a method returns; a returned stream is read lazily, while chunks of other
    ranks may still be arriving. A returned stream that is never read is discarded without blocking other ranks.
    Streams keep the schema of ``source`` exactly (names, types, categories), also when no row arrives.
    A rank that fails makes the pending and later calls of every other rank raise ``RankFailedError``.
    """

    @property
    def rank(self) -> int:
        """This rank, ``0 <= rank < nranks``."""
        ...

    @property
    def nranks(self) -> int:
        """Number of ranks."""
        ...

    @property
    def bytes_spilled(self) -> int:
        """How many bytes this rank has moved to a lower tier so far."""
        ...

    @property
    def memory_left(self) -> int:
        """Bytes that this rank may still use; negative if it exceeds its limit and has nothing more to spill."""
        ...

    def shuffle(
        self, source: ArrowStream, keys: Sequence[str], *, op: int, partitions: int = 1
    ) -> Sequence[ArrowStream]:
        """Send each row to the partition that the hash of its ``keys`` columns selects.

        Rows with equal keys (null equals null, -0.0 equals 0.0, NaN equals NaN) meet in one partition. The keys'
        types must be the same on all ranks. The order of rows in the result is arbitrary.

        Parameters
        ----------
        partitions
            Partitions of each rank.

        Returns
        -------
        The rows of each partition of this rank: :class:`PartitionRows` if there are several. The partitions of two
        shuffles by keys of equal types match.
        """
        ...

    def scatter(
        self, source: ArrowStream, column: str, *, op: int, partitions: int = 1
    ) -> Sequence[ArrowStream]:
        """Send each row to the partition that its ``column`` (UInt32, no nulls, ``< nranks * partitions``) names.

        Rank ``r`` has the ``partitions`` partitions from ``r * partitions`` on. Their rows keep ``column``; they are in
        the order of source ranks, and within one source rank in the order of ``source``.
        """
        ...

    def keep(self, source: ArrowStream) -> StoredRows:
        """Keep rows on this rank, in their order: no other rank takes part."""
        ...

    def split(
        self, source: ArrowStream, keys: Sequence[str], *, seed: int, partitions: int
    ) -> Sequence[StoredRows]:
        """Split rows of this rank by the hash of their ``keys``: no other rank takes part.

        Parameters
        ----------
        seed
            Not 0, by which :meth:`shuffle` splits: rows of one partition that differ in their keys part by another.
        """
        ...

    def split_by(self, source: ArrowStream, column: str, *, partitions: int) -> Sequence[StoredRows]:
        """Split rows of this rank by ``column``, which names their partition, and stays; they keep their order."""
        ...

    def allgather(self, source: ArrowStream, *, op: int) -> ArrowStream:
        """Give every rank the rows of all ranks, in rank order and within a rank in the order of ``source``."""
        ...

    def gather(self, source: ArrowStream, *, op: int, root: int = 0) -> ArrowStream:
        """Give ``root`` the rows of all ranks in rank order; the other ranks get no rows (same schema)."""
        ...

    def merge_bits(self, bits: bytearray, *, op: int) -> bytearray:
        """Give every rank the bits that are set on any; they are as many on every rank, and a multiple of 64."""
        ...

    def allgather_bytes(self, value: bytes, *, op: int) -> list[bytes]:
        """Give every rank the small host ``value`` of each rank, indexed by rank."""
        ...
