"""Range exchanges: rank order is the sorted order, whatever the keys' types and flags."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from cudf_polars.lower.physical import SortKey
from cudf_polars.lower.ranges import boundary_frame, destination, is_comparable, key_columns

ROWS = st.lists(
    st.tuples(
        st.sampled_from([None, -2, 0, 3]),
        st.sampled_from([None, float("nan"), -0.0, 0.0, 1.5, float("-inf")]),
        st.sampled_from([None, "", "a", "ab"]),
    ),
    max_size=40,
)
FLAGS = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=3, max_size=3)


@given(ROWS, FLAGS, st.integers(2, 12), st.permutations(["i", "f", "s"]))
def test_parts_in_rank_order_are_sorted(
    rows: list[tuple[object, ...]], flags: list[tuple[bool, bool]], parts: int, order: list[str]
) -> None:
    frame = pl.DataFrame(rows, schema={"i": pl.Int64, "f": pl.Float64, "s": pl.String}, orient="row")
    frame = frame.select(order)
    keys = [SortKey(name, *flag) for name, flag in zip(frame.columns, flags, strict=True)]
    sample = frame.select(key_columns(keys, frame.schema)).with_columns(w=pl.lit(1.0))
    boundaries = boundary_frame(sample, keys, "w", parts)
    assert boundaries.height < parts
    placed = frame.with_columns(destination(keys, boundaries, frame.schema).alias("to"))
    searched = frame.select(destination(keys, boundaries, frame.schema, compared=-1).alias("to"))
    compared = frame.select(destination(keys, boundaries, frame.schema, compared=parts).alias("to"))
    if boundaries.height:
        assert searched["to"].to_list() == compared["to"].to_list()
    assert placed["to"].dtype == pl.UInt32
    assert placed["to"].null_count() == 0
    by = {"descending": [k.descending for k in keys], "nulls_last": [k.nulls_last for k in keys]}

    def ordered(part: pl.DataFrame) -> pl.DataFrame:
        return part.sort(order, maintain_order=True, **by)

    together = pl.concat([ordered(placed.filter(pl.col("to") == to)) for to in range(parts)])
    assert_frame_equal(together.drop("to"), ordered(frame))


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
    "integers": (pl.UInt64(), [0, 1, 7, 2**63 + 1, 2**64 - 1]),
    "large integers": (pl.Int128(), [-(2**100), -1, 0, 5, 2**99]),
    "floats": (pl.Float32(), [float("nan"), -0.0, 0.0, 1.5, float("inf"), float("-inf")]),
    "decimals": (
        pl.Decimal(20, 2),
        [Decimal("-1.50"), Decimal("1.25"), Decimal("1000000000000.01"), Decimal(0)],
    ),
    "truths": (pl.Boolean(), [True, False]),
    "texts": (pl.String(), ["", "a", "ab", "é", "z" * 40]),
    "bytes": (pl.Binary(), [b"", b"\x00", b"a", b"\xff" * 20]),
    "dates": (pl.Date(), [dt.date(1900, 1, 1), dt.date(2024, 2, 29), dt.date(2024, 3, 1)]),
    "times": (pl.Datetime("ns", "UTC"), [dt.datetime(1960, 1, d, tzinfo=dt.UTC) for d in range(1, 6)]),
    "choices": (pl.Enum(["z", "a", "m"]), ["z", "a", "m"]),
    "categories": (pl.Categorical(), ["z", "a", "m", ""]),
}


@pytest.mark.parametrize("nulls_last", [False, True])
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("kind", VALUES)
def test_a_row_is_found_where_it_is_by_comparisons(kind: str, descending: bool, nulls_last: bool) -> None:
    dtype, values = VALUES[kind]
    rng = random.Random(f"{kind} {descending} {nulls_last}")
    frame = pl.DataFrame(
        {name: pl.Series([rng.choice([None, *values]) for _ in range(500)], dtype=dtype) for name in "ab"}
    )
    keys = [SortKey("a", descending, nulls_last), SortKey("b", not descending, nulls_last)]
    sample = frame.head(100).select(key_columns(keys, frame.schema)).with_columns(w=pl.lit(1.0))
    boundaries = boundary_frame(sample, keys, "w", 30)
    assert boundaries.height > 2
    searched, compared = (
        frame.lazy().select(to=destination(keys, boundaries, frame.schema, compared=most)).collect()
        for most in (0, 100)
    )
    assert searched["to"].to_list() == compared["to"].to_list()
