"""Column chunks as several programs write them, decoded by the code that our kernels run; on a GPU, whole queries."""

from __future__ import annotations

import os
import struct
import subprocess
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from parquet_writers import write_files
from polars.testing import assert_frame_equal

from cudf_polars import SPMDEngine
from cudf_polars.engine.compute_device import gpu_unavailable

_PROGRAM = Path(__file__).parents[2] / "build/wheel/cpp/test_pages"
_STORED = {"INT32": 4, "INT64": 8, "FLOAT": 4, "DOUBLE": 8}
_CODECS = {"UNCOMPRESSED": 0, "SNAPPY": 1}
_SIMPLE = {"PLAIN", "RLE", "BIT_PACKED", "PLAIN_DICTIONARY", "RLE_DICTIONARY"}


def _stored_values(column: pa.ChunkedArray, width: int) -> bytes:
    """Return the bytes that the format stores for each row; zeros for nulls."""
    array = column.combine_chunks()
    if pa.types.is_decimal(array.type):
        scaled = [0 if v is None else int(v.scaleb(array.type.scale)) for v in array.to_pylist()]
        return np.array(scaled, f"<i{width}").tobytes()
    if pa.types.is_floating(array.type):
        return array.fill_null(0).to_numpy(zero_copy_only=False).astype(f"<f{width}").tobytes()
    if pa.types.is_temporal(array.type):
        array = array.view(pa.int64() if array.type.bit_width == 64 else pa.int32())
    values = array.fill_null(0).to_numpy(zero_copy_only=False)
    return values.astype(f"<{'u' if values.dtype.kind == 'u' else 'i'}{width}").tobytes()


def _write_cases(file: Path, folder: Path) -> int:
    """Write a case for each chunk of a file that the decoder is made for; return how many."""
    data, metadata = file.read_bytes(), pq.read_metadata(file)
    schema, cases = pq.ParquetFile(file).schema, 0
    for group in range(metadata.num_row_groups):
        rows = pq.ParquetFile(file).read_row_group(group)
        for number in range(metadata.num_columns):
            chunk = metadata.row_group(group).column(number)
            width = _STORED.get(chunk.physical_type)
            if width is None or chunk.compression not in _CODECS or not set(chunk.encodings) <= _SIMPLE:
                continue
            begin = chunk.data_page_offset
            if chunk.dictionary_page_offset:
                begin = min(begin, chunk.dictionary_page_offset)
            column = rows.column(number)
            valid = np.array(column.combine_chunks().is_valid(), np.uint8).tobytes()
            head = struct.pack(
                "<6I",
                width,
                schema.column(number).max_definition_level,
                _CODECS[chunk.compression],
                chunk.num_values,
                chunk.total_uncompressed_size,
                chunk.total_compressed_size,
            )
            body = data[begin : begin + chunk.total_compressed_size]
            values = _stored_values(column, width)
            (folder / f"{file.stem}-{group}-{chunk.path_in_schema}").write_bytes(head + body + valid + values)
            cases += 1
    return cases


def test_chunks_of_several_writers(tmp_path: Path) -> None:
    if not _PROGRAM.exists():
        pytest.skip(f"{_PROGRAM.name} has not been built")
    files, cases = tmp_path / "files", tmp_path / "cases"
    files.mkdir()
    cases.mkdir()
    written = sum(_write_cases(file, cases) for file in write_files(files))
    assert written > 1000
    done = subprocess.run(
        [_PROGRAM, "--gtest_filter=DecodeValues.OfFiles"],
        env={**os.environ, "RAPIDSMPF_PAGE_CASES": str(cases)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert f"{written} chunks" in done.stdout


def test_files_of_several_writers_on_a_gpu(tmp_path: Path) -> None:
    if (reason := gpu_unavailable()) is not None:
        pytest.skip(reason)
    with SPMDEngine(executor_options={"compute_device": "gpu", "raise_on_fail": True}) as engine:
        for file in write_files(tmp_path):
            scan = pl.scan_parquet(file).drop("time")  # has no form on a GPU
            assert_frame_equal(scan.collect(engine=engine), scan.collect())
