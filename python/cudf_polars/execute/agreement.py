"""What all ranks of a query agree on: before it, that they run the same one over the same files; after it, its end."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from io import BytesIO
from typing import Any, NamedTuple

import polars as pl

from cudf_polars.execute.errors import QueryMismatchError
from cudf_polars.execute.streams import conform
from cudf_polars.lower.footers import FooterError, Footers
from cudf_polars.lower.join_growth import GrowingJoin
from cudf_polars.lower.physical import Estimate
from cudf_polars.lower.table_sizes import own_frames
from cudf_polars.plan.cloud import is_remote, shown_path
from cudf_polars.plan.dag import Plan
from cudf_polars.plan.fingerprint import dump, fingerprint, first_difference
from cudf_polars.plan.nodes import DataFrameScan, Scan

__all__ = ["Agreement", "agree_on_end", "agree_on_purpose", "agree_on_query"]

AllGather = Callable[[bytes], list[bytes]]

_HEAD_BYTES, _TAIL_BYTES = 4 << 10, 64 << 10
"""How much of the beginning and the end of a file is compared between ranks; the end has the footer of Parquet."""
_SAMPLE_ROWS = 32


@dataclass(frozen=True)
class Agreement:
    """What the ranks have told each other about a query.

    Attributes
    ----------
    plan
        The query that they run.
    frame_sizes
        By number of the node, rows and bytes of the plan's in-memory frames over all ranks.
    equal_frames
        Columns and rows of in-memory frames that are the same on every rank, as text for a warning.
    joins
        By number of the node, the joins that give several times the rows of their sides, as a rank estimates.
    """

    plan: Plan
    frame_sizes: dict[int, Estimate]
    equal_frames: tuple[str, ...]
    joins: dict[int, GrowingJoin]


def agree_on_purpose(purpose: str, allgather: AllGather, *, holds: bool = True) -> bool:
    """Check that all ranks do the same, before what comes ahead of their query.

    Parameters
    ----------
    holds
        What this rank says of it.

    Returns
    -------
    Whether all ranks say so.

    Raises
    ------
    QueryMismatchError
        On all ranks, if they do not.
    """
    mine = json.dumps({"purpose": purpose, "holds": holds}).encode()
    views = [json.loads(value) for value in allgather(mine)]
    _check_purposes(views)
    return all(view["holds"] for view in views)


def _check_purposes(views: Sequence[Mapping[str, Any]]) -> None:
    for rank, view in enumerate(views):
        if view["purpose"] != views[0]["purpose"]:
            raise QueryMismatchError(
                f"The ranks do different things: rank 0 calls {views[0]['purpose']}(), rank {rank} calls"
                f" {view['purpose']}(). Every rank must call the same for the same queries in the same order: avoid"
                " conditions on the rank."
            )


def agree_on_query(
    plan: Plan,
    allgather: AllGather,
    footers: Footers,
    read_apart: Callable[[], Plan] | None = None,
    *,
    find_joins: Callable[[Plan], Mapping[int, GrowingJoin]] = lambda _: {},
    purpose: str = "collect",
) -> Agreement:
    """Check that all ranks run the same query over the same files, for the same purpose.

    Parameters
    ----------
    footers
        Reads row groups; of remote Parquet files they are compared.
    read_apart
        Reads the query again, without sub-plans that several of its parts share. Of a query that was unpickled, Polars
        finds equal sub-plans with series in them now and then only, so ranks with the same query may have other
        sub-plans shared. Then all ranks read it again.
    find_joins
        Estimates which joins of a plan grow. What ranks find may differ: in-memory frames do.
    purpose
        The method that the user called: what the ranks do behind the query depends on it.

    Raises
    ------
    QueryMismatchError
        On all ranks, if they do not.
    """
    own = own_frames(plan)
    frames = [node.frame for node in plan.nodes if isinstance(node, DataFrameScan)]
    files = _file_digests(plan) + _remote_digests(plan, footers)
    mine = {
        "purpose": purpose,
        "query": fingerprint(plan).hex(),
        "again": read_apart is not None,
        "files": _hash(json.dumps(files).encode()),
        "frames": [
            (size.rows, size.nbytes, _sample_digest(frame))
            for size, frame in zip(own.values(), frames, strict=True)
        ],
        "joins": {number: asdict(join) for number, join in find_joins(plan).items()},
    }
    views = [json.loads(value) for value in allgather(json.dumps(mine).encode())]
    _check_purposes(views)
    differ = any(view["query"] != views[0]["query"] for view in views)
    if differ and read_apart is not None and all(view["again"] for view in views):
        return agree_on_query(read_apart(), allgather, footers, find_joins=find_joins, purpose=purpose)
    for key in ("query", "files"):
        if any(view[key] != views[0][key] for view in views):
            text = dump(plan) if key == "query" else "\n".join(f"{p}: {d}" for p, d in files)
            raise _mismatch(key, text, [view[key] for view in views], allgather)
    sizes = [[view["frames"][i] for view in views] for i in range(len(frames))]
    return Agreement(
        plan,
        {
            number: Estimate(sum(s[0] for s in each), sum(s[1] for s in each))
            for number, each in zip(own, sizes, strict=True)
        },
        tuple(
            f"{frame.height} rows of ({', '.join(frame.columns[:5])}{', ...' if frame.width > 5 else ''})"
            for frame, each in zip(frames, sizes, strict=True)
            if frame.height and all(s == each[0] for s in each)
        ),
        _largest_joins(view["joins"] for view in views),
    )


def _largest_joins(views: Iterable[Mapping[str, Mapping[str, Any]]]) -> dict[int, GrowingJoin]:
    """Return, of each join that a rank expects to grow, the most that one of them expects."""
    joins: dict[int, GrowingJoin] = {}
    for view in views:
        for number, join in ((int(key), GrowingJoin(**value)) for key, value in view.items()):
            joins[number] = max(joins.get(number, join), join, key=lambda each: each.nbytes)
    return joins


def agree_on_end(
    frame: pl.DataFrame,
    allgather: AllGather,
    failures: Mapping[int, BaseException] | None = None,
    facts: bytes = b"",
) -> tuple[pl.DataFrame, list[bytes]]:
    """Wait until every rank has its part of the answer, and return this rank's with the types of the answer.

    The types are those of the first rank that has rows: Polars' plan and its result differ now and then, and a part
    without rows shows what was planned.

    Parameters
    ----------
    failures
        By place in the plan, what failed on this rank for want of rows. What failed so on every rank is raised: the
        table has no rows, and Polars would raise it, too.
    facts
        What this rank tells the others besides.

    Returns
    -------
    This rank's part of the answer, and what each rank tells besides.

    Raises
    ------
    RankFailedError
        If the query failed on another rank: then it has failed on all.
    """
    failures = failures or {}
    text = _schema_text(frame)
    views = [_unpacked(value) for value in allgather(_packed(frame, text, list(failures), facts))]
    told = [view.facts for view in views]
    if everywhere := set.intersection(*(set(view.failed) for view in views)):
        raise failures[min(everywhere)]
    first = next((view for view in views if view.height), views[0])
    empty = first.empty
    if first.types == text or not empty:
        return frame, told
    no_rows = pl.DataFrame.deserialize(BytesIO(empty))
    if no_rows.columns != frame.columns:
        return frame, told
    return conform(frame, dict(no_rows.schema)) if frame.height else no_rows, told


def _schema_text(frame: pl.DataFrame) -> bytes:
    return repr(list(frame.schema.items())).encode()


class _End(NamedTuple):
    """What a rank says at the end of a query: rows and types of its part, the part without rows, what failed, facts."""

    height: int
    types: bytes
    empty: bytes
    failed: tuple[int, ...]
    facts: bytes


def _packed(frame: pl.DataFrame, text: bytes, failed: Sequence[int], facts: bytes) -> bytes:
    empty = b""
    # what has no serialised form (an array of no elements, a type without a name) stays as it is
    unserialised = (pl.exceptions.PolarsError, pl.exceptions.PanicException, ValueError)
    with contextlib.suppress(*unserialised):
        empty = frame.clear().serialize()
    places = struct.pack(f"<{len(failed)}Q", *failed)
    lengths = struct.pack("<4Q", frame.height, len(failed), len(text), len(facts))
    return lengths + places + text + facts + empty


def _unpacked(value: bytes) -> _End:
    height, count, *lengths = struct.unpack_from("<4Q", value)
    failed = struct.unpack_from(f"<{count}Q", value, 32)
    text = 32 + 8 * count
    facts = text + lengths[0]
    empty = facts + lengths[1]
    return _End(height, value[text:facts], value[empty:], failed, value[facts:empty])


def _mismatch(kind: str, text: str, digests: Sequence[str], allgather: AllGather) -> QueryMismatchError:
    other = next(rank for rank, theirs in enumerate(digests) if theirs != digests[0])
    try:
        texts = [value.decode() for value in allgather(text.encode())]
        difference = first_difference(texts[0], texts[other])
    except Exception as error:  # a rank that has seen enough may be gone already; that they differ is known
        difference = f"(what the ranks have could not be compared: {error})"
    if kind == "files":
        return QueryMismatchError(
            "The ranks read different files under the same names. First difference between rank 0 and rank"
            f" {other}:\n{difference}\nEvery rank must see the same files: on several hosts, on a shared file system."
        )
    return QueryMismatchError(
        f"The ranks run different queries. First difference between rank 0 and rank {other}:\n{difference}\n"
        "Every rank must call collect() for the same queries in the same order: avoid conditions on the rank."
    )


def _file_digests(plan: Plan) -> list[tuple[str, str]]:
    """Return what tells the local files of a plan from others: their sizes, beginnings and ends."""
    paths = dict.fromkeys(
        path for node in plan.nodes if isinstance(node, Scan) for path in node.paths if not is_remote(path)
    )
    return [(shown_path(path), _file_digest(path)) for path in paths]


def _remote_digests(plan: Plan, footers: Footers) -> list[tuple[str, str]]:
    """Return the row groups that each rank has read of remote files: the files are cut by them."""
    files = dict.fromkeys(
        (path, node.cloud)
        for node in plan.nodes
        if isinstance(node, Scan) and node.kind == "parquet"
        for path in node.paths
        if is_remote(path)
    )
    digests = []
    for path, cloud in files:
        with contextlib.suppress(FooterError):
            digests.append((shown_path(path), _hash(repr(list(footers(path, cloud))).encode())))
    return digests


def _file_digest(path: str) -> str:
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            head = file.read(_HEAD_BYTES)
            file.seek(max(_HEAD_BYTES, size - _TAIL_BYTES))
            return f"{size} bytes, digest {_hash(head + file.read(_TAIL_BYTES))}"
    except OSError as error:
        return error.strerror or type(error).__name__


def _sample_digest(frame: pl.DataFrame) -> str:
    """Hash a few rows from all over a frame."""
    if not frame.height:
        return ""
    sample = frame.gather_every(max(1, frame.height // _SAMPLE_ROWS))
    try:
        rows: Any = sample.rows()
    except pl.exceptions.PanicException:
        rows = frame.schema
    return _hash(repr(rows).encode())


def _hash(value: bytes) -> str:
    return hashlib.blake2b(value, digest_size=12).hexdigest()
