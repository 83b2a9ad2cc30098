"""Polars is told the schemas of files with large footers, and nothing else changes."""

from __future__ import annotations

import os
from pathlib import Path

import polars as pl
import pytest

from cudf_polars.plan import known_schemas
from cudf_polars.plan.dag import walk_nodes
from cudf_polars.plan.fingerprint import dump
from cudf_polars.plan.nodes import Scan
from cudf_polars.plan.read import read_plan
from cudf_polars.plan.rebuild import to_lazyframe


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A file of many row groups, whose footer counts as large."""
    known_schemas.forget_schemas()
    monkeypatch.setattr(known_schemas, "_WORTH_BYTES", 1000)
    monkeypatch.setattr(known_schemas, "_LEAST_BYTES", 1000)
    path = tmp_path / "a.parquet"
    pl.DataFrame({"k": list(range(200)), "v": [1.5] * 200}).write_parquet(path, row_group_size=5)
    return str(path)


def test_footers_of_all_files_count_and_small_ones_are_read(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, small = (str(tmp_path / f"{name}.parquet") for name in ("b", "c"))
    pl.read_parquet(file).write_parquet(other, row_group_size=5)
    pl.read_parquet(file).write_parquet(small)
    large_footer, small_footer = map(known_schemas._footer_bytes, (file, small))
    assert small_footer < 1000 < large_footer
    monkeypatch.setattr(known_schemas, "_WORTH_BYTES", large_footer + small_footer + 1)
    scans = [pl.scan_parquet(path) for path in (file, other, small)]
    assert known_schemas.with_known_schemas(scans[0].join(scans[2], on="k")).paths == frozenset()
    joined = scans[0].join(scans[1], on="k").join(scans[2], on="k")
    assert known_schemas.with_known_schemas(joined).paths == {file, other}


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
def test_numbers_that_json_does_not_have(file: str, value: float) -> None:
    scan = pl.scan_parquet(file)
    for query in (
        scan.with_columns(x=pl.lit(value)),
        scan.filter(pl.col("v") < value),
        scan.select(
            pl.col("v").is_close(1.0, abs_tol=abs(value)) if value == value else pl.col("v").fill_nan(value)
        ),
        scan.filter(pl.col("v").is_in([1.5, value])),
    ):
        assert to_lazyframe(read_plan(query).root).collect().equals(query.collect())


def _query(file: str) -> pl.LazyFrame:
    return pl.scan_parquet(file).filter(pl.col("k") > 5).group_by("k").agg(pl.col("v").sum())


def test_a_known_file_is_told_and_the_plan_is_the_same(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(known_schemas, "_WORTH_BYTES", 1 << 20)
        patch.setattr(known_schemas, "_LEAST_BYTES", 1 << 20)
        first = read_plan(_query(file))
        assert known_schemas.known_schema(file) is None
    assert known_schemas.known_schema(file) == {"k": pl.Int64(), "v": pl.Float64()}
    told = known_schemas.with_known_schemas(_query(file))
    assert told.paths == {file}
    assert told.lf.collect_schema() == _query(file).collect_schema()
    second = read_plan(_query(file))
    assert dump(second) == dump(first)
    (scan,) = [node for node in walk_nodes(second.root) if isinstance(node, Scan)]
    assert "schema" not in scan.options
    assert to_lazyframe(second.root).collect().height == 194


def test_a_file_that_changed_is_read_again(file: str) -> None:
    read_plan(_query(file))
    pl.DataFrame({"k": ["x"] * 200, "v": [1] * 200}).write_parquet(file, row_group_size=5)
    os.utime(file, ns=(1, 1))
    assert known_schemas.known_schema(file) == {"k": pl.String(), "v": pl.Int64()}
    plan = read_plan(pl.scan_parquet(file).filter(pl.col("v") > 0))
    assert dict(plan.root.schema) == {"k": pl.String(), "v": pl.Int64()}


def test_texts_that_look_like_parts_of_a_plan(file: str) -> None:
    read_plan(_query(file))
    texts = [
        '"Scan":{',
        '{"Scan":1}',
        '"Parquet":{"options":{"schema":null',
        "Scan",
        '"DataFrameScan"',
        "ManyToOne",
    ]
    query = _query(file).with_columns(*(pl.lit(text).alias(text) for text in texts))
    plan = read_plan(query.join(pl.scan_parquet(file), on="k"))
    result = to_lazyframe(plan.root).collect()
    assert result.select(texts).unique().rows() == [tuple(texts)]
    assert result.height == 194


def test_a_schema_that_the_user_gives_stays(file: str) -> None:
    read_plan(_query(file))
    given = {"k": pl.Int64(), "v": pl.Float64(), "w": pl.String()}
    query = (
        pl.scan_parquet(file, schema=given, missing_columns="insert").select("k", "w").filter(pl.col("k") > 1)
    )
    (scan,) = [node for node in walk_nodes(read_plan(query).root) if isinstance(node, Scan)]
    assert dict(scan.options["schema"]) == given


def test_queries_with_frames_or_functions_are_left_alone(file: str) -> None:
    read_plan(_query(file))
    frame = pl.LazyFrame({"k": [1, 2]})
    for query in (
        _query(file).join(frame, on="k"),
        _query(file).with_columns(pl.col("v").map_elements(lambda x: x, return_dtype=pl.Float64)),
    ):
        assert known_schemas.with_known_schemas(query).paths == frozenset()
        read_plan(query)


def test_a_query_with_a_large_frame_ends_the_detour(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read_plan(_query(file))
    monkeypatch.setattr(known_schemas, "_MOST_TEXT", 2000)
    large = pl.LazyFrame({"k": list(range(10_000))})
    assert known_schemas.with_known_schemas(large).paths == frozenset()
    assert known_schemas.with_known_schemas(_query(file)).paths == frozenset()
    known_schemas.forget_schemas()
