"""``over`` with several keys in ``order_by``: run on all ranks, in the order that Polars has."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl
import pytest
from execute.compare import PARTITIONED, TINY, compare_answers, run

from cudf_polars.execute.options import ExecutionOptions

ROWS = 400
VALUES: Mapping[str, pl.Expr] = {
    "cum_sum": pl.col("w").cum_sum(),
    "sum": pl.col("w").sum(),
    "number": pl.int_range(1, pl.len() + 1),
    "shift": pl.col("w").shift(),
    "first": pl.col("w").first(),
    "last": pl.col("u").last(),
    "head": pl.col("w").head(1).first(),
    "rank": pl.col("w").rank("ordinal"),
    "list": pl.col("w").implode(),
}
GATHERED_WITHOUT_KEYS = ("number", "head")
ORDERS: Sequence[tuple[list[str | pl.Expr], bool, bool]] = (
    (["k", "u"], False, False),
    (["v", "u"], True, False),
    ([pl.col("k") * 2, pl.col("u")], False, True),
    (["s", "v", "u"], True, True),
)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    chance = random.Random(2)
    path = tmp_path_factory.mktemp("rows") / "rows.parquet"
    pl.DataFrame(
        {
            "k": [chance.choice([None, 1, 2, 3, 4, 5, 6]) for _ in range(ROWS)],
            "v": [chance.choice([None, 0.5, 1.5, -2.0, float("nan")]) for _ in range(ROWS)],
            "s": [chance.choice(["a", "b", None, "c"]) for _ in range(ROWS)],
            "u": chance.sample(range(ROWS), ROWS),
            "w": range(ROWS),
        }
    ).write_parquet(path, row_group_size=37)
    return path


@pytest.mark.parametrize("keys", [["s"], ["s", "k"], None], ids=["one", "two", "none"])
@pytest.mark.parametrize("values", list(VALUES))
def test_windows(path: Path, values: str, keys: list[str] | None) -> None:
    if values == "list" and keys is None:
        pytest.skip("a list of all rows has one row, which no column takes")
    for order_by, descending, nulls_last in ORDERS:
        window = VALUES[values].over(keys, order_by=order_by, descending=descending, nulls_last=nulls_last)
        query = pl.scan_parquet(path).with_columns(z=window)
        expected = query.collect()
        for nranks, options in ((2, TINY), (3, PARTITIONED), (2, ExecutionOptions())):
            actual, outcomes = run(query, nranks, options)
            compare_answers(actual, expected, ordered=False)
            if keys is not None or values not in GATHERED_WITHOUT_KEYS:
                assert not outcomes[0].fallbacks
