"""Bounds of columns in the footers of Parquet files, and files whose footers tell none."""

from __future__ import annotations

import base64
import datetime
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cudf_polars.lower.column_bounds import ColumnBounds, ascending_bounds, follows_position
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


@pytest.mark.parametrize("pandas", [False, True])
@pytest.mark.parametrize("what", _TIMES)
def test_times_that_python_cannot_hold(
    what: str, pandas: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pyarrow gives nanoseconds as pandas has them, which need not be there, and raises errors of several kinds."""
    if not pandas:
        monkeypatch.setitem(sys.modules, "pandas", None)
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


# -- where pyarrow would end the process: asked in one of its own ---------------------------------------------


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
