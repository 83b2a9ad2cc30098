"""Range exchanges: rank order is the sorted order, whatever the keys' types and flags."""

from __future__ import annotations

import bisect
import datetime as dt
from decimal import Decimal

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from cudf_polars.lower.physical import SortKey
from cudf_polars.lower.ranges import boundary_frame, destination, is_comparable, key_columns, range_of

ROWS = st.lists(
    st.tuples(
        st.sampled_from([None, -2, 0, 3]),
        st.sampled_from([None, float("nan"), -0.0, 0.0, 1.5, float("-inf")]),
        st.sampled_from([None, "", "a", "ab"]),
    ),
    max_size=40,
)
FLAGS = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=3, max_size=3)


@given(ROWS, FLAGS, st.integers(2, 5))
def test_parts_in_rank_order_are_sorted(
    rows: list[tuple[object, ...]], flags: list[tuple[bool, bool]], parts: int
) -> None:
    frame = pl.DataFrame(rows, schema={"i": pl.Int64, "f": pl.Float64, "s": pl.String}, orient="row")
    keys = [SortKey(name, *flag) for name, flag in zip(frame.columns, flags, strict=True)]
    sample = frame.select(key_columns(keys, frame.schema)).with_columns(w=pl.lit(1.0))
    boundaries = boundary_frame(sample, keys, "w", parts)
    assert boundaries.height < parts
    placed = frame.with_columns(destination(keys, boundaries, frame.schema).alias("to"))
    assert placed["to"].dtype == pl.UInt32
    assert placed["to"].null_count() == 0
    by = {"descending": [k.descending for k in keys], "nulls_last": [k.nulls_last for k in keys]}

    def ordered(part: pl.DataFrame) -> pl.DataFrame:
        return part.sort("i", "f", "s", maintain_order=True, **by)

    together = pl.concat([ordered(placed.filter(pl.col("to") == to)) for to in range(parts)])
    assert_frame_equal(together.drop("to"), ordered(frame))


@given(
    st.lists(st.integers(-100, 100), max_size=12),
    st.lists(st.none() | st.integers(-120, 120), max_size=40),
    st.sampled_from([pl.Int8(), pl.Int64(), pl.Date()]),
)
def test_ranges_between_given_values(
    boundaries: list[int], values: list[int | None], dtype: pl.DataType
) -> None:
    """Two boundaries may be the same: there is nothing between them."""
    boundaries.sort()
    firsts = pl.Series(boundaries, dtype=pl.Int32).cast(dtype).to_list()
    frame = pl.Series("k", values, dtype=pl.Int32).cast(dtype).to_frame()
    found = frame.with_columns(range_of("k", firsts, frame.schema).alias("to"))["to"]
    assert found.dtype == pl.UInt32
    assert found.to_list() == [
        0 if value is None else bisect.bisect_right(boundaries, value) for value in values
    ]


def test_parts_are_about_equal() -> None:
    frame = pl.DataFrame({"i": range(1000)})
    keys = [SortKey("i", False, False)]
    sample = frame.select(key_columns(keys, frame.schema)).gather_every(10).with_columns(w=pl.lit(10.0))
    placed = frame.select(destination(keys, boundary_frame(sample, keys, "w", 4), frame.schema).alias("to"))
    counts = placed.group_by("to").len().get_column("len").to_list()
    assert len(counts) == 4
    assert max(counts) <= 270


def test_weights_count() -> None:
    keys = [SortKey("0", False, False)]
    sample = pl.DataFrame({"0": [1, 2, 3, 4], "w": [97.0, 1.0, 1.0, 1.0]})
    assert boundary_frame(sample, keys, "w", 2)["0"].to_list() == [1]


def test_equal_keys_share_a_part() -> None:
    frame = pl.DataFrame({"f": [-0.0, 0.0] * 50 + [1.0] * 3})
    keys = [SortKey("f", False, False)]
    sample = frame.select(key_columns(keys, frame.schema)).with_columns(w=pl.lit(1.0))
    placed = frame.with_columns(
        destination(keys, boundary_frame(sample, keys, "w", 3), frame.schema).alias("to")
    )
    assert placed.filter(pl.col("f") == 0)["to"].n_unique() == 1


def test_nested_keys_have_no_ranges() -> None:
    assert not is_comparable(pl.List(pl.Int8))
    assert not is_comparable(pl.Null())
    assert is_comparable(pl.Decimal(10, 2))


VALUES: dict[str, tuple[pl.DataType, list[object]]] = {
    "integers": (pl.Int64(), [-(2**63), -2, 0, 3, 2**63 - 1]),
    "bytes": (pl.UInt8(), [0, 1, 128, 255]),
    "floats": (pl.Float64(), [float("-inf"), -0.0, 0.0, 1.5, float("inf"), float("nan")]),
    "texts": (pl.String(), ["", "a", "ab", "é", "b"]),
    "binary": (pl.Binary(), [b"", b"a", b"\xff"]),
    "decimals": (pl.Decimal(10, 2), [Decimal("-1.25"), Decimal(0), Decimal("3.5")]),
    "dates": (pl.Date(), [dt.date(1969, 1, 1), dt.date(2024, 2, 29)]),
    "times": (pl.Datetime("ns"), [dt.datetime(1969, 1, 1), dt.datetime(2024, 2, 29)]),
    "booleans": (pl.Boolean(), [False, True]),
    "enums": (pl.Enum(["x", "a"]), ["x", "a"]),
    "categories": (pl.Categorical(), ["x", "a", "b"]),
}


@pytest.mark.parametrize("kind", VALUES)
@given(data=st.data())
def test_searched_boundaries_are_those_compared(kind: str, data: st.DataObject) -> None:
    dtype, values = VALUES[kind]
    some = st.lists(st.sampled_from([None, *values]), min_size=1, max_size=30)
    frame = pl.DataFrame({"k": data.draw(some)}, schema={"k": dtype})
    keys = [SortKey("k", data.draw(st.booleans()), data.draw(st.booleans()))]
    sample = frame.select(key_columns(keys, frame.schema)).with_columns(w=pl.lit(1.0))
    boundaries = boundary_frame(sample, keys, "w", data.draw(st.integers(2, 9)))
    rows = pl.DataFrame({"k": [None, *values]}, schema={"k": dtype})
    for height in range(boundaries.height + 1):
        some_boundaries = boundaries.head(height)
        placed = rows.select(
            compared=destination(keys, some_boundaries, rows.schema),
            searched=destination(keys, some_boundaries, rows.schema, by_search=True),
        )
        assert placed["searched"].to_list() == placed["compared"].to_list()


def test_boundaries_have_no_more_keys_than_they_need() -> None:
    keys = [SortKey("i", False, False), SortKey("j", False, False)]
    rows = pl.DataFrame({"i": range(1000), "j": range(1000)})
    sample = rows.select(key_columns(keys, rows.schema)).with_columns(w=pl.lit(1.0))
    assert boundary_frame(sample, keys, "w", 4).columns == ["0"]
    # So many rows have the same first key that it takes both to split them.
    tied = sample.with_columns(pl.col("0") // 100)
    boundaries = boundary_frame(tied, keys, "w", 4)
    assert boundaries.columns == ["0", "1"]
    assert boundaries.height == 3


def test_of_many_parts_one_may_be_larger() -> None:
    """Where values of the first key fill no more than a part, rows are compared by it alone."""
    sample = pl.DataFrame({"0": [n % 100 for n in range(3000)], "1": range(3000)}).with_columns(w=pl.lit(1.0))
    keys = [SortKey("a", False, False), SortKey("b", False, False)]
    assert boundary_frame(sample, keys, "w", 80).columns == ["0"]
    assert boundary_frame(sample, keys, "w", 300).columns == ["0", "1"]
    assert boundary_frame(sample, keys, "w", 30).columns == ["0", "1"]


@pytest.mark.parametrize("count", [1, 2, 255, 256, 600])
def test_many_boundaries_of_two_keys(count: int) -> None:
    boundaries = pl.DataFrame({"0": [n // 3 for n in range(count)], "1": [n % 3 * 10 for n in range(count)]})
    keys = [SortKey("a", False, False), SortKey("b", False, False)]
    rows = pl.DataFrame({"a": [n * 7 % 210 for n in range(500)], "b": [n % 37 for n in range(500)]})
    target = destination(keys, boundaries, rows.schema, by_search=True)
    firsts = boundaries.rows()
    expected = [bisect.bisect_right(firsts, row) for row in rows.rows()]
    assert rows.select(target).to_series().to_list() == expected
