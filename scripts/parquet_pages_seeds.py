"""Writes column chunks with Snappy pages, as pyarrow writes them, for parquet_pages_fuzzer.

    python scripts/parquet_pages_seeds.py build/fuzz/seeds/parquet_pages

A seed is the number of values and the bytes of the pages without compression, four bytes each, and then the chunk.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq


def tables() -> list[pa.Table]:
    """Columns of the kinds that compressors treat differently: integers, texts, nulls, lists."""
    numbers = random.Random(0)
    rows = 6000
    words = [f"word {numbers.randrange(200)} of a text" for _ in range(rows)]
    return [
        pa.table({"a": [numbers.randrange(10**7) for _ in range(rows)], "b": list(range(rows))}),
        pa.table({"text": words, "few": [word[:6] for word in words]}),
        pa.table({"nulls": [i if i % 7 else None for i in range(rows)], "one": [1.5] * rows}),
        pa.table({"lists": [[i, i + 1] if i % 3 else [] for i in range(1000)]}),
        pa.table({"none": pa.array([None] * 50, pa.int64())}),
    ]


def write_seeds(folder: Path) -> None:
    """Write each column of each table, by several settings of the writer."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "seed.parquet"
    for number, table in enumerate(tables()):
        for version in ("1.0", "2.0"):
            for dictionary in (True, False):
                pq.write_table(
                    table,
                    file,
                    compression="snappy",
                    data_page_version=version,
                    use_dictionary=dictionary,
                    data_page_size=4096,
                )
                data = file.read_bytes()
                group = pq.ParquetFile(file).metadata.row_group(0)
                for column in range(group.num_columns):
                    chunk = group.column(column)
                    begin = chunk.data_page_offset
                    if chunk.dictionary_page_offset is not None:
                        begin = min(begin, chunk.dictionary_page_offset)
                    seed = b"".join(
                        value.to_bytes(4, "little")
                        for value in (chunk.num_values, chunk.total_uncompressed_size)
                    )
                    seed += data[begin : begin + chunk.total_compressed_size]
                    (folder / f"{number}-{column}-{version}-{dictionary}").write_bytes(seed)
    file.unlink()


if __name__ == "__main__":
    write_seeds(Path(sys.argv[1]))
