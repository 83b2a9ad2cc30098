"""Writes footers of Parquet files, as two other libraries write them, for parquet_footer_fuzzer.

python scripts/parquet_footer_seeds.py build/fuzz/seeds/parquet_footer
"""

from __future__ import annotations

import io
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq


def files() -> Iterator[bytes]:
    """Yield small files of several row groups, codecs and types."""
    frame = pl.DataFrame(
        {
            "integer": [1, None, 3],
            "text": ["a", "", None],
            "list": [[1, 2], [], None],
            "struct": [{"x": 1, "y": "b"}, None, {"x": None, "y": "c"}],
        }
    )
    for table in (frame, frame.select("integer"), frame.clear()):
        for statistics in (True, False):
            file = io.BytesIO()
            table.write_parquet(file, statistics=statistics, row_group_size=2)
            yield file.getvalue()
        for codec in ("snappy", "none"):
            file = io.BytesIO()
            pq.write_table(table.to_arrow(), file, row_group_size=1, compression=codec, write_page_index=True)
            yield file.getvalue()
    file = io.BytesIO()
    plain = pa.table({"a": pa.array([1.5]), "b": pa.array([b"x"])}).replace_schema_metadata({"key": "value"})
    pq.write_table(plain, file, store_schema=False, sorting_columns=[pq.SortingColumn(0)])
    yield file.getvalue()


def main() -> int:
    """Write the footer of each file."""
    folder = Path(sys.argv[1])
    count = 0
    for count, file in enumerate(files(), 1):
        (size,) = struct.unpack("<I", file[-8:-4])
        (folder / f"seed-{count}").write_bytes(file[-8 - size : -8])
    print(f"{count} footers")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
