"""Random frames of every type through random pipelines on 1 to 4 ranks: the answer is Polars' own."""

from __future__ import annotations

import datetime as dt
import decimal
import tempfile
from pathlib import Path

import polars as pl
from execute.compare import ORDINARY, TINY, assert_like_polars
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

_EPOCH = dt.datetime(2020, 1, 1)

# Few distinct values, so that keys meet; the extremes of each type among them.
VALUES: dict[str, tuple[pl.DataType, list[object]]] = {
    "i8": (pl.Int8(), [None, -128, 0, 1, 127]),
    "u64": (pl.UInt64(), [None, 0, 1, 2**64 - 1]),
    "i64": (pl.Int64(), [None, -(2**40), -1, 0, 5, 2**40]),
    "f32": (pl.Float32(), [None, -1.5, 0.0, 2.25]),
    "f64": (pl.Float64(), [None, -0.0, 0.0, 1.5, float("inf"), float("nan")]),
    "bool": (pl.Boolean(), [None, True, False]),
    "str": (pl.String(), [None, "", "a", "ab", "a string that is too long to be kept inline"]),
    "bin": (pl.Binary(), [None, b"", b"\x00", b"longer than twelve bytes"]),
    "date": (pl.Date(), [None, dt.date(1969, 7, 20), dt.date(2020, 2, 29)]),
    "datetime": (pl.Datetime("ns"), [None, _EPOCH, _EPOCH + dt.timedelta(microseconds=1)]),
    "duration": (pl.Duration("us"), [None, dt.timedelta(0), dt.timedelta(days=-1)]),
    "time": (pl.Time(), [None, dt.time(0), dt.time(23, 59, 59)]),
    "decimal": (pl.Decimal(12, 2), [None, decimal.Decimal("-1.25"), decimal.Decimal("3.00")]),
    "enum": (pl.Enum(["z", "y", "x"]), [None, "x", "y", "z"]),
    "cat": (pl.Categorical(), [None, "u", "v", "w"]),
    "list": (pl.List(pl.Int16()), [None, [], [1], [1, None, 3]]),
    "struct": (
        pl.Struct({"x": pl.Int32(), "y": pl.String()}),
        [None, {"x": 1, "y": "p"}, {"x": None, "y": "q"}],
    ),
}
SORTABLE = [name for name in VALUES if name not in ("list", "struct")]
# Sums and products of these would overflow or be order dependent in their last digits.
SUMMABLE = ["i8", "i64", "f32", "bool", "decimal"]


@st.composite
def frames(draw: st.DrawFn) -> pl.DataFrame:
    """Return a frame with a column of each type and a row number."""
    height = draw(st.integers(0, 30))
    columns = [
        pl.Series(
            name, draw(st.lists(st.sampled_from(values), min_size=height, max_size=height)), dtype=dtype
        )
        for name, (dtype, values) in VALUES.items()
    ]
    return pl.DataFrame([pl.Series("n", range(height), dtype=pl.Int64), *columns])


def scanned(frame: pl.DataFrame, folder: str, name: str = "t") -> pl.LazyFrame:
    """Return a scan of ``frame`` in row groups of 7 rows."""
    path = Path(folder) / f"{name}.parquet"
    frame.write_parquet(path, row_group_size=7)
    return pl.scan_parquet(path)


COMMON = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
RANKS = st.integers(1, 4)
OPTIONS = st.sampled_from([TINY, ORDINARY])


# Polars 2.1's streaming group_by yields List(Null) for a list key that holds nulls only, whatever its schema says.
GROUPABLE = [name for name in VALUES if name != "list"]


@COMMON
@given(frames(), RANKS, OPTIONS, st.sampled_from(GROUPABLE), st.sampled_from(SORTABLE))
def test_group_by_any_type(frame: pl.DataFrame, nranks: int, options, key: str, value: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        aggs = [pl.col(value).min().alias("lo"), pl.col(value).max().alias("hi")] if value != "cat" else []
        query = (
            scanned(frame, folder)
            .group_by(key)
            .agg(
                *aggs,
                pl.len(),
                c=pl.col(value).count(),
                first=pl.col(value).first(),
                last=pl.col(value).last(),
                distinct=pl.col(value).n_unique(),
                **{f"sum_{name}": pl.col(name).sum() for name in SUMMABLE if name != key},
            )
        )
        assert_like_polars(query, nranks, options, ordered=False)


@COMMON
@given(
    frames(),
    RANKS,
    OPTIONS,
    st.lists(st.tuples(st.sampled_from(SORTABLE), st.booleans(), st.booleans()), min_size=1, max_size=3),
)
def test_stable_sort_by_any_type(frame: pl.DataFrame, nranks: int, options, keys) -> None:
    with tempfile.TemporaryDirectory() as folder:
        keys = list({name: (name, descending, last) for name, descending, last in keys}.values())
        query = scanned(frame, folder).sort(
            [name for name, _, _ in keys],
            descending=[descending for _, descending, _ in keys],
            nulls_last=[last for _, _, last in keys],
            maintain_order=True,
        )
        outcomes = assert_like_polars(query, nranks, options)
        assert not outcomes[0].fallbacks


@COMMON
@given(
    frames(),
    frames(),
    RANKS,
    OPTIONS,
    st.sampled_from(["inner", "left", "right", "full", "semi", "anti"]),
    st.lists(st.sampled_from(SORTABLE), min_size=1, max_size=2, unique=True),
    st.booleans(),
)
def test_join_on_any_type(
    left: pl.DataFrame, right: pl.DataFrame, nranks: int, options, how, keys: list[str], nulls_equal: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        query = scanned(left, folder, "left").join(
            scanned(right, folder, "right").select(*keys, m="n"), on=keys, how=how, nulls_equal=nulls_equal
        )
        outcomes = assert_like_polars(query, nranks, options, ordered=False)
        assert not outcomes[0].fallbacks


@COMMON
@given(frames(), RANKS, OPTIONS, st.lists(st.sampled_from(GROUPABLE), min_size=1, max_size=2, unique=True))
def test_unique_of_any_type(frame: pl.DataFrame, nranks: int, options, subset: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        query = scanned(frame, folder).unique(subset=subset, keep="first", maintain_order=True)
        assert_like_polars(query, nranks, options)


@COMMON
@given(frames(), RANKS, OPTIONS, st.integers(-40, 40), st.integers(0, 40), st.integers(0, 20))
def test_slices(frame: pl.DataFrame, nranks: int, options, offset: int, length: int, after: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        query = scanned(frame, folder).filter(pl.col("n") % 3 != 1).slice(offset, length).with_row_index("r")
        assert_like_polars(query.filter(pl.col("r") >= after // 2), nranks, options)


@COMMON
@given(frames(), RANKS, OPTIONS, st.sampled_from(SORTABLE), st.integers(0, 12))
def test_head_of_sort(frame: pl.DataFrame, nranks: int, options, key: str, rows: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        query = scanned(frame, folder).sort(key, "n").head(rows).select("n", key)
        assert_like_polars(query, nranks, options)
