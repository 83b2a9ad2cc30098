"""Joins whose keys Polars checks: an error wherever Polars raises one, although a rank may have no rows of one side."""

from __future__ import annotations

import itertools
from typing import Literal, TypeAlias

import polars as pl
import pytest
from execute.local_transport import LocalTransport, run_ranks
from polars.testing import assert_frame_equal

from cudf_polars.execute.options import ExecutionOptions
from cudf_polars.execute.run import run_query

Check: TypeAlias = Literal["1:m", "m:1", "1:1"]
How: TypeAlias = Literal["inner", "left", "full"]

SIDES = {
    "unique": [(k, k % 3) for k in range(12)],
    "one doubled": [(7, 1), *((k, k % 3) for k in range(12))],
    "one key, doubled": [(40, 1), (40, 1)],
    "nulls doubled": [(None, 1), (None, 1), (3, None), (3, None), (2, 2)],
    "empty": [],
}


def _frame(name: str, value: str) -> pl.LazyFrame:
    rows = [(*keys, place) for place, keys in enumerate(SIDES[name])]
    return pl.LazyFrame(rows, schema={"k": pl.Int64, "j": pl.Int64, value: pl.Int64}, orient="row")


def _answer(query: pl.LazyFrame) -> pl.DataFrame | str:
    try:
        return query.collect()
    except pl.exceptions.ComputeError as error:
        return str(error).splitlines()[0]


@pytest.mark.parametrize(("nranks", "partitions"), [(2, 1), (3, 4)])
@pytest.mark.parametrize(
    ("how", "keys", "nulls_equal"),
    [
        ("inner", ["k", "j"], False),
        ("inner", ["k", "j"], True),
        ("inner", ["k"], False),
        ("left", ["k", "j"], False),
        (
            "full",
            ["k", "j"],
            True,
        ),  # without nulls_equal it depends on the sizes of both sides if nulls are doubles
    ],
)
def test_as_in_polars(nranks: int, partitions: int, how: How, keys: list[str], nulls_equal: bool) -> None:
    checks: tuple[Check, ...] = ("1:m", "m:1", "1:1")
    options = ExecutionOptions(broadcast_limit=0, small_limit=0, partitions=partitions)
    found = set()
    for left, right, check in itertools.product(SIDES, SIDES, checks):

        def query(a: pl.LazyFrame, b: pl.LazyFrame, check: Check = check) -> pl.LazyFrame:
            return a.join(b, on=keys, how=how, validate=check, nulls_equal=nulls_equal)

        expected = _answer(query(_frame(left, "x"), _frame(right, "y")))
        found.add(isinstance(expected, str))

        def work(
            transport: LocalTransport, left: str = left, right: str = right, check: Check = check
        ) -> pl.DataFrame:
            part = slice(transport.rank, None, transport.nranks)
            mine = [_frame(name, value).collect()[part].lazy() for name, value in ((left, "x"), (right, "y"))]
            return run_query(query(*mine, check), transport, options=options).frame

        case = f"{left} {check} {right}"
        if isinstance(expected, str):
            with pytest.raises(pl.exceptions.ComputeError, match=expected):
                print(case, pl.concat(run_ranks(nranks, work)))
        else:
            assert_frame_equal(pl.concat(run_ranks(nranks, work)), expected, check_row_order=False)
    assert found == {True, False}
