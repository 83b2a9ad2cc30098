"""Ranks over whole tables: distributed, and Polars' own answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import polars as pl
import pytest
from execute.compare import ORDINARY, PARTITIONED, TINY, assert_like_polars
from execute.random_tables import five_file_tables

from cudf_polars.execute.options import ExecutionOptions

I, X, F, S, D, B, E = (pl.col(name) for name in "ixfsdbe")  # noqa: E741
COLUMNS: Mapping[str, tuple[pl.DataType, Sequence[object]]] = {
    "x": (pl.Int64(), range(5)),
    "f": (pl.Float64(), [float("nan"), float("inf"), 0.0, -0.0, -2.0]),
    "s": (pl.String(), ["a", "b", ""]),
    "d": (pl.Datetime("us"), [10**15, 10**15 + 7]),
    "b": (pl.Boolean(), [True, False]),
    "e": (pl.Enum(["z", "a"]), ["z", "a"]),
}
METHODS = ("average", "min", "max", "dense", "ordinal")


def _every(value: pl.Expr, **options: bool) -> Callable[[pl.LazyFrame], pl.LazyFrame]:
    return lambda lf: lf.with_columns(value.rank(method, **options).alias(method) for method in METHODS)


QUERIES: Mapping[str, Callable[[pl.LazyFrame], pl.LazyFrame]] = {
    "integers": _every(X),
    "integers, the greatest first": _every(X, descending=True),
    "floats": _every(F),
    "floats, the greatest first": _every(F, descending=True),
    "text": _every(S),
    "times": _every(D),
    "booleans": _every(B, descending=True),
    "enumeration": _every(E),
    "of what is computed": lambda lf: lf.select((I % 7).rank("dense").alias("r"), I),
    "as a filter": lambda lf: lf.filter(X.rank("ordinal") <= 5),
    "of several columns": lambda lf: lf.select(X.rank() + F.rank(descending=True), S.rank("min")),
    "beside rows in order and windows": lambda lf: lf.select(
        X.rank("min").cum_sum(), w=I.sum().over("s"), d=I.diff()
    ),
}


table = five_file_tables(COLUMNS)


@pytest.mark.parametrize(
    ("nranks", "options"),
    [(3, TINY), (2, ORDINARY), (2, PARTITIONED)],
    ids=["tiny", "ordinary", "partitioned"],
)
@pytest.mark.parametrize("name", QUERIES)
def test_ranks(table: pl.LazyFrame, name: str, nranks: int, options: ExecutionOptions) -> None:
    for query in (QUERIES[name](table), QUERIES[name](table.filter(I > 3))):
        for outcome in assert_like_polars(query, nranks, options):
            assert not outcome.fallbacks


def test_random_ranks_are_gathered(table: pl.LazyFrame) -> None:
    outcomes = assert_like_polars(table.select(I.rank("random", seed=1).max()), 2)
    assert outcomes[0].fallbacks
