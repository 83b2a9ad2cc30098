"""Divides a partition of a rank that is too large: by another hash of its keys, or into smaller ranges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl

from cudf_polars.execute import paths
from cudf_polars.execute.fragments import ComputeDevice, Reading
from cudf_polars.execute.partitions import PartitionPlan
from cudf_polars.execute.paths import Paths
from cudf_polars.execute.rows import DESTINATION, WEIGHT, KeySample, addressed, handed_over, opened, stored
from cudf_polars.execute.streams import Brake, conform, scan_stream, stream_batches
from cudf_polars.execute.transport import Source, StoredRows, Transport
from cudf_polars.lower.partitioning import Distribution
from cudf_polars.lower.physical import Materialize, RangeExchange, Shuffle, Stream
from cudf_polars.lower.ranges import boundary_frame, destination

__all__ = ["Divider", "Part"]

_HEAVY = 0.75
"""A division that leaves more than this share of the bytes in one part has met a heavy key."""


@dataclass(frozen=True)
class Part:
    """A partition of the rows that a step reads, or a part of one.

    Attributes
    ----------
    sources
        By stream, where its rows are.
    level
        How often the partition has been divided.
    heavy
        Whether dividing it again would be in vain.
    """

    sources: Mapping[Stream, Sequence[Source]]
    level: int = 0
    heavy: bool = False

    def nbytes(self) -> int:
        """Bytes of the rows, packed; their sources are stores."""
        return sum(stored(source).nbytes for sources in self.sources.values() for source in sources)

    def rows(self) -> int:
        """Number of rows; their sources are stores."""
        return sum(stored(source).rows for sources in self.sources.values() for source in sources)

    def counted(self) -> Part:
        """Return it with stores as sources: waits until all rows are here."""
        return replace(self, sources={s: [stored(x) for x in xs] for s, xs in self.sources.items()})


@dataclass(frozen=True)
class Divider:
    """Divides the partitions of a query on this rank.

    Attributes
    ----------
    transport, device, optimizations, plan, brake, paths
        As for the executor.
    """

    transport: Transport
    device: ComputeDevice
    optimizations: pl.QueryOptFlags
    plan: PartitionPlan
    brake: Brake
    paths: Paths

    def divide(self, part: Part, nbytes: int, kept: set[Stream]) -> list[Part] | None:
        """Return the parts of a counted part that is too large, in their order; None if it cannot be divided.

        Parameters
        ----------
        nbytes
            Its bytes.
        kept
            The streams whose rows others read, too.
        """
        count = self.plan.parts_of(nbytes, part.level)
        if part.heavy or count == 1:
            return None
        keys = {stream: _hash_keys(stream) for stream in part.sources}
        if all(keys.values()):
            self.paths.took(paths.DIVIDED if part.level == 0 else paths.DIVIDED_TWICE)
            split = {
                stream: self._by_hash(sources, keys[stream], part.level + 1, count, last=stream not in kept)
                for stream, sources in part.sources.items()
            }
        else:
            ranges = self._by_ranges(part, count)
            if ranges is None:
                return None
            self.paths.took(paths.RANGES)
            split = ranges
        parts = [
            Part({stream: split[stream][i] for stream in split}, part.level + 1)
            for i in range(max(map(len, split.values())))
        ]
        # What has no rows gives none.
        return [replace(p, heavy=p.nbytes() > _HEAVY * nbytes) for p in parts if p.rows()]

    def _by_hash(
        self, sources: Sequence[Source], keys: Sequence[str], seed: int, count: int, *, last: bool
    ) -> list[list[StoredRows]]:
        parts: list[list[StoredRows]] = [[] for _ in range(count)]
        for source in sources:
            rows = opened(source, last=last)
            for part, store in zip(
                parts, self.transport.split(rows, keys, seed=seed, partitions=count), strict=True
            ):
                part.append(store)
        return parts

    def _by_ranges(self, part: Part, count: int) -> dict[Stream, list[list[StoredRows]]] | None:
        """Cut the rows of a range exchange by keys that are sampled from them."""
        if len(part.sources) != 1:
            return None
        ((stream, sources),) = part.sources.items()
        if not isinstance(stream, RangeExchange):
            return None
        schema = addressed(stream.schema)
        sample = KeySample(stream.keys, rows=1024)
        for source in sources:
            for batch in stream_batches(opened(source, last=False), schema, self.brake):
                sample.look(batch)
        boundaries = boundary_frame(sample.rows(stream.schema), stream.keys, WEIGHT, count)
        if not boundaries.height:
            return None
        target = destination(stream.keys, boundaries, stream.schema, by_search=self.device.is_cpu)
        parts: list[list[StoredRows]] = [[] for _ in range(count)]
        for source in sources:
            rows = scan_stream(opened(source, last=True), schema, brake=self.brake).with_columns(
                target.alias(DESTINATION)
            )
            batches = self.device.batches(rows, self.optimizations, Reading(ordered=True))
            split = handed_over(
                (conform(batch, schema) for batch in batches),
                schema,
                lambda given: self.transport.split_by(given, DESTINATION, partitions=count),
            )
            for mine, store in zip(parts, split, strict=True):
                mine.append(store)
        return {stream: parts}


def _hash_keys(stream: Stream) -> tuple[str, ...]:
    """Return the columns by whose hash rows with equal keys meet; none if they meet otherwise."""
    if isinstance(stream, Shuffle):
        return stream.keys if stream.boundaries is None else ()
    if isinstance(stream, Materialize) and stream.partitioning.distribution is Distribution.HASH:
        return tuple(min(key) for key in stream.partitioning.keys)
    return ()
