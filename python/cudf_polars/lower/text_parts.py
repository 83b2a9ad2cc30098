"""Reading a range of bytes of a text file, in pieces that end with a record."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import polars as pl
from polars.io.plugins import register_io_source

from cudf_polars.lower.byte_files import open_bytes
from cudf_polars.lower.text_cuts import TextRules, last_end, options_of_pieces
from cudf_polars.plan.nodes import Scan
from cudf_polars.plan.rebuild import file_schema

__all__ = ["PIECE_BYTES", "scan_text_part"]

PIECE_BYTES = 64 << 20
"""So much of a file is in memory at a time, or one record if that is longer."""


def scan_text_part(scan: Scan, start: int, stop: int, *, piece_bytes: int = PIECE_BYTES) -> pl.LazyFrame:
    """Return the rows of a scan's only file that lie between two ends of records.

    Parameters
    ----------
    scan
        Of one CSV or NDJSON file, without slice and row index.
    start, stop
        Positions of bytes. A part that starts at 0 has the header.

    Returns
    -------
    All columns of the file, and the column of its path if the scan has that; predicate and projection are left out.
    """
    schema = dict(file_schema(scan))
    source = _Part(scan, schema, start, stop, piece_bytes)
    shown = dict(schema)
    if scan.include_file_paths is not None:
        shown[scan.include_file_paths] = pl.String()
    return register_io_source(source, schema=shown)


@dataclass(frozen=True)
class _Part:
    scan: Scan
    schema: dict[str, Any]
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
            if with_columns is not None:
                frame = frame.select(with_columns)
            yield frame.collect(engine="streaming")
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
