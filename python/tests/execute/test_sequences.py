"""Functions over rows in their order, on whole tables: distributed, and Polars' own answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from execute.compare import ORDINARY, PARTITIONED, TINY, assert_like_polars, run
from execute.random_tables import five_file_tables, random_table, scan_files

from cudf_polars.execute.options import ExecutionOptions
from cudf_polars.lower.sequences import SEQUENCES

I, X, F, G, S, D, L, B, N = (pl.col(name) for name in "ixfgsdlbn")  # noqa: E741


def _columns(*exprs: pl.Expr) -> Callable[[pl.LazyFrame], pl.LazyFrame]:
    named = [expr.alias(f"c{number}") for number, expr in enumerate(exprs)]
    return lambda lf: lf.with_columns(named)


def _selected(*exprs: pl.Expr) -> Callable[[pl.LazyFrame], pl.LazyFrame]:
    named = [expr.alias(f"c{number}") for number, expr in enumerate(exprs)]
    return lambda lf: lf.select(named)


QUERIES: Mapping[str, Callable[[pl.LazyFrame], pl.LazyFrame]] = {
    "shift": _columns(X.shift(1), S.shift(-3), L.shift(2), X.shift(2, fill_value=9), B.shift(50)),
    "shift of all": lambda lf: lf.shift(3),
    "diff": _columns(F.diff(), X.diff(-2), D.diff()),
    "cumulative": _selected(
        X.cum_sum(),
        F.cum_sum(),
        G.cum_max(),
        F.cum_min(),
        X.cum_prod(),
        B.cum_sum(),
        N.cum_sum(),
        D.cum_max(),
    ),
    "cumulative from the end": _selected(
        F.cum_sum(reverse=True), N.cum_min(reverse=True), S.cum_count(reverse=True), X.cum_sum(reverse=True)
    ),
    "cum_count": _selected(S.cum_count(), N.cum_count()),
    "filled forward": _columns(
        S.fill_null(strategy="forward"),
        B.forward_fill(),
        X.fill_null(strategy="forward", limit=1),
        L.forward_fill(),
    ),
    "filled backward": _columns(L.fill_null(strategy="backward"), F.fill_null(strategy="backward", limit=2)),
    "interpolate": _columns(G.interpolate(), X.interpolate(), D.interpolate(), X.interpolate("nearest")),
    "rolling": _selected(
        X.rolling_sum(3),
        X.rolling_max(4, min_samples=1),
        X.rolling_mean(3, center=True),
        X.rolling_sum(4, center=True, min_samples=1),
        G.rolling_min(2),
        X.rolling_quantile(0.3, window_size=4, min_samples=2),
        I.rolling_std(3),
        I.rolling_var(4),
        I.rolling_sum(3, weights=[0.5, 1, 2]),
        I.rolling_skew(5),
        I.rolling_kurtosis(6),
        pl.rolling_corr(I, X, window_size=5, min_samples=2),
    ),
    "peaks": _selected(X.peak_max(), I.peak_min()),
    "changes in percent": _selected(X.pct_change(), F.pct_change(-2), G.pct_change(3), I.pct_change()),
    "changes of text in percent": _selected(S.pct_change(), X.cast(pl.String).pct_change()),
    "runs": _selected(X.rle_id(), S.rle_id(), F.rle_id(), B.rle_id(), G.rle_id()),
    "numbers": _selected(pl.int_range(pl.len(), dtype=pl.UInt32)),
    "numbers and constants": _selected(pl.int_range(pl.len()), pl.repeat(3, pl.len())),
    "every second": _columns(pl.when(pl.int_range(pl.len()) % 2 == 0).then(X).otherwise(X.shift(1))),
    "of each other": _columns(
        X.cum_sum().shift(1).diff(), X.shift(1).fill_null(strategy="forward").cum_max()
    ),
    "beside values of the table": _columns((I.cum_sum() - X) / I.max(), I.cum_sum() / I.sum()),
    "beside windows": lambda lf: lf.select(X.shift(1), w=X.sum().over("s")),
    "as a filter": lambda lf: lf.filter(I.diff().fill_null(1) > 0, X.shift(1) != X),
    "a comparison that no value meets": lambda lf: lf.select(N == pl.lit(300), r=N.eq_missing(pl.lit(300))),
}


COLUMNS: Mapping[str, tuple[pl.DataType, Sequence[object]]] = {
    "x": (pl.Int64(), range(5)),
    "f": (pl.Float64(), [float("nan"), 1.5, -2.0, 0.25]),
    "g": (pl.Float32(), [None, None, 7, -3.5]),
    "s": (pl.String(), ["a", "b"]),
    "d": (pl.Datetime("us"), [10**15, 10**15 + 7]),
    "l": (pl.List(pl.Int64()), [[], [1], [2, None]]),
    "b": (pl.Boolean(), [True, False]),
    "n": (pl.Int8(), [100, 27, -100]),
}


table = five_file_tables(COLUMNS)


@pytest.mark.parametrize("options", [TINY, ORDINARY, PARTITIONED], ids=["tiny", "ordinary", "partitioned"])
@pytest.mark.parametrize("nranks", [1, 2, 3])
@pytest.mark.parametrize("name", QUERIES)
def test_rows_in_order(table: pl.LazyFrame, name: str, nranks: int, options: ExecutionOptions) -> None:
    for query in (QUERIES[name](table), QUERIES[name](table.filter(I > 3))):
        for outcome in assert_like_polars(query, nranks, options):
            assert not outcome.fallbacks


@pytest.mark.parametrize("nranks", [2, 5])
@pytest.mark.parametrize("rows", [2, 5])
def test_a_gap_or_a_window_spans_ranks(rows: int, nranks: int, tmp_path: Path) -> None:
    frame = pl.DataFrame({"v": [1.0, *[None] * (rows - 2), 5.0], "i": range(rows)})
    lf = scan_files(frame, tmp_path, list(range(rows + 1)))
    v = pl.col("v")
    query = lf.with_columns(
        a=v.interpolate(),
        b=v.rolling_sum(4, min_samples=1),
        c=v.forward_fill(),
        d=v.backward_fill(),
        e=v.shift(3),
    )
    for outcome in assert_like_polars(query, nranks):
        assert not outcome.fallbacks


def test_sums_wrap_around_as_in_polars(tmp_path: Path) -> None:
    frame = pl.DataFrame({"v": [2**62, 2**62, 2**62, 1, -7, 3]})
    lf = scan_files(frame, tmp_path, [0, 2, 3, 6])
    assert_like_polars(lf.select(pl.col("v").cum_sum(), p=pl.col("v").cum_prod()), 3)


@pytest.mark.parametrize(
    "expr",
    [
        X.shift(pl.col("x").max()),
        X.shift(10**6),
        pl.int_range(3, pl.len() + 3),
        X.ewm_mean(alpha=0.5),
        pl.lit(2).cum_sum(),
        pl.lit(2).shift(1),
    ],
)
def test_what_is_not_known_is_gathered(expr: pl.Expr, tmp_path: Path) -> None:
    lf = scan_files(random_table(40, COLUMNS), tmp_path, [0, 10, 40])
    outcomes = assert_like_polars(lf.with_columns(z=expr), 2)
    assert any(outcome.fallbacks for outcome in outcomes)


def test_every_function_of_the_table_is_tried() -> None:
    text = Path(__file__).read_text()
    written = {
        "fill_null_with_strategy": "strategy=",
        "shift_and_fill": "fill_value=",
        "rolling_corr_cov": "rolling_corr",
    }
    assert [name for name in SEQUENCES if written.get(name, name) not in text] == []


@pytest.mark.parametrize("dtype", [pl.String, pl.Binary, pl.List(pl.Int64)])
def test_a_sum_of_what_has_none_raises_what_polars_raises(dtype: pl.DataType, tmp_path: Path) -> None:
    lf = scan_files(pl.DataFrame({"v": [None, None]}, schema={"v": dtype}), tmp_path, [0, 1, 2])
    with pytest.raises(pl.exceptions.InvalidOperationError, match="`cum_sum` operation not supported"):
        run(lf.select(pl.col("v").cum_sum()), 2)


def test_a_product_of_durations_raises_what_polars_raises(tmp_path: Path) -> None:
    frame = pl.DataFrame({"v": [1, 2]}, schema={"v": pl.Duration("ms")})
    with pytest.raises(pl.exceptions.InvalidOperationError, match="`cum_prod` operation not supported"):
        run(scan_files(frame, tmp_path, [0, 1, 2]).select(pl.col("v").cum_prod()), 2)


def test_sums_of_a_type_that_is_planned_as_another(tmp_path: Path) -> None:
    frame = pl.DataFrame({"v": [1, 2, 3]}, schema={"v": pl.UInt128})
    query = scan_files(frame, tmp_path, [0, 1, 3]).select(pl.col("v").cum_sum())
    assert run(query, 2)[0].equals(query.collect())


@pytest.mark.parametrize("values", [[{"x": 1}, {"x": 2}], [[1], [2]]], ids=["struct", "list"])
def test_what_has_no_changes_in_percent_is_refused_as_by_polars(values: list[Any]) -> None:
    query = pl.LazyFrame({"a": values}).select(pl.col("a").pct_change())
    with pytest.raises(pl.exceptions.InvalidOperationError):
        query.collect()
    with pytest.raises(pl.exceptions.InvalidOperationError):
        run(query, 2, TINY)
