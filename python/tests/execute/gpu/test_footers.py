"""The native parser finds in a Parquet footer what pyarrow finds there."""

from __future__ import annotations

import decimal
import random
import sys
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cudf_polars.execute.gpu.translate import statistics
from cudf_polars.plan.file_versions import file_version

SCHEMA = {
    "i64": pl.Int64,
    "i32": pl.Int32,
    "i8": pl.Int8,
    "u32": pl.UInt32,
    "u64": pl.UInt64,
    "none": pl.Int64,
    "short": pl.Decimal(7, 2),
    "money": pl.Decimal(15, 2),
    "wide": pl.Decimal(38, 3),
}


def _frame(rng: random.Random, rows: int) -> pl.DataFrame:
    def numbers(low: int, high: int) -> list[int | None]:
        return [None if rng.random() < 0.3 else rng.randint(low, high) for _ in range(rows)]

    def decimals(most: int, scale: int) -> list[decimal.Decimal | None]:
        return [None if n is None else decimal.Decimal(n).scaleb(-scale) for n in numbers(-most, most)]

    columns = {
        "i64": numbers(-(2**63), 2**63 - 1),
        "i32": numbers(-(2**31), 2**31 - 1),
        "i8": numbers(-128, 127),
        "u32": numbers(0, 2**32 - 1),
        "u64": numbers(0, 2**64 - 1),
        "none": [None] * rows,
        "short": decimals(10**7 - 1, 2),
        "money": decimals(10**15 - 1, 2),
        "wide": decimals(10**28, 3),
    }
    return pl.DataFrame(columns, schema=SCHEMA)


def _write(rng: random.Random, frame: pl.DataFrame, path: Path) -> None:
    statistics_too = rng.random() < 0.8
    if rng.random() < 0.4:
        frame.write_parquet(path, row_group_size=100, statistics=statistics_too)
    else:
        pq.write_table(
            frame.to_arrow(),
            path,
            row_group_size=100,
            store_decimal_as_integer=rng.random() < 0.5,
            write_statistics=statistics_too,
        )


@pytest.fixture
def operators() -> None:
    """Load the operators over libcudf, which read footers without a GPU, too."""
    libcudf = pytest.importorskip("libcudf", reason="libcudf is not installed")
    libcudf.load_library()
    pytest.importorskip("rapidsmpf.compute", reason="built without the operators for GPUs")


@pytest.mark.parametrize("seed", range(30))
def test_a_footer_says_what_it_says_to_pyarrow(
    seed: int, operators: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    path = tmp_path / "numbers.parquet"
    _write(rng, _frame(rng, rng.choice([0, 1, 5, 1000])), path)
    version = file_version(str(path))

    def facts() -> dict[str, tuple[object, bool]]:
        for cached in (statistics._interval, statistics._summary, statistics._rows_of):
            cached.cache_clear()
        found: dict[str, tuple[object, bool]] = {
            name: (
                statistics._interval(str(path), name, dtype, *version),
                statistics.may_hold_nulls([str(path)], name),
            )
            for name, dtype in SCHEMA.items()
        }
        found["rows"] = (statistics.file_rows([str(path)]), False)
        return found

    in_one_go = facts()
    assert statistics._summary(str(path), *version) is not None
    monkeypatch.delitem(sys.modules, "rapidsmpf.compute")
    by_pyarrow = facts()
    # pyarrow reports no statistics for a row group without values.
    without_values = pq.read_metadata(path).num_rows == 0
    for name, found in by_pyarrow.items():
        assert in_one_go[name] == found or (without_values and in_one_go[name] == ((0, 0), found[1])), name


def test_a_required_column_is_known(operators: None, tmp_path: Path) -> None:
    from rapidsmpf.compute import summarize_footer

    schema = pa.schema(
        [
            pa.field("a", pa.int64(), nullable=False),
            pa.field("nested", pa.struct([pa.field("x", pa.int64(), nullable=False)])),
            pa.field("b", pa.int64()),
        ]
    )
    path = tmp_path / "required.parquet"
    pq.write_table(pa.table({"a": [3, 1], "nested": [{"x": 1}, None], "b": [None, 7]}, schema=schema), path)
    assert summarize_footer(str(path)) == (2, {"a": (True, (1, 3)), "b": (False, (7, 7))})


def test_a_file_that_has_changed_is_read_again(operators: None, tmp_path: Path) -> None:
    from rapidsmpf.compute import summarize_footer

    path = tmp_path / "numbers.parquet"
    for numbers in ([1, 2], [5, 6, 9]):
        pl.DataFrame({"x": numbers}).write_parquet(path)
        assert summarize_footer(str(path)) == (len(numbers), {"x": (False, (numbers[0], numbers[-1]))})


def test_a_file_that_is_none_has_no_footer(operators: None, tmp_path: Path) -> None:
    from rapidsmpf.compute import summarize_footer

    path = tmp_path / "text.parquet"
    path.write_text("this is a text of more than twelve bytes")
    with pytest.raises(RuntimeError, match="no Parquet file"):
        summarize_footer(str(path))
    with pytest.raises(OSError, match="absent"):
        summarize_footer(str(tmp_path / "absent.parquet"))
