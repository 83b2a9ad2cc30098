"""Groups by direct addressing: counts and sums by an integer are those of Polars, or are left to it."""

from __future__ import annotations

import random
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from execute.compare import PARTITIONED, assert_like_polars
from execute.integer_keys import BOUNDS, keys_near, of_type
from polars.testing import assert_frame_equal

from cudf_polars.execute import paths
from cudf_polars.execute.direct_groups import direct_groups
from cudf_polars.lower.aggregates import decompose
from cudf_polars.lower.tallies import Tallies
from cudf_polars.plan.nodes import GroupBy
from cudf_polars.plan.read import read_plan

IN_CHUNKS = replace(PARTITIONED, small_limit=0)
K, V, F = pl.col("k"), pl.col("v"), pl.col("f")
ROWS = 2_000
INTEGERS = [dtype for dtype in BOUNDS if dtype.is_integer()]


def groups_of(rows: pl.DataFrame, *aggregates: pl.Expr) -> tuple[pl.DataFrame | None, pl.DataFrame]:
    """Return counts and sums by ``k``, by direct addressing and by Polars."""
    query = rows.lazy().group_by("k").agg(aggregates)
    node = read_plan(query).root
    assert isinstance(node, GroupBy)
    split = decompose(node.aggs)
    assert split is not None
    assert len(split.tallies) == len(node.aggs)
    names = [agg.name for agg in node.aggs]
    own = Tallies.of(node.keys, dict(zip(names, split.tallies.values(), strict=True)))
    assert own is not None
    values = own.values([rows.lazy()], 0)
    expected = query.collect(engine="streaming")
    assert_frame_equal(own.groups([values], 0).collect().sort("k"), expected.sort("k"), rel_tol=1e-12)
    return direct_groups(values.collect(), own, expected.schema), expected


@pytest.mark.parametrize("dtype", BOUNDS, ids=str)
@pytest.mark.parametrize("at_once", [1, 64, 1 << 18])
def test_counts_and_sums_by_keys_of_all_types(
    dtype: pl.DataType, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[direct_groups.__module__], "_ROWS_AT_ONCE", at_once)
    rng = random.Random(f"{dtype} {at_once}")
    for _ in range(40):
        count = rng.choice([1, 2, 20, 100])
        near = keys_near(rng, BOUNDS[dtype], count, 1)
        keys = [rng.choice([*near, None] if rng.random() < 0.5 else near) for _ in range(4 * count)]
        if not any(key is not None for key in keys):
            continue
        summed = rng.choice(INTEGERS)
        # Of which no sum leaves 64 bits, nor 53.
        least, greatest = (max(-(2**31), BOUNDS[summed][0]), min(2**31, BOUNDS[summed][1]))
        rows = pl.DataFrame(
            {
                "k": of_type([*near, *keys], dtype),
                "v": pl.Series(
                    [
                        rng.choice([None, least, greatest, rng.randint(least, greatest)])
                        for _ in [*near, *keys]
                    ],
                    dtype=summed,
                ),
                "f": [
                    rng.choice([None, -0.0, 0.5, rng.uniform(-9, 9), float("inf"), float("nan")])
                    for _ in [*near, *keys]
                ],
            }
        )
        rows = rows.sample(fraction=1, shuffle=True, seed=rng.randrange(1000))
        aggregates = [pl.len().alias("n"), V.sum(), V.count().alias("c"), F.sum(), F.count().alias("d")]
        found, expected = groups_of(rows, *aggregates)
        assert found is not None
        assert found.schema == expected.schema
        assert_frame_equal(found.sort("k"), expected.sort("k"), rel_tol=1e-12)


def test_what_is_left_to_polars_by_its_values() -> None:
    def groups(**columns: object) -> pl.DataFrame | None:
        return groups_of(pl.DataFrame(columns), V.sum())[0]

    assert groups(k=[1, 2, 3], v=[1, 2, 3]) is not None
    assert groups(k=[1, 2, 4], v=[1, 2, 3]) is None
    assert groups(k=pl.Series([None, None], dtype=pl.Int64), v=[1, 2]) is None
    assert groups(k=[1, 1], v=[2**52, 1]) is None
    assert groups(k=[1, 1], v=[-(2**63), 1]) is None
    assert groups(k=[1, 1], v=[2**52 - 1, 1]) is not None
    empty = pl.Series([], dtype=pl.Int64)
    assert groups(k=empty, v=empty) is None


ROWWISE = [
    [pl.len()],
    [V.sum(), V.mean().alias("m")],
    [F.mean(), F.count().alias("c"), (V.sum() / F.sum()).alias("r")],
    [(V * 2 + K).sum().alias("x"), V.cast(pl.Int8, strict=False).sum().alias("y")],
    [pl.when(V % 3 == 0).then(F).sum().alias("x"), V.is_null().cast(pl.UInt32).sum().alias("y")],
]
OTHERS = [
    [V.min(), pl.len()],
    [V.filter(F > 2).sum()],
    [V.var()],
    [V.n_unique()],
    [V.cast(pl.Decimal(20, 2)).sum()],
    [V.cast(pl.Float32).sum()],
    [(V > 3).sum()],
    [V.cast(pl.Duration("ms")).sum()],
    [pl.lit(1).sum()],
    [V.first(), pl.len()],
]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("groups") / "rows.parquet"
    rng = random.Random(3)
    pl.DataFrame(
        {
            "k": [None if i % 97 == 0 else i // 3 for i in range(ROWS)],
            "v": [None if i % 11 == 0 else rng.randint(-100, 100) for i in range(ROWS)],
            "f": [None if i % 7 == 0 else rng.uniform(-1, 1) for i in range(ROWS)],
            "s": [str(i // 3) for i in range(ROWS)],
        }
    ).write_parquet(path, row_group_size=200)
    return path


def taken(query: pl.LazyFrame, nranks: int) -> int:
    """Compare with Polars; return how many chunks were grouped by direct addressing."""
    outcomes = assert_like_polars(query, nranks, IN_CHUNKS, ordered=False)
    return sum((outcome.paths.counts for outcome in outcomes), Counter())[paths.DIRECT]


@pytest.mark.parametrize("nranks", [1, 2, 3])
@pytest.mark.parametrize("key", [K, K.cast(pl.Int16), K.cast(pl.Date), (K * 2).alias("double")], ids=str)
def test_chunks_of_a_query(file: Path, key: pl.Expr, nranks: int) -> None:
    for aggregates in ROWWISE:
        assert taken(pl.scan_parquet(file).group_by(key).agg(aggregates), nranks)


def test_what_is_left_to_polars_by_its_form(file: Path) -> None:
    rows = pl.scan_parquet(file)
    for aggregates in OTHERS:
        assert not taken(rows.group_by("k").agg(aggregates), 2)
    assert not taken(rows.group_by("k", "v").agg(pl.len()), 2)
    assert not taken(rows.group_by("s").agg(pl.len()), 2)
    assert not taken(rows.group_by(K * 100_000).agg(pl.len()), 2)
    assert not taken(rows.group_by("k", maintain_order=True).agg(pl.len()), 2)


def test_sums_wrap_as_those_of_polars(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pl.DataFrame(
        {
            "k": [i // 8 for i in range(400)],
            "v": pl.Series([2**31 - 1 - i for i in range(400)], dtype=pl.Int32),
        }
    ).write_parquet(path, row_group_size=50)
    assert taken(pl.scan_parquet(path).group_by("k").agg(V.sum(), V.mean().alias("m")), 2)
