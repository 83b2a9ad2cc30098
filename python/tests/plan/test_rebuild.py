"""Parts of scans, single nodes, and errors."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from cudf_polars.plan import expressions as ex
from cudf_polars.plan import nodes
from cudf_polars.plan.errors import CannotRebuild
from cudf_polars.plan.read import read_plan
from cudf_polars.plan.rebuild import rebuild_node, rebuild_scan, to_lazyframe
from cudf_polars.plan.rebuild_expressions import to_expr

c = pl.col


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / f"{n}.parquet" for n in range(3)]
    for n, path in enumerate(paths):
        pl.DataFrame({"a": range(10 * n, 10 * n + 10)}).write_parquet(path)
    return paths


def _scan(query: pl.LazyFrame) -> nodes.Scan:
    root = read_plan(query).root
    assert isinstance(root, nodes.Scan)
    return root


def test_a_scan_of_some_files(files: list[Path]) -> None:
    scan = _scan(pl.scan_parquet(files).filter(c("a") % 2 == 0))
    out = rebuild_scan(scan, paths=[str(files[1])]).collect()
    assert out["a"].to_list() == [10, 12, 14, 16, 18]


def test_a_scan_of_some_rows(files: list[Path]) -> None:
    scan = _scan(pl.scan_parquet(files).filter(c("a") % 2 == 0))
    assert rebuild_scan(scan, slice=(8, 5)).collect()["a"].to_list() == [8, 10, 12]


def test_the_row_index_of_a_part(files: list[Path]) -> None:
    scan = _scan(pl.scan_parquet(files, row_index_name="i", row_index_offset=100))
    out = rebuild_scan(scan, paths=[str(files[2])], slice=(3, 2), row_index_offset=120).collect()
    assert out.rows() == [(123, 23), (124, 24)]


def test_paths_of_a_scan_are_files(files: list[Path]) -> None:
    scan = _scan(pl.scan_parquet(files[0].parent / "*.parquet"))
    assert scan.paths == tuple(str(p) for p in files)


def test_a_pushed_slice_is_shown(files: list[Path]) -> None:
    assert _scan(pl.scan_parquet(files).slice(-4, 2)).slice == (-4, 2)


def test_top_k_does_not_keep_its_running_bound(files: list[Path]) -> None:
    root = read_plan(pl.scan_parquet(files).sort("a", descending=True).head(2)).root
    assert isinstance(root, nodes.Sort)
    assert root.slice == (0, 2)
    assert isinstance(root.child, nodes.Scan)
    assert root.child.predicate is None


def test_as_of_and_inequality_operators_are_shown() -> None:
    left, right = pl.LazyFrame({"a": [1, 2]}), pl.LazyFrame({"b": [1, 2]})
    root = read_plan(left.join_where(right, c("a") <= c("b"))).root
    assert isinstance(root, nodes.Join)
    assert (root.how, root.ie_operators) == ("ie", ("<=",))


def test_a_sink_is_written_again(tmp_path: Path) -> None:
    frame = pl.DataFrame({"a": [1, 2]})
    for method, suffix in (
        ("sink_parquet", "parquet"),
        ("sink_csv", "csv"),
        ("sink_ipc", "arrow"),
        ("sink_ndjson", "x"),
    ):
        first, second = tmp_path / f"1.{suffix}", tmp_path / f"2.{suffix}"
        options = {"check_extension": False} if suffix == "x" else {}
        getattr(frame.lazy(), method)(first, **options)
        root = read_plan(getattr(frame.lazy(), method)(second, lazy=True, **options)).root
        if suffix == "x":
            assert isinstance(root, nodes.OpaqueNode)
        else:
            assert isinstance(root, nodes.Sink)
            assert root.method == method
            assert root.target == str(second)
        rebuild_node(root, [frame.lazy()]).collect()
        assert first.read_bytes() == second.read_bytes()


def test_unknown_function_is_named() -> None:
    with pytest.raises(CannotRebuild, match="frobnicate"):
        to_expr(ex.Function("frobnicate", (ex.Column("a"),)))


def test_wrong_number_of_frames() -> None:
    node = nodes.Slice(nodes.DataFrameScan(pl.DataFrame(), schema={}), 0, 1, schema={})
    with pytest.raises(ValueError, match="1 inputs, got 0"):
        rebuild_node(node, [])


@pytest.mark.parametrize("how", ["inner", "left", "right", "full"])
@pytest.mark.parametrize("coalesce", [None, True, False])
@pytest.mark.parametrize(
    ("left_on", "right_on"),
    [("b", "k"), (["b", "x"], ["k", "b"]), (c("b") + 0, "k"), ("b", c("k").cast(pl.Int64))],
)
def test_join_keys_of_different_types(how, coalesce, left_on, right_on) -> None:  # type: ignore[no-untyped-def]
    left = pl.LazyFrame({"b": [1, 2], "x": [10, 20]})
    right = pl.LazyFrame({"k": [1, 3], "b": [7, 8]}, schema_overrides={"k": pl.Int32})
    query = left.join(right, left_on=left_on, right_on=right_on, how=how, coalesce=coalesce)
    rebuilt = to_lazyframe(read_plan(query).root)
    assert_frame_equal(rebuilt.collect(), query.collect(), check_row_order=False)
