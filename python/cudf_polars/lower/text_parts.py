"""Reading a range of bytes of a text file, in pieces that end with a record."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import polars as pl
import polars.selectors as cs
from polars.io.plugins import register_io_source

from cudf_polars.lower.byte_files import open_bytes
from cudf_polars.lower.text_cuts import TextRules, last_end, options_of_pieces
from cudf_polars.plan.nodes import Scan
from cudf_polars.plan.rebuild import file_schema

__all__ = ["PIECE_BYTES", "scan_text_part"]

PIECE_BYTES = 64 << 20
"""So much of a file is in memory at a time, or one record if that is longer."""


def scan_text_part(
    scan: Scan, start: int, stop: int, *, columns: Iterable[str] | None = None, piece_bytes: int = PIECE_BYTES
) -> pl.LazyFrame:
    """Return the rows of a scan's only file that lie between two ends of records.

    Parameters
    ----------
    scan
        Of one CSV or NDJSON file, without slice and row index.
    start, stop
        Positions of bytes. A part that starts at 0 has the header.
    columns
        Those that are used: no others are parsed.

    Returns
    -------
    These columns of the file, or all, and the column of its path if the scan has that; predicate and projection are
    left out.
    """
    schema = dict(file_schema(scan))
    shown = dict(schema)
    if scan.include_file_paths is not None:
        shown[scan.include_file_paths] = pl.String()
    if columns is not None:
        shown = {name: shown[name] for name in columns}
    return register_io_source(_Part(scan, schema, tuple(shown), start, stop, piece_bytes), schema=shown)


@dataclass(frozen=True)
class _Part:
    scan: Scan
    schema: dict[str, Any]
    columns: tuple[str, ...]
    start: int
    stop: int
    piece_bytes: int

    def __call__(
        self,
        with_columns: list[str] | None,
        predicate: pl.Expr | None,
        n_rows: int | None,
        batch_size: int | None,
    ) -> Iterator[pl.DataFrame]:
        scan = self.scan
        # Polars says nothing if it wants all columns, or none but those of the predicate.
        wanted = self.columns if with_columns is None else with_columns
        read: Callable[..., pl.LazyFrame] = pl.scan_csv if scan.kind == "csv" else pl.scan_ndjson
        bare = replace(scan, include_file_paths=None)
        first, rest = options_of_pieces(dict(bare.options), self.schema, scan.kind)
        at_head = self.start == 0
        for piece in self._pieces():
            frame = read(io.BytesIO(piece), **(first if at_head else rest))
            at_head = False
            if scan.include_file_paths is not None:
                frame = frame.with_columns(pl.lit(scan.paths[0]).alias(scan.include_file_paths))
            if n_rows is not None:
                # What the predicate leaves is of the first rows.
                first_rows = frame.head(n_rows).collect(engine="streaming")
                n_rows -= first_rows.height
                frame = first_rows.lazy()
            if predicate is not None:
                frame = frame.filter(predicate)
            yield frame.select(cs.by_name(wanted)).collect(engine="streaming")
            if n_rows == 0:
                return

    def _pieces(self) -> Iterator[bytes]:
        rules = TextRules.of(self.scan)
        with open_bytes(self.scan.paths[0], self.scan.cloud) as file:
            at, wanted = self.start, self.piece_bytes
            while at < self.stop:
                text = file.read(at, min(at + wanted, self.stop))
                if not text:
                    return
                end = len(text) if at + len(text) >= self.stop else last_end(text, rules)
                if not end:
                    wanted *= 2  # a long record
                    continue
                at, wanted = at + end, self.piece_bytes
                yield text[:end]
