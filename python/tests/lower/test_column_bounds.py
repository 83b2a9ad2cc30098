"""Bounds of columns in the footers of Parquet files, and files whose footers tell none."""

from __future__ import annotations

import base64
import datetime
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cudf_polars.lower.column_bounds import ColumnBounds, ascending_bounds, follows_position, read_column
from cudf_polars.lower.footers import FileFooters, read_footer


def _bounds(path: Path, column: str, kind: type = int) -> ColumnBounds | None:
    return ascending_bounds([str(path)], None, column, kind, FileFooters())


def test_bounds_of_each_row_group(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    days = [datetime.date(2020, 1, 1) + datetime.timedelta(day) for day in range(10)]
    frame = pl.DataFrame({"a": range(10), "day": days, "down": range(10, 0, -1), "null": [None, *range(9)]})
    frame.with_columns(pl.struct(a="down").alias("s")).write_parquet(path, row_group_size=4)
    assert _bounds(path, "a") == ColumnBounds((0, 4, 8), (3, 7, 9))
    assert _bounds(path, "day", datetime.date) == ColumnBounds(
        (days[0], days[4], days[8]), (days[3], days[7], days[9])
    )
    assert _bounds(path, "day") is None
    assert _bounds(path, "down") is None
    assert _bounds(path, "null") is None
    assert _bounds(path, "s") is None
    assert _bounds(path, "absent") is None


def test_files_that_tell_none(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    assert _bounds(path, "a") is None
    path.write_bytes(b"PAR1 this is none \xff\xff\xff\xffPAR1")
    assert _bounds(path, "a") is None
    pl.DataFrame({"a": range(10)}).write_parquet(path, statistics=False)
    assert _bounds(path, "a") is None


_TIMES = {
    "days after the year 9999": pl.Series(range(2**29, 2**29 + 100)).cast(pl.Date),
    "times after the year 9999": pl.Series(range(2**62, 2**62 + 100)).cast(pl.Datetime("us")),
    "nanoseconds": pl.Series(range(1, 101)).cast(pl.Datetime("ns", "UTC")),
    "nanoseconds of a day": pl.Series(range(1, 101)).cast(pl.Time),
}


@pytest.mark.parametrize("what", _TIMES)
def test_times_that_python_cannot_hold(what: str, tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pl.DataFrame({"a": _TIMES[what]}).write_parquet(path, row_group_size=10)
    assert follows_position([str(path)], None, "a", FileFooters())
    assert _bounds(path, "a", datetime.date) is None


def test_text_that_is_none(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pl.DataFrame({"a": ["one", "two"]}).write_parquet(path)
    content = path.read_bytes()
    assert content.count(b"one") > 1
    path.write_bytes(content.replace(b"one", b"\xff\xfe\xfd"))
    assert _bounds(path, "a", str) is None


def _random_frame(rng: random.Random, rows: int) -> pl.DataFrame:
    """Return columns of types that have bounds, with nulls in some."""
    numbers = [
        rng.randrange(-(2 ** rng.choice([6, 14, 30])), 2 ** rng.choice([6, 14, 30])) for _ in range(rows)
    ]
    base = pl.DataFrame({"n": pl.Series(numbers, dtype=pl.Int64)})
    positive = pl.col("n").abs()
    frame = base.select(
        i8=(pl.col("n") % 100).cast(pl.Int8),
        i16=(pl.col("n") % 30_000).cast(pl.Int16),
        i32=pl.col("n").cast(pl.Int32),
        i64=pl.col("n") * 2**31,
        u8=(positive % 250).cast(pl.UInt8),
        u32=(positive * 4).cast(pl.UInt32),
        u64=positive.cast(pl.UInt64) * 2**32,
        f32=(pl.col("n") / 7).cast(pl.Float32),
        f64=pl.col("n") / 7,
        flag=pl.col("n") % 2 == 0,
        text=pl.col("n").cast(pl.String) + "é",
        binary=pl.col("n").cast(pl.String).cast(pl.Binary),
        day=pl.date(2000, 1, 1) + pl.duration(days=pl.col("n") % 10_000),
        at=pl.datetime(2000, 1, 1, time_unit="us", time_zone="UTC") + pl.duration(microseconds=pl.col("n")),
        ms=(pl.datetime(2000, 1, 1) + pl.duration(seconds=pl.col("n"))).cast(pl.Datetime("ms")),
        clock=pl.time(1) if rows == 0 else (positive % 1000).cast(pl.Time),
        money=pl.col("n").cast(pl.Decimal(12, 2)),
        small=(pl.col("n") % 1000).cast(pl.Decimal(7, 1)),
        huge=pl.col("n").cast(pl.Decimal(38, 10)),
    )
    gaps = rng.choice([0.0, 0.2, 1.0])
    return frame.with_columns(
        pl.when(pl.Series([rng.random() >= gaps for _ in range(rows)], dtype=pl.Boolean))
        .then(name)
        .alias(name)
        for name in frame.columns
        if rng.random() < 0.5
    )


def _write(rng: random.Random, frame: pl.DataFrame, path: Path) -> None:
    match rng.randrange(3):
        case 0:
            frame.write_parquet(path, row_group_size=rng.choice([1, 7, 100]))
        case 1:
            pq.write_table(
                frame.to_arrow(),
                path,
                row_group_size=rng.choice([1, 7, 100]),
                version=rng.choice(["1.0", "2.4", "2.6"]),
                store_decimal_as_integer=rng.random() < 0.5,
                write_statistics=rng.random() < 0.9,
            )
        case _:
            duckdb = pytest.importorskip("duckdb", reason="DuckDB is not installed")
            with duckdb.connect() as connection:
                connection.register("frame", frame.to_arrow())
                connection.execute(f"COPY frame TO '{path}' (FORMAT parquet, ROW_GROUP_SIZE 2048)")


@pytest.mark.parametrize("seed", range(30))
def test_columns_are_as_pyarrow_reads_them(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    frame = _random_frame(rng, rng.choice([0, 1, 5, 50, 5000 if seed % 5 == 0 else 200]))
    path = tmp_path / "t.parquet"
    _write(rng, frame, path)
    metadata = pq.read_metadata(path)
    file = read_footer(str(path))
    known = 0
    for place, name in enumerate(frame.columns):
        column = read_column(file, "t", name)
        assert column is not None, name
        assert column.is_required == (metadata.schema.column(place).max_definition_level == 0)
        assert len(column.chunks) == metadata.num_row_groups
        for number, chunk in enumerate(column.chunks):
            group = metadata.row_group(number)
            assert chunk.rows == group.num_rows
            theirs = group.column(place).statistics
            if theirs is None or not theirs.has_min_max:
                assert chunk.bounds is None, name
                continue
            is_clock = theirs.logical_type.type in ("TIME", "TIMESTAMP")
            expected = (theirs.min_raw, theirs.max_raw) if is_clock else (theirs.min, theirs.max)
            assert chunk.bounds == expected, name
            assert chunk.nulls == (theirs.null_count if theirs.has_null_count else None), name
            known += 1
    assert known or not frame.height or seed not in (0, 5, 10)


# -- damaged and encrypted files: asked in a process of its own, which must not end ---------------------------


def _bounds_in_process(path: Path, *columns: str) -> list[str]:
    code = """
import sys
from cudf_polars.execute.gpu.translate.statistics import column_range, may_hold_nulls
from cudf_polars.lower.column_bounds import ascending_bounds
from cudf_polars.lower.footers import FileFooters
import polars as pl
path, *columns = sys.argv[1:]
for column in columns:
    bounds = ascending_bounds([path], None, column, int, FileFooters())
    print(bounds if bounds is None else bounds.least)
    column_range([path], column, pl.Int64()).best
    may_hold_nulls([path], column)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(path), *columns], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\n")[:-1]


def test_encrypted_columns(tmp_path: Path) -> None:
    encryption = pytest.importorskip("pyarrow.parquet.encryption")

    class Keys(encryption.KmsClient):  # type: ignore[misc]
        def __init__(self, _: Any) -> None:
            super().__init__()

        def wrap_key(self, key: bytes, _: str) -> bytes:
            return base64.b64encode(key)

        def unwrap_key(self, key: bytes, _: str) -> bytes:
            return base64.b64decode(key)

    path = tmp_path / "t.parquet"
    config = encryption.EncryptionConfiguration(
        footer_key="footer", column_keys={"column": ["secret"]}, plaintext_footer=True
    )
    properties = encryption.CryptoFactory(Keys).file_encryption_properties(
        encryption.KmsConnectionConfig(), config
    )
    table = pa.table({"plain": [1, 2, 3], "secret": [4, 5, 6]})
    with pq.ParquetWriter(path, table.schema, encryption_properties=properties) as writer:
        writer.write_table(table)
    assert _bounds_in_process(path, "plain", "secret") == ["None", "None"]


def test_chunks_of_another_type_than_their_column(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pl.DataFrame({"a": range(10), "b": range(10)}).write_parquet(path)
    assert _bounds_in_process(path, "a", "b") == ["(0,)", "(0,)"]
    footer = read_footer(str(path))
    begin = b"\x15\x04\x19"  # of what is said of a chunk: its type, Int64, and a list of encodings
    assert footer.count(begin) == 2
    path.write_bytes(footer.replace(begin, b"\x15\x02\x19", 1))
    assert _bounds_in_process(path, "a", "b") == ["None", "(0,)"]
