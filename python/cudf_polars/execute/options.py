"""What a user can set about how queries are distributed and run."""

from __future__ import annotations

import math
from dataclasses import dataclass

from cudf_polars.execute.partitions import PartitionPlan
from cudf_polars.lower.builder import Settings
from cudf_polars.lower.fallback import FallbackMode

__all__ = ["GROUPS_AT_ONCE", "ExecutionOptions"]

_BROADCAST_LIMIT = 64 << 20
_CHUNK = 256 << 20
_FILTER_LIMIT = 256 << 20
_FILTER_KEYS = 1_000_000
"""So many keys Polars finds as fast as it reads files."""
_BLOOM_FILTER = 128 << 20
"""Bytes of a Bloom filter of more keys: 44 million fit."""
_MEMORY_OF_BLOOM_FILTER = 32
"""The part of a rank's memory that it does not exceed: ranks that merge theirs have it several times for a moment."""
_MEMORY_OF_BUFFER = 16
"""The part of a rank's memory that neither of these exceeds."""
_MEMORY_OF_TABLE, _MEMORY_OF_PARTITION = 4, 16
"""The parts of a rank's memory that a table may take in one piece, and that a partition of a larger one takes."""
_MEMORY_OF_COPIES = 10
"""The part of a rank's memory that the sides of joins that are copied to it may take, where tables are larger."""
_MEMORY_OF_LOOKUPS = 3
"""The same where rows of such a side are found by the value of their key, without a hash table."""
_MEMORY_OF_RANGE = 6
"""The same of a range of a file, whose rows are mostly not kept while it is read."""
GROUPS_AT_ONCE = 32_768
"""Polars aggregates so many groups in a table of fixed size, with room to spare. Of 100,000 groups it keeps a partial
result for nearly every row until the end of the run: its memory grows with the rows.
"""
_SMALL_FOR_PARTITIONS = 4 << 20
"""Bytes of partial results that are not worth partitions."""
_MOST_PARTITIONS = 256
_CACHED, _MOST_FOR_CACHE, _MOST_TARGETS = 8 << 20, 128, 256
"""Partitions of so many bytes are grouped and joined in the processor's cache. For that, there are up to so many of
them a rank, and so many in all: whatever is sent is cut into as many pieces.
"""
_PIECE, _FEWEST_OF_PIECES = 256 << 10, 16
"""A chunk of rows is not cut into smaller pieces than that: what is kept of each takes up to 2 KiB of memory until it
is read. Partitions are rather up to twice as large, unless there would be fewer than so many.
"""
_TWO_FIT = 4 / 3
"""A step may run on two partitions at once if there are this many times the partitions that memory requires."""
_LIMIT_OF_TARGET = 4
"""How many times the bytes that it should have a partition may have."""


@dataclass(frozen=True)
class ExecutionOptions:
    """Options of one query's run.

    Attributes
    ----------
    fallback_mode
        What to do when a step cannot be distributed and runs on one rank: ``"warn"``, ``"raise"``
        (``NotImplementedError``) or ``"silent"``.
    broadcast_limit
        Bytes up to which a join's side is copied to every rank; 0 chooses: 64 MiB, or a sixteenth of ``memory``;
        a tenth of it where tables do not fit, or a third if rows of the side are found by the value of their key, for
        the sides of joins that follow each other together.
    target_partition_size
        Bytes that a partition should have; 0 chooses: a part of ``memory``, once a table takes a quarter of it.
    max_rows_per_partition
        Rows of an in-memory frame that a partition of a rank should have at most; 0: as many as memory asks for.
    small_limit
        Bytes over all ranks up to which partial results go to rank 0 instead of being distributed; at least 4 MiB where
        tables do not fit, unless it is 0.
    read_everywhere_limit
        Bytes up to which every rank reads a table itself rather than be sent it.
    head_limit
        Rows up to which the head of a sort is merged from the ranks' heads.
    partitions
        Number of partitions into which exchanges by key split the rows of each rank; 0 chooses.
    memory
        Bytes of memory that a rank may use; 0: unknown, so that nothing is split because of it.
    partition_limit
        Bytes above which a partition is divided again; 0 chooses: four times ``target_partition_size``, or a quarter of
        ``memory``.
    dynamic_planning
        Whether sizes that decide are counted while the query runs; else they are estimated before.
    filter_keys
        How many keys of a join's side may filter the other side before that moves; 0: none do.
    bloom_filter_bytes
        Bytes that a Bloom filter of more keys than these may have; at most a thirty-second of ``memory``; 0: there are
        no such filters.
    filter_share, filter_least, sample_least
        See :class:`~cudf_polars.lower.builder.Settings`.
    """

    fallback_mode: FallbackMode = "warn"
    broadcast_limit: int = 0
    target_partition_size: int = 0
    max_rows_per_partition: int = 0
    small_limit: int = 256 << 10
    read_everywhere_limit: int = 1 << 20
    head_limit: int = 100_000
    partitions: int = 0
    memory: int = 0
    partition_limit: int = 0
    dynamic_planning: bool = True
    filter_keys: int = _FILTER_KEYS
    bloom_filter_bytes: int = _BLOOM_FILTER
    filter_share: float = 0.5
    filter_least: int = 4 << 20
    sample_least: int = 1_000_000

    def __post_init__(self) -> None:
        if self.fallback_mode not in ("warn", "raise", "silent"):
            raise ValueError(f"fallback_mode must be 'warn', 'raise' or 'silent', not {self.fallback_mode!r}")
        for name in (
            "broadcast_limit",
            "target_partition_size",
            "max_rows_per_partition",
            "small_limit",
            "read_everywhere_limit",
            "head_limit",
            "partitions",
            "memory",
            "partition_limit",
            "filter_keys",
            "bloom_filter_bytes",
            "filter_least",
            "sample_least",
        ):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative, got {getattr(self, name)}")

    @classmethod
    def tiny(cls, fallback_mode: FallbackMode = "warn") -> ExecutionOptions:
        """Return options under which the smallest data takes the paths of large data: for tests."""
        return cls(
            fallback_mode=fallback_mode,
            broadcast_limit=1,
            small_limit=0,
            read_everywhere_limit=0,
            head_limit=4,
            filter_share=1.0,
            filter_least=0,
            sample_least=0,
        )

    @property
    def may_partition(self) -> bool:
        """Whether anything says that the rows of a rank could be split into partitions."""
        return bool(
            self.memory or self.target_partition_size or self.max_rows_per_partition or self.partitions
        )

    def partitions_of(self, nbytes: float, nranks: int, *, on_cpu: bool = True) -> int:
        """Return in how many partitions each rank should have a table of so many bytes.

        Parameters
        ----------
        on_cpu
            Whether partitions gain by being small.
        """
        needed = self._needed(nbytes, nranks)
        if needed == 1 or not on_cpu:
            return needed
        return self._cached(needed, nbytes, nranks, min(_MOST_FOR_CACHE, _MOST_TARGETS // nranks))

    def _cached(self, needed: int, nbytes: float, nranks: int, most: int) -> int:
        """Return how many partitions a rank should have if memory asks for ``needed``, and no more than ``most``."""
        if self.partitions or self.target_partition_size or not self._must_split(nbytes, nranks):
            return needed
        return max(needed, min(most, math.ceil(nbytes / nranks / _CACHED)))

    def _needed(self, nbytes: float, nranks: int, parts: int = _MEMORY_OF_PARTITION) -> int:
        """Return how many partitions of a rank memory asks for, of which each takes one of so many parts of it."""
        if self.partitions:
            return self.partitions
        if not self._must_split(nbytes, nranks):
            return 1
        target = self.target_partition_size or self.memory / parts
        if not target:
            return 1
        needed = math.ceil(nbytes / nranks / target)
        most = self.chunk_bytes // _PIECE // nranks
        if most >= _FEWEST_OF_PIECES and not self.target_partition_size:
            needed = min(needed, max(most, math.ceil(needed / 2)))
        return min(_MOST_PARTITIONS, max(1, needed))

    def _of_rows(self, rows: float) -> int:
        """Return in how many partitions so many rows of an in-memory frame should be on a rank."""
        if not self.max_rows_per_partition or self.partitions:
            return 1
        return min(_MOST_PARTITIONS, max(1, math.ceil(rows / self.max_rows_per_partition)))

    def _must_split(self, nbytes: float, nranks: int) -> bool:
        """Whether a rank's part of a table of so many bytes is too large to be worked on in one piece."""
        return bool(self.target_partition_size) or nbytes / nranks > self.memory / _MEMORY_OF_TABLE

    def plan_of(
        self, nbytes: float, nranks: int, *, frame_rows: float = 0.0, on_cpu: bool = True
    ) -> PartitionPlan:
        """Return how each rank splits its rows.

        Parameters
        ----------
        nbytes
            Of the largest table, over all ranks.
        frame_rows
            Rows of the longest in-memory frame, over all ranks.
        on_cpu
            Whether Polars works on them.
        """
        target = self.target_partition_size or self.memory // _MEMORY_OF_PARTITION
        limit = (
            self.partition_limit
            or _LIMIT_OF_TARGET * self.target_partition_size
            or self.memory // _MEMORY_OF_TABLE
        )
        ranges = self._needed(nbytes, nranks, _MEMORY_OF_RANGE if on_cpu else _MEMORY_OF_PARTITION)
        can_run_ahead = on_cpu and self._must_split(nbytes, nranks)
        return PartitionPlan(
            max(self.partitions_of(nbytes, nranks, on_cpu=on_cpu), self._of_rows(frame_rows / nranks)),
            limit or None,
            max(1, min(target, limit // 2) if target else limit // 2),
            self.chunk_bytes,
            ranges,
            self._cached(ranges, nbytes, nranks, _MOST_FOR_CACHE) if on_cpu else ranges,
            _TWO_FIT * self._needed(nbytes, nranks) if can_run_ahead else math.inf,
        )

    @property
    def whole_bytes(self) -> float:
        """The largest table or join result, in bytes, that one rank processes without partitions."""
        if self.partitions or not (self.target_partition_size or self.memory):
            return math.inf
        return self.target_partition_size or self.memory / _MEMORY_OF_TABLE

    @property
    def shared_bytes(self) -> int:
        """A join with a result of more bytes is distributed over the ranks, even if each could compute all of it."""
        return self.broadcast_limit or _BROADCAST_LIMIT

    @property
    def chunk_bytes(self) -> int:
        """Bytes of rows that a step over any rows takes at a time, where rows are worked on in partitions."""
        return self._of_memory(_CHUNK)

    def _of_memory(self, usual: int) -> int:
        """Return a number of bytes, or less where memory is small."""
        return min(usual, max(1, self.memory // _MEMORY_OF_BUFFER)) if self.memory else usual

    @property
    def _bloom_filter_bytes(self) -> int:
        most = self.memory // _MEMORY_OF_BLOOM_FILTER if self.memory else self.bloom_filter_bytes
        return min(self.bloom_filter_bytes, most)

    def _copied_limit(self, partitions: int, parts: int) -> int:
        """Return the bytes of sides that may be copied; where rows that move go to disk, it is worth more.

        Parameters
        ----------
        parts
            They may then take one of so many parts of the memory.
        """
        if self.broadcast_limit:
            return self.broadcast_limit
        usual = self._of_memory(_BROADCAST_LIMIT)
        return usual if partitions == 1 else max(usual, self.memory // parts)

    def _small_limit(self, partitions: int) -> int:
        """Return the bytes of a result that goes to rank 0; each partition of what moves by hash costs some time."""
        if partitions == 1 or not self.small_limit:
            return self.small_limit
        return max(self.small_limit, self._of_memory(_SMALL_FOR_PARTITIONS))

    def settings(self, nranks: int, partitions: int = 1, *, on_cpu: bool = True) -> Settings:
        """Return what the planner decides by, where exchanges split a rank's rows into so many partitions."""
        # On a GPU, joins are faster than sets of keys that come from the host; without counts, there are no keys.
        finds_keys = on_cpu and self.dynamic_planning
        return Settings(
            nranks=nranks,
            partitions=partitions,
            chunk_bytes=self.chunk_bytes,
            groups_at_once=GROUPS_AT_ONCE if on_cpu else math.inf,
            broadcast_limit=self._copied_limit(partitions, _MEMORY_OF_COPIES),
            lookup_limit=self._copied_limit(partitions, _MEMORY_OF_LOOKUPS if on_cpu else _MEMORY_OF_COPIES),
            small_limit=self._small_limit(partitions),
            read_everywhere_limit=self.read_everywhere_limit,
            head_limit=self.head_limit,
            filter_keys=self.filter_keys if finds_keys else 0,
            bloom_filter_bytes=self._bloom_filter_bytes,
            filter_limit=self._of_memory(_FILTER_LIMIT),
            filter_share=self.filter_share,
            filter_least=self.filter_least,
            sample_least=self.sample_least if finds_keys else math.inf,
            fallback_mode=self.fallback_mode,
        )
