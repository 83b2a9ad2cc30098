"""An in-process stand-in for the ranks: N threads of one process joined by a barrier, pure Polars.

``run_ranks(n, work)`` calls ``work(transport)`` on ``n`` threads and returns their results in rank order. A rank
that raises breaks the barrier, so that the others fail with ``RankFailedError`` instead of waiting for ever;
``run_ranks`` then raises the first error that was not such an echo.
"""

from __future__ import annotations

import functools
import operator
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import polars as pl

T = TypeVar("T")

# Long enough for any test query on a loaded machine; a correct run never waits for it.
BARRIER_TIMEOUT_S = 120.0


class RankFailedError(RuntimeError):
    """Another rank failed, so the collective cannot complete."""


class OperationMismatchError(RuntimeError):
    """The ranks called different collectives: a bug in the executor."""


@dataclass
class Group:
    """What the ranks of one run share: a board with one slot per rank, and the barrier around it."""

    nranks: int
    barrier: threading.Barrier = field(init=False)
    board: list[Any] = field(init=False)
    calls: list[list[str]] = field(init=False)

    def __post_init__(self) -> None:
        self.barrier = threading.Barrier(self.nranks)
        self.board = [None] * self.nranks
        self.calls = [[] for _ in range(self.nranks)]

    def _wait(self) -> None:
        try:
            self.barrier.wait(BARRIER_TIMEOUT_S)
        except threading.BrokenBarrierError:
            raise RankFailedError("another rank failed or never came to this collective") from None

    def exchange(self, rank: int, call: str, value: Any) -> list[Any]:
        """Put ``value`` on the board and return the values of all ranks."""
        self.calls[rank].append(call)
        self.board[rank] = (call, value)
        self._wait()
        posted = list(self.board)
        self._wait()
        if any(other != call for other, _ in posted):
            raise OperationMismatchError(f"ranks called {[other for other, _ in posted]}")
        return [item for _, item in posted]


class OneShotStream:
    """A frame that can be read as an Arrow stream once, as the real exchange's output."""

    def __init__(self, frame: pl.DataFrame) -> None:
        self._frame: pl.DataFrame | None = frame

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> Any:
        """Return the frame's stream; a second call is an error."""
        frame, self._frame = self._frame, None
        if frame is None:
            raise RuntimeError("this exchange output was already read; materialise it to read it twice")
        return frame.__arrow_c_stream__(requested_schema)

    def store(self) -> KeptFrame:
        """Return the rows to be read several times."""
        if isinstance(self._frame, pl.DataFrame):
            self._kept, self._frame = KeptFrame(self._frame), None
        return self._kept


class KeptFrame:
    """A frame that can be read several times, as rows that the library keeps."""

    def __init__(self, frame: pl.DataFrame) -> None:
        self._frame: pl.DataFrame | None = frame
        self.rows = frame.height
        self.nbytes = int(frame.estimated_size())

    def stream(self, *, last: bool = False) -> OneShotStream:
        """Return the rows; after ``last`` they are gone."""
        frame = self._frame
        if frame is None:
            raise RuntimeError("the rows of this store were taken out")
        if last:
            self._frame = None
        return OneShotStream(frame)


def drain(source: Any) -> pl.DataFrame:
    """Read ``source`` through its Arrow stream only, as C++ does."""
    if isinstance(source, pl.DataFrame):
        return source
    return pl.DataFrame(source)


class LocalTransport:
    """One rank's view of a :class:`Group`."""

    def __init__(self, group: Group, rank: int) -> None:
        self._group = group
        self._rank = rank

    @property
    def rank(self) -> int:
        """This rank."""
        return self._rank

    @property
    def nranks(self) -> int:
        """Number of ranks."""
        return self._group.nranks

    @property
    def bytes_spilled(self) -> int:
        """Nothing is."""
        return 0

    @property
    def memory_left(self) -> int:
        """All that there may be."""
        return 1 << 62

    def _frames(self, source: Any, call: str) -> list[pl.DataFrame]:
        frames = self._group.exchange(self._rank, call, drain(source))
        schemas = {tuple(frame.schema.items()) for frame in frames}
        if len(schemas) != 1:
            raise OperationMismatchError(f"{call}: ranks sent different schemas: {schemas}")
        return frames

    def shuffle(
        self, source: Any, keys: Sequence[str], *, op: int, partitions: int = 1
    ) -> list[OneShotStream]:
        """Hash shuffle; the order of the result is made arbitrary on purpose."""
        frames = self._frames(source, f"shuffle {op} {list(keys)} {partitions}")
        owners = [self._owner(frame, keys, self.nranks * partitions) for frame in frames]
        results = []
        for number in range(self._rank * partitions, (self._rank + 1) * partitions):
            rows = pl.concat([f.filter(owner == number) for f, owner in zip(frames, owners, strict=True)])
            # Polars' reverse() does not know every type.
            results.append(OneShotStream(rows[pl.int_range(rows.height - 1, -1, -1, eager=True)]))
        return results

    def _owner(self, frame: pl.DataFrame, keys: Sequence[str], count: int, seed: int = 7) -> pl.Series:
        if frame.is_empty():
            return pl.Series(dtype=pl.UInt64)
        canonical = []
        for key in keys:
            column = frame[key]
            if column.dtype.is_float():
                # -0.0 and 0.0 are equal, as are all NaNs.
                column = pl.select(
                    pl.when(column == 0)
                    .then(0.0)
                    .when(column.is_nan())
                    .then(float("nan"))
                    .otherwise(column)
                    .alias(key)
                ).to_series()
            elif isinstance(column.dtype, pl.Categorical | pl.Enum):
                column = column.cast(pl.String)
            canonical.append(column.alias(str(len(canonical))))  # a column may be two keys
        return pl.DataFrame(canonical).hash_rows(seed=seed) % count

    def scatter(self, source: Any, column: str, *, op: int, partitions: int = 1) -> list[OneShotStream]:
        """Send rows to the partition that ``column`` names, in order."""
        frames = self._frames(source, f"scatter {op} {column} {partitions}")
        dtype = frames[0].schema[column]
        if dtype != pl.UInt32:
            raise TypeError(f"scatter column {column!r} is {dtype}, expected UInt32")
        count = self.nranks * partitions
        for frame in frames:
            if frame[column].null_count() or (frame.height and int(frame[column].max()) >= count):
                raise ValueError(f"scatter column {column!r} names no partition in some row")
        return [
            OneShotStream(pl.concat([f.filter(pl.col(column) == number) for f in frames]))
            for number in range(self._rank * partitions, (self._rank + 1) * partitions)
        ]

    def keep(self, source: Any) -> KeptFrame:
        """Keep rows on this rank."""
        return KeptFrame(drain(source))

    def split(self, source: Any, keys: Sequence[str], *, seed: int, partitions: int) -> list[KeptFrame]:
        """Split rows of this rank by hash."""
        assert seed, "that of the shuffle"
        frame = drain(source)
        owner = self._owner(frame, keys, partitions, seed + 7)
        return [KeptFrame(frame.filter(owner == number)) for number in range(partitions)]

    def split_by(self, source: Any, column: str, *, partitions: int) -> list[KeptFrame]:
        """Split rows of this rank by a column."""
        frame = drain(source)
        return [KeptFrame(frame.filter(pl.col(column) == number)) for number in range(partitions)]

    def allgather(self, source: Any, *, op: int) -> OneShotStream:
        """Give every rank all rows, in rank order."""
        return OneShotStream(pl.concat(self._frames(source, f"allgather {op}")))

    def gather(self, source: Any, *, op: int, root: int = 0) -> OneShotStream:
        """Give ``root`` all rows, in rank order."""
        frames = self._frames(source, f"gather {op} {root}")
        return OneShotStream(pl.concat(frames) if self._rank == root else frames[0].clear())

    def merge_bits(self, bits: bytearray, *, op: int) -> bytearray:
        """Give every rank the bits that are set on any."""
        ranks = self._group.exchange(self._rank, f"merge_bits {op} {len(bits)}", bits)
        merged = functools.reduce(operator.or_, (int.from_bytes(each, "little") for each in ranks))
        return bytearray(merged.to_bytes(len(bits), "little"))

    def allgather_bytes(self, value: bytes, *, op: int) -> list[bytes]:
        """Give every rank each rank's ``value``."""
        return self._group.exchange(self._rank, f"allgather_bytes {op}", value)


def run_ranks(nranks: int, work: Callable[[LocalTransport], T]) -> list[T]:
    """Call ``work`` on ``nranks`` threads and return the results in rank order.

    Raises
    ------
    BaseException
        The first error of a rank, by rank number, that is not a mere echo of another rank's failure.
    """
    group = Group(nranks)
    results: list[Any] = [None] * nranks
    errors: list[BaseException | None] = [None] * nranks

    def body(rank: int) -> None:
        try:
            results[rank] = work(LocalTransport(group, rank))
        except BaseException as error:  # handed to the caller's thread below
            errors[rank] = error
            group.barrier.abort()

    threads = [threading.Thread(target=body, args=(rank,), name=f"rank-{rank}") for rank in range(nranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    failed = [error for error in errors if error is not None]
    origin = [error for error in failed if not isinstance(error, RankFailedError)]
    if failed:
        raise (origin or failed)[0]
    return results
