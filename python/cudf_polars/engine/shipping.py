"""How a query travels from a client to the ranks: the query once, its in-memory frames split over the ranks.

A query without frames of its own travels as Polars serialises it, and each rank reads it: the client need not reach the
files. One with frames is read by the client, since Polars serialises frames at 30 MB/s; what travels is the typed plan,
and to each rank its own rows of the frames. Both are pickles, or hold some: they travel sealed
(:mod:`cudf_polars.engine.sealed`).
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import cloudpickle
import polars as pl

from cudf_polars.engine.sealed import seal, unseal
from cudf_polars.execute.queries import QUERY_FLAGS, Query, read_query
from cudf_polars.plan.datasets import versions_pinned
from cudf_polars.plan.last_resort import frame_scans
from cudf_polars.plan.nodes import DataFrameScan
from cudf_polars.plan.optimized import look

__all__ = ["PackedQuery", "pack_frame", "pack_query", "unpack_frame", "unpack_query"]


@dataclass(frozen=True)
class PackedQuery:
    """A query for one rank.

    Attributes
    ----------
    flags
        Polars' optimisation flags.
    lazy_frame
        The query as Polars serialises it, sealed, or None.
    plan
        Else the plan that the client has read, pickled without its frames and sealed.
    frames
        This rank's rows of the plan's frames.
    """

    flags: Mapping[str, bool]
    lazy_frame: bytes | None = field(default=None, repr=False)  # these hold the user's values and paths
    plan: bytes = field(default=b"", repr=False)
    frames: Sequence[bytes] = field(default=(), repr=False)


def pack_frame(frame: pl.DataFrame) -> bytes:
    """Return a frame as bytes, exactly."""
    return frame.serialize()


def unpack_frame(packed: bytes) -> pl.DataFrame:
    """Return the frame of :func:`pack_frame`."""
    return pl.DataFrame.deserialize(io.BytesIO(packed))


def pack_query(lf: pl.LazyFrame, optimizations: pl.QueryOptFlags, nranks: int) -> list[PackedQuery]:
    """Return the query as it travels to each rank.

    Parameters
    ----------
    lf
        The query; it is not run.
    optimizations
        Which optimisations Polars may make.
    nranks
        The rows of in-memory frames are split into as many parts, by position.

    Raises
    ------
    TypeError
        If the query holds something that cannot be sent to another process.
    """
    flags = {name: bool(getattr(optimizations, name)) for name in QUERY_FLAGS}
    try:
        if not _has_frames(lf, optimizations):
            with versions_pinned():
                return [PackedQuery(flags, seal(lf.serialize()))] * nranks
        query = read_query(lf, optimizations)
        plan, frames = _dump(query)
    except (pickle.PicklingError, TypeError, AttributeError, pl.exceptions.ComputeError) as error:
        raise TypeError(
            f"this query cannot be sent to other processes: {error}. Functions and sources in it have to be picklable."
        ) from error
    parts = [_rows_of_rank(frames, rank, nranks) for rank in range(nranks)]
    plan = seal(plan)
    return [PackedQuery(flags, None, plan, [pack_frame(frame) for frame in part]) for part in parts]


def unpack_query(
    packed: PackedQuery, rank: int, nranks: int
) -> tuple[pl.LazyFrame | Query, pl.QueryOptFlags]:
    """Return a query, with this rank's rows of its frames, and its flags.

    Raises
    ------
    SealError
        If the query is damaged or comes from other versions. Nothing of it has been unpickled then.
    """
    content = unseal(packed.plan if packed.lazy_frame is None else packed.lazy_frame)
    flags = pl.QueryOptFlags(**packed.flags)
    if packed.lazy_frame is None:
        return _load(content, [unpack_frame(frame) for frame in packed.frames]), flags
    lf = pl.LazyFrame.deserialize(io.BytesIO(content))
    if nranks == 1:
        return lf, flags
    query = read_query(lf, flags)
    if not any(isinstance(node, DataFrameScan) for node in query.plan.nodes):
        return query, flags
    # The client could not look into it, since the files are here and not there: all rows of the frames came along.
    plan, frames = _dump(query)
    return _load(plan, _rows_of_rank(frames, rank, nranks)), flags


def _has_frames(lf: pl.LazyFrame, optimizations: pl.QueryOptFlags) -> bool:
    try:
        return bool(look(lf, optimizations._pyoptflags, frame_scans))
    except (pl.exceptions.PolarsError, OSError, NotImplementedError):
        return False  # files that are not here, or a wrong query: the ranks look for themselves


def _dump(query: Query) -> tuple[bytes, list[pl.DataFrame]]:
    """Pickle a query without its frames; of these, return the columns that it uses."""
    scans = [node for node in query.plan.nodes if isinstance(node, DataFrameScan)]
    numbers: dict[int, int] = {}
    frames: list[pl.DataFrame] = []
    used: dict[int, set[str]] = {}
    for node in scans:
        if id(node.frame) not in numbers:
            numbers[id(node.frame)] = len(frames)
            frames.append(node.frame)
        used.setdefault(id(node.frame), set()).update(node.schema)
    stream = io.BytesIO()
    _Pickler(stream, numbers).dump(Query(query.plan))
    return stream.getvalue(), [
        # A frame without columns has no rows.
        frame.select([n for n in frame.columns if n in used[id(frame)]] or frame.columns[:1])
        for frame in frames
    ]


def _load(plan: bytes, frames: Sequence[pl.DataFrame]) -> Query:
    query = _Unpickler(io.BytesIO(plan), frames).load()
    assert isinstance(query, Query)
    return query


def _rows_of_rank(frames: Sequence[pl.DataFrame], rank: int, nranks: int) -> list[pl.DataFrame]:
    bounds = [(f.height * rank // nranks, f.height * (rank + 1) // nranks) for f in frames]
    return [f.slice(low, high - low) for f, (low, high) in zip(frames, bounds, strict=True)]


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Leaves data frames out, by number."""

    def __init__(self, stream: io.BytesIO, numbers: Mapping[int, int]) -> None:
        super().__init__(stream, protocol=5)
        self._numbers = numbers

    def persistent_id(self, obj: Any) -> int | None:
        return self._numbers.get(id(obj)) if isinstance(obj, pl.DataFrame) else None


class _Unpickler(pickle.Unpickler):
    def __init__(self, stream: io.BytesIO, frames: Sequence[pl.DataFrame]) -> None:
        super().__init__(stream)
        self._frames = frames

    def persistent_load(self, number: int) -> pl.DataFrame:
        return self._frames[number]
