"""Writes packed tables, as the library packs them, for packed_table_fuzzer.

python scripts/packed_table_seeds.py build/fuzz/seeds/packed_table
"""

from __future__ import annotations

import datetime as dt
import decimal
import re
import struct
import sys
from pathlib import Path

import polars as pl
import pyarrow as pa
from rapidsmpf.communicator import single
from rapidsmpf.config import Options
from rapidsmpf.memory.buffer_resource import BufferResource
from rapidsmpf.memory.packed_data import PackedData
from rapidsmpf.shuffler import Shuffler
from rapidsmpf.streaming.core.context import Context
from rapidsmpf.streaming.exchange import RowRouting, drain_into_shuffle
from rapidsmpf.table import Table, pack, split_and_pack

# Bits of the fuzzer's first byte. REPAIR: it corrects the checksum in the header. FULL: it validates the contents of
# all buffers. SAME_ROWS: it sets the number of rows in the header to that of the first column. NARROW: the table is
# narrow.
_REPAIR, _FULL, _SAME_ROWS, _NARROW = 1, 2, 4, 8


def frames() -> list[pl.DataFrame | pa.Table]:
    """Return small tables that together have every layout."""
    long = "a text that is longer than a view holds by itself"
    plain = {"a": [1, 2, 3], "b": [0.5, -0.0, float("nan")]}
    some = {
        "bool": [True, None, False],
        "text": ["", None, long],
        "binary": [b"\x00\xff", b"", None],
        "list": [[1, 2], None, []],
        "array": pl.Series([[1, 2], [3, 4], None], dtype=pl.Array(pl.Int16, 2)),
        "struct": [{"x": 1, "y": "é"}, {"x": None, "y": long}, None],
        "category": pl.Series(["x", None, "y"], dtype=pl.Categorical),
        "enum": pl.Series(["x", "y", None], dtype=pl.Enum(["x", "y"])),
        "null": [None, None, None],
        "decimal": [decimal.Decimal("1.25"), None, decimal.Decimal("-3")],
        "date": [dt.date(2026, 1, 1), None, dt.date(1970, 1, 1)],
        "time": [dt.time(1, 2, 3), None, dt.time(0)],
        "datetime": [dt.datetime(2026, 1, 1), None, dt.datetime(1970, 1, 1)],
        "duration": [dt.timedelta(seconds=1), None, dt.timedelta(0)],
        "int128": pl.Series([1, None, -1], dtype=pl.Int128),
    }
    nested = {
        "deep": [[[{"k": ["v"]}]], None, [[]]],
        "list_of_enums": pl.Series([["x"], [], ["y", None]], dtype=pl.List(pl.Enum(["x", "y"]))),
    }
    arrow = {
        "utf8": pa.array(["a", None, "ccc"]),
        "large_utf8": pa.array(["a", None, "ccc"], pa.large_string()),
        "list": pa.array([[1], [], None], pa.list_(pa.int8())),
        "list_of_texts": pa.array([["a"], [], None], pa.list_(pa.large_string())),
        "map": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int32())),
        "half": pa.array([1.0, None, 2.0], pa.float16()),
        "fixed": pa.array([b"abcd", None, b"efgh"], pa.binary(4)),
        "dictionary": pa.array(["x", None, "x"]).dictionary_encode(),
        "decimal256": pa.array([decimal.Decimal(7), None, None], pa.decimal256(40, 2)),
        "zoned": pa.array([0, None, 1], pa.timestamp("us", tz="Europe/Berlin")),
    }
    made = pl.DataFrame(some)
    return [
        pl.DataFrame(plain),
        *(made.select(name) for name in made.columns),
        made,
        made.clear(),
        pl.DataFrame(nested),
        pl.DataFrame({"x": pl.arange(0, 300, eager=True), "t": [str(i) for i in range(300)]}),
        pa.table(arrow),
        *(pa.table({name: column}) for name, column in arrow.items()),
        pa.table({"x": pa.array([1, 2])}).replace_schema_metadata({"k": "v"}),
    ]


def narrow_tables() -> list[PackedData]:
    """Return small narrow tables."""
    comm = single.new_communicator(Options())
    long = "a text that is longer than a view holds by itself"
    frame = pl.DataFrame(
        {
            "key": pl.Series([1, -2, 3, 4] * 4),
            "wide": [1 << 40, 1, 2, 3] * 4,
            "unsigned": pl.Series([70_000, None, 1, 2] * 4, dtype=pl.UInt64),
            "price": pl.Series([decimal.Decimal("1.25"), None, decimal.Decimal("-3"), None] * 4),
            "day": [dt.date(2026, 1, 1), None, dt.date(1970, 1, 1), None] * 4,
            "time": [dt.time(0, 0, 0, 1), None, dt.time(0), None] * 4,
            "moment": [dt.datetime(1970, 1, 1), None, dt.datetime(1970, 1, 1, 1), None] * 4,
            "small": pl.Series([300, None, 1, 2] * 4, dtype=pl.UInt16),
            "huge": pl.Series([1 << 40, None, -1, 2] * 4, dtype=pl.Int128),
            "category": pl.Series(["x", None, "y", "x"] * 4, dtype=pl.Categorical),
            "flag": [True, None, False, True] * 4,
            "text": ["", None, long, "a"] * 4,
            "binary": [b"\x00\xff", b"", None, b"abc"] * 4,
            "ratio": [0.5, None, 1.0, 2.0] * 4,
        }
    )
    chunks: list[PackedData] = []
    with Context.from_options(comm, Options()) as context:
        for number, some in enumerate([frame, *(frame.select("key", name) for name in frame.columns[1:])]):
            shuffler = Shuffler(comm, number, 2, context.br())
            drain_into_shuffle(some, RowRouting.by_hash(["key"], narrow=True), shuffler, context)
            chunks.extend(chunk for partition in range(2) for chunk in shuffler.extract(partition))
    return chunks


def with_malformed_marks(metadata: bytes) -> list[bytes]:
    """Return copies of a narrow table's metadata in which the mark of a column of dates is malformed."""
    texts = (b"x;tdD", b"1.tdD", b"1;td?", b"1;w:4")
    return [changed for text in texts if (changed := re.sub(rb"\d;tdD", text, metadata)) != metadata]


def main() -> int:
    """Write one file for each table, and for pieces of the larger ones."""
    folder = Path(sys.argv[1])
    br = BufferResource()
    plain: list[PackedData] = []
    for frame in frames():
        table = Table(frame, br)
        rows = frame.height if isinstance(frame, pl.DataFrame) else frame.num_rows
        plain.append(pack(table, br))
        if rows > 1:
            plain.extend(split_and_pack(table, [1], br).values())
    narrow = narrow_tables()
    seeds = [(0, part.metadata, part.to_host_bytes()) for part in plain]
    for part in narrow:
        metadatas = [part.metadata, *with_malformed_marks(part.metadata)]
        seeds += [(_NARROW, metadata, part.to_host_bytes()) for metadata in metadatas]
    number = 0
    for form, metadata, data in seeds:
        for choices in (_FULL, _REPAIR | _FULL, _REPAIR | _SAME_ROWS):
            seed = bytes([choices | form]) + struct.pack("<I", len(metadata)) + metadata + data
            (folder / f"seed-{number}").write_bytes(seed)
            number += 1
    print(f"{number} packed tables")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
