"""The plugin gives Polars any type, and is never run."""

from __future__ import annotations

import polars as pl
import pytest

from cudf_polars.plan.placeholder import (
    TypeCapsule,
    placeholder_expr,
    placeholder_scan,
    source_number,
)
from cudf_polars.plan.plugin import LIBRARY_VARIABLE, PluginUnavailable, find_library

TYPES = [
    pl.Boolean(),
    pl.Int8(),
    pl.Int128(),
    pl.UInt128(),
    pl.Float16(),
    pl.Float64(),
    pl.String(),
    pl.Binary(),
    pl.Date(),
    pl.Time(),
    pl.Null(),
    pl.Datetime("ns", "Europe/Paris"),
    pl.Duration("ms"),
    pl.Decimal(38, 4),
    pl.Categorical(),
    pl.Categorical(pl.Categories("riverrun")),
    pl.Enum(["a", "b"]),
    pl.List(pl.Enum(["q"])),
    pl.Array(pl.Struct({"z": pl.Datetime("us")}), (2, 3)),
    pl.Struct({"a": pl.List(pl.Categorical()), "b": pl.Decimal(10, 2)}),
]


def _call(dtype: pl.DataType) -> tuple[TypeCapsule, pl.LazyFrame]:
    capsule = TypeCapsule(dtype)
    expr = placeholder_expr(
        find_library(), 3, capsule, [pl.col("a")], elementwise=True, scalar=False, length_preserving=True
    )
    return capsule, pl.LazyFrame({"a": [1]}).select(expr)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_any_type(dtype: pl.DataType) -> None:
    capsule, lf = _call(dtype)
    assert lf.collect_schema() == {"a": dtype}
    del capsule


def test_running_it_is_an_error() -> None:
    capsule, lf = _call(pl.Int64())
    with pytest.raises(pl.exceptions.ComputeError, match="please report this query"):
        lf.collect()
    del capsule


def test_running_a_source_is_an_error() -> None:
    lf = placeholder_scan(1, pl.Schema({"a": pl.Int64}))
    with pytest.raises(RuntimeError, match="please report this query"):
        lf.collect()


def test_other_sources_have_no_number() -> None:
    assert source_number(print) is None


def test_a_missing_plugin_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LIBRARY_VARIABLE, "/nowhere/_plugin.so")
    with pytest.raises(PluginUnavailable, match=r"/nowhere/_plugin\.so"):
        find_library()
