"""Tables of pylibcudf for the benchmarks on GPUs, and sums that say whether all of one's rows are there."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import pyarrow as pa

CHUNK_ROWS = 1 << 20


def rows_of_32_bytes(rows: int, seed: int) -> pa.Table:
    """Make four columns of int64."""
    random = np.random.default_rng(seed)
    return pa.table({name: random.integers(-(2**62), 2**62, rows) for name in "abcd"})


def texts(random: np.random.Generator, rows: int, shortest: int, longest: int) -> pa.Array:
    """Make texts of lengths in a range."""
    offsets = np.zeros(rows + 1, np.int32)
    np.cumsum(random.integers(shortest, longest + 1, rows), out=offsets[1:])
    letters = random.integers(ord("a"), ord("z") + 1, int(offsets[-1]), dtype=np.uint8)
    return pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(letters))


def lineitem(rows: int, seed: int) -> pa.Table:
    """Make columns of the types and widths of TPC-H's lineitem."""
    random = np.random.default_rng(seed)
    columns: dict[str, Any] = {
        name: random.integers(0, 2**40, rows) for name in ("l_orderkey", "l_partkey", "l_suppkey")
    }
    columns["l_linenumber"] = random.integers(1, 8, rows, dtype=np.int32)
    for name in ("l_quantity", "l_extendedprice", "l_discount", "l_tax"):
        columns[name] = random.integers(0, 1000, rows).astype(np.float64)
    for name in ("l_shipdate", "l_commitdate", "l_receiptdate"):
        columns[name] = pa.array(random.integers(8000, 11000, rows, dtype=np.int32))
    lengths = {
        "l_returnflag": (1, 1),
        "l_linestatus": (1, 1),
        "l_shipinstruct": (4, 17),
        "l_shipmode": (3, 7),
        "l_comment": (10, 43),
    }
    for name, (shortest, longest) in lengths.items():
        columns[name] = texts(random, rows, shortest, longest)
    return pa.table(columns)


TABLES: dict[str, Callable[[int, int], pa.Table]] = {
    "rows_of_32_bytes": rows_of_32_bytes,
    "lineitem": lineitem,
}
"""By name: what makes so many rows with a seed."""


def device_table(name: str, size: int, stream: Any, seed: int = 1) -> tuple[Any, int]:
    """Repeat a chunk of a table on the device until it has about ``size`` bytes; returns the table and its bytes."""
    plc: Any = import_module("pylibcudf")
    chunk = TABLES[name](CHUNK_ROWS, seed)
    once = plc.Table.from_arrow(chunk, stream=stream)
    times = max(1, size // chunk.nbytes)
    return plc.concatenate.concatenate([once] * times, stream), times * chunk.nbytes


def checksum(table: Any, stream: Any) -> list[int]:
    """Sum up each column as integers that wrap at 2**64, and the lengths of texts."""
    plc: Any = import_module("pylibcudf")
    int64 = plc.DataType(plc.TypeId.INT64)
    sums = []
    for column in table.columns():
        numbers = column
        if column.type().id() == plc.TypeId.STRING:
            numbers = plc.strings.attributes.count_bytes(column, stream)
        # Floats here are whole numbers, whose sums are exact.
        kind = numbers.type() if numbers.type().id() == plc.TypeId.FLOAT64 else int64
        total = plc.reduce.reduce(numbers, plc.aggregation.sum(), kind, stream=stream).to_py()
        sums.append(int(total or 0) % 2**64)
    return sums
