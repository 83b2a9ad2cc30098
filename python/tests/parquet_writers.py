"""Parquet files as several programs write them: types, nulls, encodings, sizes of pages and row groups."""

from __future__ import annotations

import datetime as dt
import decimal
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["tables", "write_files"]

ROWS = 9_000


def _integers(numbers: random.Random, bits: int, *, signed: bool) -> Callable[[], int]:
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    return lambda: numbers.randint(low, high)


def _makers(numbers: random.Random) -> dict[str, tuple[pa.DataType, Callable[[], Any]]]:
    """Return a type and what makes a value of it, by the name of a column."""
    makers: dict[str, tuple[pa.DataType, Callable[[], Any]]] = {}
    for bits in (8, 16, 32, 64):
        makers[f"i{bits}"] = getattr(pa, f"int{bits}")(), _integers(numbers, bits, signed=True)
        makers[f"u{bits}"] = getattr(pa, f"uint{bits}")(), _integers(numbers, bits, signed=False)
    makers["f32"] = pa.float32(), lambda: float(numbers.randrange(1 << 20)) / 4
    makers["f64"] = pa.float64(), lambda: numbers.uniform(-1e9, 1e9)
    makers["bool"] = pa.bool_(), lambda: numbers.random() < 0.3
    makers["date"] = pa.date32(), lambda: dt.date(1992, 1, 1) + dt.timedelta(numbers.randrange(3000))
    for unit, scale in (("ms", 10**3), ("us", 10**6), ("ns", 10**9)):
        makers[unit] = pa.timestamp(unit), _integers(numbers, 30, signed=True)
        makers[f"{unit}_far"] = (
            pa.timestamp(unit),
            lambda scale=scale: numbers.randrange(1_700_000_000 * scale),
        )
    makers["time"] = pa.time64("us"), lambda: numbers.randrange(86_400 * 10**6)
    makers["small_decimal"] = (
        pa.decimal128(9, 2),
        lambda: decimal.Decimal(numbers.randrange(10**9)) / 100,
    )
    makers["decimal"] = pa.decimal128(15, 4), lambda: decimal.Decimal(numbers.randrange(10**15)) / 10_000
    makers["large_decimal"] = pa.decimal128(30, 3), lambda: decimal.Decimal(numbers.randrange(10**20)) / 1000
    makers["text"] = pa.string(), lambda: "äbc"[: numbers.randrange(4)] + str(numbers.randrange(10**6))
    makers["word"] = pa.string(), lambda: numbers.choice(["", "rail", "air", "x" * 300])
    return makers


def tables() -> Iterator[tuple[str, pa.Table]]:
    """Yield tables of all types: values that differ or repeat, and few, many or no nulls."""
    for name, few, in_runs, nulls in (
        ("different", 0, False, 0.0),
        ("repeated", 40, False, 0.02),
        ("runs", 300, True, 0.4),
        ("null", 5, False, 1.0),
    ):
        numbers = random.Random(name)
        columns = {}
        for column, (dtype, make) in _makers(numbers).items():
            pool = [make() for _ in range(few)]
            values: list[Any] = []
            while len(values) < ROWS:
                value = numbers.choice(pool) if pool else make()
                value = None if numbers.random() < nulls else value
                values += [value] * (numbers.randrange(1, 40) if in_runs else 1)
            columns[column] = pa.array(values[:ROWS], dtype)
        yield name, pa.table(columns)


def write_files(folder: Path) -> list[Path]:
    """Write each table by each program, with settings that change how its pages look."""
    written = []

    def add(name: str, write: Callable[[Path], object]) -> None:
        path = folder / f"{name}.parquet"
        write(path)
        written.append(path)

    for name, table in tables():
        for number, options in enumerate(
            (
                {"compression": "snappy"},
                {"compression": "none", "data_page_size": 3000, "row_group_size": 2500},
                {"compression": "snappy", "data_page_version": "2.0", "use_dictionary": False},
                {"compression": "none", "data_page_version": "2.0", "data_page_size": 10_000},
                {
                    "compression": "snappy",
                    "store_decimal_as_integer": True,
                    "dictionary_pagesize_limit": 2000,
                },
                {"compression": "zstd", "store_decimal_as_integer": True},
            )
        ):
            add(
                f"{name}-pyarrow-{number}",
                lambda path, table=table, options=options: pq.write_table(table, path, **options),
            )
        required = pa.schema([field.with_nullable(False) for field in table.schema])
        if name == "different":
            add(
                f"{name}-required",
                lambda path, table=table, schema=required: pq.write_table(
                    table.cast(schema), path, compression="snappy", row_group_size=4000
                ),
            )
        frame = pl.from_arrow(table)
        assert isinstance(frame, pl.DataFrame)
        for compression in ("snappy", "uncompressed"):
            add(
                f"{name}-polars-{compression}",
                lambda path, frame=frame, compression=compression: frame.write_parquet(
                    path, compression=compression, row_group_size=4000, data_page_size=5000
                ),
            )
        for compression in ("snappy", "uncompressed"):
            add(
                f"{name}-duckdb-{compression}",
                lambda path, table=table, compression=compression: duckdb.from_arrow(table).write_parquet(
                    str(path), compression=compression, row_group_size=4096
                ),
            )
    return written
