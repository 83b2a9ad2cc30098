"""Sources: which part of the files, and of the frames in memory, each rank reads."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import polars as pl

from cudf_polars.lower.context import Context, node_title
from cudf_polars.lower.estimates import FILTERED, row_width
from cudf_polars.lower.footers import FooterError, RowGroup, row_groups
from cudf_polars.lower.key_ranges import KeyRange
from cudf_polars.lower.partitioning import ARBITRARY, REPLICATED, ranged
from cudf_polars.lower.physical import Estimate, GlobalRowIndex, Local, Stream
from cudf_polars.lower.pyarrow_datasets import divide_dataset, is_dataset_scan
from cudf_polars.lower.shares import RowShare, share_of_rows, split_as_one, split_files, split_rows
from cudf_polars.lower.table_sizes import COMPRESSION, SMALL_FILES, file_sizes
from cudf_polars.lower.text_parts import scan_text_part
from cudf_polars.plan.columns import keep_columns
from cudf_polars.plan.nodes import DataFrameScan, Node, PythonScan, Scan
from cudf_polars.plan.rebuild import (
    file_schema,
    rebuild_node,
    rebuild_scan,
    starts_with_columns,
    with_file_schema,
)
from cudf_polars.plan.rebuild_expressions import to_expr

__all__ = [
    "BY_RANGES",
    "is_short",
    "lower_frame_scan",
    "lower_python_scan",
    "lower_scan",
    "on_files",
    "pipeline_parts",
    "read_everywhere",
    "sample_pipeline",
    "scan_in_sequence",
]

Groups: TypeAlias = Sequence[Sequence[RowGroup]]

BY_RANGES = " by ranges of "
"""Stands in the title of a scan that is split by values, before the column."""
_UNKNOWN_BYTES = 64e6


def lower_scan(ctx: Context, node: Node) -> Stream:
    """Give each rank a contiguous part of a scan's files."""
    assert isinstance(node, Scan)
    if node.kind in ("parquet", "ipc"):
        try:
            groups = _groups(ctx, node)
        except FooterError as error:
            return _scan_by_file(ctx, node, f"its rows cannot be counted: {error}")
        except _OtherColumns as error:
            rows = sum(file_sizes(node)) * COMPRESSION / row_width(node.schema)
            return _scan_by_one_rank(ctx, node, str(error), rows)
        by_key = ctx.key_range(node)
        if by_key is not None:
            return _range_of_keys(ctx, node, by_key, groups)
        return _pipeline(ctx, node, split_rows(groups, ctx.builder.settings.nranks, node.slice), groups)
    if is_short(node):
        return _parts(ctx, node, _on_first_rank(ctx, node), float(sum(node.slice or ())))
    if node.kind not in ("csv", "ndjson") or len(node.paths) > 1 or ctx.builder.settings.nranks == 1:
        return _scan_by_file(ctx, node, "it is one file")
    cuts = ctx.text_cuts(node)
    return _scan_by_file(ctx, node, cuts.reason) if cuts.reason else _text_ranges(ctx, node, cuts.bounds)


class _OtherColumns(ValueError):
    """A file of a scan has other columns than the first."""


def _groups(ctx: Context, node: Scan) -> Groups:
    """Return the row groups of a scan's files; those of an IPC file stand for all of its record batches.

    Raises
    ------
    FooterError
        If the metadata of a file cannot be read.
    _OtherColumns
        If columns of IPC files differ.
    """
    if node.kind == "parquet":
        return [ctx.footers(path, node.cloud) for path in node.paths]
    width = row_width(node.schema)
    tables = [_ipc_metadata(node, path) for path in node.paths]
    # An IPC scan takes no schema: a rank would take that of the first of its own files.
    if any(columns != tables[0][1] for _, columns in tables):
        raise _OtherColumns("its files have other columns")
    return [[RowGroup(rows, int(rows * width))] if rows else [] for rows, _ in tables]


def _ipc_metadata(node: Scan, path: str) -> tuple[int, pl.Schema]:
    """Return the rows and the columns of an IPC file."""
    bare = replace(node, paths=(path,), slice=None, predicate=None, row_index=None, include_file_paths=None)
    file = rebuild_scan(bare, project=False)
    try:
        return int(file.select(pl.len()).collect(engine="in-memory").item()), file.collect_schema()
    except (pl.exceptions.PolarsError, OSError) as error:
        raise FooterError(str(error).splitlines()[0]) from None


def _on_first_rank(ctx: Context, node: Scan) -> list[Scan | None]:
    return [node, *[None] * (ctx.builder.settings.nranks - 1)]


def is_short(node: Scan) -> bool:
    """Whether the scan needs so few rows that one rank has read them before several had found their parts."""
    if node.slice is None:
        return False
    offset, length = node.slice
    if offset < 0 and len(node.paths) == 1:
        return False  # all of the file is read to find its end
    # Of several files, Polars reads the last ones only.
    rows = offset + length if offset >= 0 else -offset
    return rows * row_width(node.schema) < SMALL_FILES


def _text_ranges(ctx: Context, node: Scan, bounds: Sequence[int]) -> Stream:
    """Give each rank a range of the bytes of a text file."""
    bare = replace(node, slice=None, row_index=None, predicate=None)

    def read(rank: int, columns: Iterable[str]) -> pl.LazyFrame | None:
        start, stop = bounds[rank], bounds[rank + 1]
        return None if stop <= start else scan_text_part(bare, start, stop, columns=columns)

    return _text_rows(ctx, node, read, (bounds[-1] or 1) * COMPRESSION / row_width(node.schema))


def _text_rows(
    ctx: Context, node: Scan, read_part: Callable[[int, Iterable[str]], pl.LazyFrame | None], rows: float
) -> Stream:
    """Return the rows of a scan whose parts the ranks read in order, and count together if that is needed.

    Parameters
    ----------
    read_part
        Returns these columns of the part of a rank, or more, without slice, row index and predicate; None if it has no
        part.
    rows
        About how many there are.
    """
    builder = ctx.builder
    columns = dict(file_schema(node))
    if node.include_file_paths is not None:
        columns[node.include_file_paths] = pl.String()
    counts = node.slice is not None or node.row_index is not None
    predicate = None if node.predicate is None else to_expr(node.predicate)
    wanted = {*node.schema, *(() if predicate is None else predicate.meta.root_names())}
    parsed = {name: dtype for name, dtype in columns.items() if name in wanted} or _one_to_count_by(columns)
    used = parsed if counts else node.schema

    def finish(frame: pl.LazyFrame) -> pl.LazyFrame:
        if predicate is not None:
            frame = frame.filter(predicate)
        return keep_columns(frame, node.schema)

    def build(_: Sequence[pl.LazyFrame], rank: int) -> pl.LazyFrame:
        part = read_part(rank, parsed)
        if part is None:
            return pl.LazyFrame(schema=dict(used))
        return keep_columns(part, used) if counts else finish(part)

    read: Stream = builder.local(
        node_title(node),
        [],
        build,
        schema=used,
        partitioning=ARBITRARY,
        ordered=counts or ctx.ordered(node),
        estimate=_estimate(node, rows),
    )
    if not counts:
        return read
    if node.row_index is not None:
        name, first = node.row_index
        offset, length = node.slice or (0, None)
        if offset >= 0 and length is not None:
            # The numbers of the rows that are wanted stay: a rank whose rows are cut is the last that has any of them.
            read = builder.head_of_ranks(read, offset + length)
        read = GlobalRowIndex(
            inputs=(read,),
            schema={name: pl.Schema({name: pl.get_index_type()})[name], **read.schema},
            partitioning=ARBITRARY,
            ordered=True,
            estimate=read.estimate,
            name=name,
            offset=first,
        )
    read = builder.slice(read, node.slice)
    return builder.local(
        "ROWS", [read], lambda frames, _: finish(frames[0]), schema=node.schema, estimate=read.estimate
    )


def _one_to_count_by(columns: Mapping[str, pl.DataType]) -> dict[str, pl.DataType]:
    """Return a column that is parsed where none is used: rows need one to be counted by."""
    numbers = (name for name, dtype in columns.items() if dtype.is_numeric())
    found = next((name for name, dtype in columns.items() if dtype != pl.Null), None)
    name = next(numbers, found)
    return dict([*columns.items()][:1]) if name is None else {name: columns[name]}


def _row_part(node: Scan, share: RowShare, heights: Sequence[int]) -> Scan | None:
    """Return the scan of one rank's rows, or ``None`` if it has none."""
    if not share.rows:
        return None
    whole = share.offset == 0 and share.rows == sum(heights[share.files.start : share.files.stop])
    part = on_files(node, share.files)
    return replace(
        part,
        slice=None if whole else (share.offset, share.rows),
        row_index=None
        if node.row_index is None
        else (node.row_index[0], node.row_index[1] + share.first_row),
    )


def on_files(node: Scan, files: range) -> Scan:
    """Return ``node`` over a contiguous part of its files."""
    if len(files) == len(node.paths):
        return node
    part = slice(files.start, files.stop)
    return replace(
        node,
        paths=node.paths[part],
        hive_parts=None if node.hive_parts is None else node.hive_parts[part],
        file_sizes=None if node.file_sizes is None else node.file_sizes[part],
    )


def _scan_by_file(ctx: Context, node: Scan, why: str) -> Stream:
    """Give each rank whole files, or one rank all of them, which is noted with its reason."""
    sizes = file_sizes(node)
    rows = sum(sizes) * COMPRESSION / row_width(node.schema)

    if len(node.paths) < 2:
        return _scan_by_one_rank(ctx, node, why, rows)
    whole = with_file_schema(node)
    shares = split_files(sizes, ctx.builder.settings.nranks)
    parts = [on_files(whole, s.files) if s.files else None for s in shares]
    if not all(starts_with_columns(part) for part in parts if part is not None):
        return _scan_by_one_rank(ctx, node, "its files have other columns", rows)
    if node.slice is None and node.row_index is None:
        return _parts(ctx, node, parts, rows)
    bare = [
        None if part is None else replace(part, slice=None, row_index=None, predicate=None) for part in parts
    ]

    def read(rank: int, _: Iterable[str]) -> pl.LazyFrame | None:
        part = bare[rank]
        return None if part is None else rebuild_scan(part, project=False)

    return _text_rows(ctx, node, read, rows)


def _scan_by_one_rank(ctx: Context, node: Scan, why: str, rows: float) -> Stream:
    # The next exchange distributes what it reads.
    if ctx.builder.settings.nranks > 1:
        ctx.builder.fall_back(f"{node_title(node)} ({why})")
    return _parts(ctx, node, _on_first_rank(ctx, node), rows)


def _parts(ctx: Context, node: Scan, parts: Sequence[Scan | None], rows: float, *, how: str = "") -> Local:
    def build(_: Sequence[pl.LazyFrame], rank: int) -> pl.LazyFrame:
        part = parts[rank]
        return pl.LazyFrame(schema=dict(node.schema)) if part is None else rebuild_node(part, [])

    return ctx.builder.local(
        node_title(node) + how,
        [],
        build,
        schema=node.schema,
        partitioning=ARBITRARY,
        ordered=ctx.ordered(node),
        estimate=_estimate(node, rows),
    )


def _estimate(node: Scan, rows: float) -> Estimate:
    kept = rows if node.predicate is None else rows * FILTERED
    return Estimate(kept, kept * row_width(node.schema))


def read_everywhere(ctx: Context, node: Node) -> Stream | None:
    """Return ``node`` with all its rows on every rank, each reading the files itself; ``None`` if that is not cheap."""
    scan = ctx.properties.pipeline_scan(node)
    if scan is None or _bytes_to_read(ctx, scan) > ctx.builder.settings.read_everywhere_limit:
        return None
    return _everywhere(ctx, node)


def sample_pipeline(ctx: Context, node: Node, rows: int) -> Stream | None:
    """Return the first ``rows`` rows of each rank's part of the files under ``node``, taken through its steps.

    ``None`` unless ``node`` is a row pipeline over one scan of Parquet files.
    """
    parts = pipeline_parts(ctx, node, rows, (0.0,))
    return None if parts is None else parts[0]


def pipeline_parts(ctx: Context, node: Node, rows: int, places: Sequence[float]) -> list[Stream] | None:
    """Return up to ``rows`` rows from each of some places of each rank's part of the files under ``node``.

    Parameters
    ----------
    places
        Each as a part of the rank's rows that come before it; parts do not overlap.

    Returns
    -------
    list of Stream
        The rows of each place, taken through the steps up to ``node``. ``None`` unless it is a row pipeline over one
        scan of Parquet files.
    """
    found = _pipeline_groups(ctx, node)
    if found is None:
        return None
    scan, groups = found
    starts = list(itertools.accumulate((sum(group.rows for group in file) for file in groups), initial=0))
    shares = split_rows(groups, ctx.builder.settings.nranks, scan.slice)
    parts = []
    for place, following in zip(places, (*places[1:], 1.0), strict=True):
        pieces = []
        for share in shares:
            first = share.first_row + share.offset
            low, high = first + int(place * share.rows), first + int(following * share.rows)
            pieces.append(share_of_rows(starts, low, min(low + rows, high)))
        parts.append(_pipeline(ctx, node, pieces, groups))
    return parts


def scan_in_sequence(ctx: Context, pipelines: Sequence[Node]) -> list[Stream] | None:
    """Return row pipelines split as one long table, so that in rank order the rows of the first come first.

    ``None`` unless each is a row pipeline over one scan of Parquet files.
    """
    found = [_pipeline_groups(ctx, node) for node in pipelines]
    tables = [item[1] for item in found if item is not None and item[0].slice is None]
    if len(tables) != len(pipelines):
        return None
    shares = split_as_one(tables, ctx.builder.settings.nranks)
    return [
        _pipeline(ctx, node, parts, groups)
        for node, parts, groups in zip(pipelines, shares, tables, strict=True)
    ]


def _pipeline_groups(ctx: Context, node: Node) -> tuple[Scan, Groups] | None:
    """Return the Parquet scan that a row pipeline starts from, with the row groups of its files."""
    scan = ctx.properties.pipeline_scan(node)
    if scan is None or scan.kind != "parquet":
        return None
    try:
        return scan, [ctx.footers(path, scan.cloud) for path in scan.paths]
    except FooterError:
        return None


def _pipeline(ctx: Context, node: Node, shares: Sequence[RowShare], groups: Groups) -> Stream:
    """Return a row pipeline whose scan reads ``shares``."""
    if not isinstance(node, Scan):
        (child,) = node.children
        return ctx.apply(node, [_pipeline(ctx, child, shares, groups)])
    return _row_shares(ctx, node, shares, groups)


def _row_shares(
    ctx: Context, node: Scan, shares: Sequence[RowShare], groups: Groups, *, how: str = ""
) -> Local:
    node = with_file_schema(node)
    heights = [sum(group.rows for group in file) for file in groups]
    parts = [_row_part(node, share, heights) for share in shares]
    return _parts(ctx, node, parts, sum(share.rows for share in shares), how=how)


def _range_of_keys(ctx: Context, node: Scan, by_key: KeyRange, groups: Groups) -> Stream:
    """Return a scan of which each rank, and each partition of it, reads a range of the values of a column."""
    rows = _of_ranges(ctx, node, by_key.of_ranks(), groups)
    if by_key.partitions > 1:
        parts = _of_ranges(ctx, node, by_key, groups)
        rows.build_partition, rows.partitions = parts.build, by_key.partitions
    rows.partitioning = ranged([by_key.column], by_key.boundaries)
    return rows


def _of_ranges(ctx: Context, node: Scan, by_key: KeyRange, groups: Groups) -> Local:
    rows = _row_shares(ctx, node, by_key.shares, groups, how=f"{BY_RANGES}{by_key.column}")
    if not any(by_key.filtered):
        return rows
    predicates = [by_key.predicate(part, node.schema[by_key.column]) for part in range(len(by_key.shares))]

    def build(_: Sequence[pl.LazyFrame], part: int) -> pl.LazyFrame:
        predicate, frame = predicates[part], rows.build((), part)
        return frame if predicate is None else frame.filter(predicate)

    return replace(rows, build=build)


def _everywhere(ctx: Context, node: Node) -> Stream:
    if isinstance(node, Scan):
        return ctx.builder.local(
            f"{node_title(node)} on every rank",
            [],
            lambda frames, _: rebuild_node(node, []),
            schema=node.schema,
            partitioning=REPLICATED,
            ordered=True,
            estimate=_estimate(node, _bytes_to_read(ctx, node) / row_width(node.schema)),
        )
    return ctx.apply(node, [_everywhere(ctx, child) for child in node.children])


def _bytes_to_read(ctx: Context, node: Scan) -> float:
    if node.kind == "parquet":
        try:
            return sum(group.nbytes for group in row_groups(ctx.footers, node.paths, node.cloud))
        except FooterError:
            return _UNKNOWN_BYTES
    return sum(file_sizes(node)) * COMPRESSION


def lower_frame_scan(ctx: Context, node: Node) -> Stream:
    """Take each rank's own frame as its part."""
    assert isinstance(node, DataFrameScan)
    return ctx.builder.local(
        "FRAME",
        [],
        lambda frames, _: rebuild_node(node, []),
        schema=node.schema,
        partitioning=ARBITRARY,
        ordered=ctx.ordered(node),
        estimate=ctx.properties.frame_size(node),
    )


def lower_python_scan(ctx: Context, node: Node) -> Stream:
    """Let each rank read its part of a pyarrow dataset; what cannot be split is read by rank 0."""
    assert isinstance(node, PythonScan)
    nranks = ctx.builder.settings.nranks
    parts: list[PythonScan | None] | str = "an IO plugin has no parts"
    if is_dataset_scan(node):
        parts = divide_dataset(node, nranks) if nranks > 1 and node.n_rows is None else ""
    if isinstance(parts, str):
        reason, parts = parts, [node, *[None] * (nranks - 1)]
        if nranks > 1 and node.n_rows is None:
            ctx.builder.fall_back(f"PYTHON SCAN ({reason})")

    def build(_: Sequence[pl.LazyFrame], rank: int) -> pl.LazyFrame:
        part = parts[rank]
        return pl.LazyFrame(schema=dict(node.schema)) if part is None else rebuild_node(part, [])

    return ctx.builder.local(
        "PYTHON SCAN" if parts[1:] and any(parts[1:]) else "PYTHON SCAN on rank 0",
        [],
        build,
        schema=node.schema,
        partitioning=ARBITRARY,
        ordered=ctx.ordered(node),
        estimate=Estimate(_UNKNOWN_BYTES / row_width(node.schema), _UNKNOWN_BYTES),
    )
