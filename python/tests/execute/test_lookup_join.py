"""Joins by lookup: a row of a copied side is found by the value of its key."""

from __future__ import annotations

import functools
import operator
import random
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest
from execute.compare import ORDINARY, assert_like_polars, compare_answers
from execute.integer_keys import BOUNDS, keys_near, of_type

from cudf_polars.execute.key_table import KeyTable, have_table
from cudf_polars.execute.run import QueryOutcome
from cudf_polars.lower.findings import LookupKey

pytestmark = pytest.mark.filterwarnings("ignore")

COPYING = replace(
    ORDINARY, broadcast_limit=1 << 20, small_limit=0, read_everywhere_limit=0, filter_keys=0, sample_least=0
)
"""Small sides are copied, and not read by every rank."""
IN_PARTITIONS = replace(COPYING, partitions=3)
READING = replace(ORDINARY, small_limit=0, read_everywhere_limit=4000, filter_keys=0)
"""Small sides are read by every rank."""
COPIED = {
    "inner": ("right", "left"),
    "left": ("right",),
    "right": ("left",),
    "semi": ("right",),
    "anti": ("right",),
}
VALUES: dict[str, pl.Series] = {
    "text": pl.Series(["", "a", None, "a text that is longer than a view of it"]),
    "category": pl.Series(["x", "y", None, "x"], dtype=pl.Categorical()),
    "choice": pl.Series(["x", "y", None, "x"], dtype=pl.Enum(["y", "x"])),
    "list": pl.Series([[1, None], [], None, [3]]),
    "array": pl.Series([[1, 2], [3, None], None, [5, 6]], dtype=pl.Array(pl.Int16, 2)),
    "struct": pl.Series([{"a": 1, "b": "x"}, {"a": None, "b": None}, None, {"a": 3, "b": "y"}]),
    "decimal": pl.Series(["1.50", "-2.25", None, "0.00"]).cast(pl.Decimal(12, 2)),
    "truth": pl.Series([True, False, None, True]),
    "bytes": pl.Series([b"", b"\0", None, b"abc"]),
    "nothing": pl.Series([None] * 4, dtype=pl.Null),
    "float": pl.Series([0.5, float("nan"), None, -0.0]),
    "wide": pl.Series([2**100, -1, None, 0], dtype=pl.Int128),
}


def by_lookup(outcomes: list[QueryOutcome]) -> bool:
    """Whether a join of the query was one by lookup."""
    return any(" joins by lookup" in outcome.explain() for outcome in outcomes)


# -- the table of keys -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", BOUNDS, ids=str)
def test_rows_are_found_as_a_dictionary_finds_them(dtype: pl.DataType) -> None:
    rng = random.Random(str(dtype))
    least, greatest = BOUNDS[dtype]
    for _ in range(60):
        keys: list[int | None] = list(
            keys_near(rng, BOUNDS[dtype], rng.choice([1, 2, 30, 100]), rng.choice([1, 2, 4]))
        )
        if rng.random() < 0.3:
            keys.sort()
        if rng.random() < 0.4:
            keys.insert(rng.randrange(len(keys) + 1), None)
        nulls_equal = rng.random() < 0.5
        table = KeyTable.of(of_type(keys, dtype), nulls_equal=nulls_equal)
        assert table is not None
        asked = [
            *keys,
            None,
            least,
            greatest,
            0,
            *(k + d for k in keys if k is not None for d in (-1, 1, 256, -(2**32))),
        ]
        asked = [k for k in asked if k is None or least <= k <= greatest]
        asked = rng.sample(asked, rng.choice([0, 1, len(asked) // 2, len(asked)]))
        rows = {key: row for row, key in enumerate(keys)}
        expected = [None if key is None and not nulls_equal else rows.get(key) for key in asked]
        found = table.find(of_type(asked, dtype))
        assert found.dtype == pl.UInt32
        assert found.to_list() == expected, (keys, asked)


def test_keys_that_have_no_table() -> None:
    def table(keys: list[int | None], **given: bool) -> KeyTable | None:
        return KeyTable.of(pl.Series(keys, dtype=pl.Int64), **{"nulls_equal": True, **given})

    assert table([]) is None
    assert table([None]) is None
    assert table([1, 2, 1]) is None
    assert table([3, 1, 3]) is None
    assert table([1, None, None]) is None
    assert table([0, 10**6]) is None
    assert table([-(2**63), 2**63 - 1]) is None
    assert table([1, None, None], nulls_equal=False) is not None
    assert table([1, 2, 1, None, None], unique=False) is not None
    assert table([7, 5, 6]) is not None
    dense = table([5, 6, 7])
    assert dense is not None
    assert dense.rows is None


class ThreadRanks:
    """Ranks that are threads, by which keys meet."""

    def __init__(self, count: int) -> None:
        self.barrier = threading.Barrier(count, timeout=60)
        self.told: list[Any] = [None] * count

    def of(self, rank: int) -> Any:
        """Return what a rank is given."""
        return SimpleNamespace(
            allgather_bytes=lambda value: self._gather(rank, value),
            merge_bits=lambda bits: bytearray(
                functools.reduce(lambda a, b: bytes(map(operator.or_, a, b)), self._gather(rank, bytes(bits)))
            ),
        )

    def _gather(self, rank: int, value: bytes) -> list[bytes]:
        self.told[rank] = value
        self.barrier.wait()
        told = list(self.told)
        self.barrier.wait()
        return told


def test_ranks_know_whether_all_their_keys_have_a_table() -> None:
    rng = random.Random(5)
    answers = Counter[bool]()
    for _ in range(150):
        dtype = rng.choice(list(BOUNDS))
        keys: list[int | None] = list(
            keys_near(rng, BOUNDS[dtype], rng.choice([0, 1, 3, 40]), rng.choice([1, 3, 7, 9]))
        )
        keys += rng.sample(keys, min(len(keys), rng.choice([0, 0, 0, 1])))
        keys += [None] * rng.choice([0, 0, 1, 2])
        rng.shuffle(keys)
        key = LookupKey("k", nulls_equal=rng.random() < 0.5, unique=rng.random() < 0.7)
        table = KeyTable.of(of_type(keys, dtype), nulls_equal=key.nulls_equal, unique=key.unique)
        nranks = rng.choice([1, 2, 3])
        ends = [0, *sorted(rng.randint(0, len(keys)) for _ in range(nranks - 1)), len(keys)]
        ranks = ThreadRanks(nranks)

        def asked(rank: int) -> bool:
            mine = of_type(keys[ends[rank] : ends[rank + 1]], dtype)  # noqa: B023
            half = mine.len() // 2
            return have_table(iter([mine[:half], mine[half:]]), key, ranks.of(rank))  # noqa: B023

        with ThreadPoolExecutor(nranks) as pool:
            assert list(pool.map(asked, range(nranks))) == [table is not None] * nranks, (keys, dtype, key)
        answers[table is not None] += 1
    assert min(answers.values()) > 30


# -- joins of all kinds --------------------------------------------------------------------------------------------


def side(rng: random.Random, keys: pl.Series, key: str, names: list[str]) -> pl.DataFrame:
    """Return rows with these keys and columns of random types."""
    columns = [keys.alias(key)]
    for name in names:
        values = VALUES[rng.choice(list(VALUES))] if rng.random() < 0.7 else pl.Series(range(4))
        rows = pl.Series([rng.randrange(4) for _ in range(keys.len())], dtype=pl.UInt32)
        columns.append(values.gather(rows).alias(name))
    rng.shuffle(columns)
    return pl.DataFrame(columns)


def random_join(rng: random.Random, folder: Path) -> tuple[pl.LazyFrame, bool, str]:
    """Return a join, whether its keys allow a lookup, and what it is."""
    how = rng.choice(list(COPIED))
    found = rng.choice(COPIED[how])
    dtype = rng.choice(list(BOUNDS))
    # Rows are compared as Python's values, which has no dates far away.
    least, greatest = (-20_000, 20_000) if dtype.is_temporal() else BOUNDS[dtype]
    keys: list[int | None] = list(
        keys_near(rng, (least, greatest), rng.choice([1, 5, 40]), rng.choice([1, 1, 3]))
    )
    nulls_equal = rng.random() < 0.4
    kinds = ["null", "nulls", "twice", "far", "empty", "plain", "plain", "plain", "plain"]
    kind = rng.choice(kinds)
    allowed = True
    if kind == "empty":
        keys, allowed = [], False
    elif kind == "null":
        keys.append(None)
    elif kind == "nulls":
        keys = [None, None, *keys]
        allowed = how in ("semi", "anti") or not nulls_equal
    elif kind == "twice":
        keys.append(keys[0])
        allowed = how in ("semi", "anti")
    elif kind == "far" and len(keys) < 25:
        keys += [least, greatest] if least not in keys and greatest not in keys else []
        known = [key for key in keys if key is not None]
        allowed = max(known) - min(known) < 8 * len(known)
    asked = [k for k in {*keys, least, greatest, 0, 1, None} if k is None or least <= k <= greatest]
    near: list[int | None] = [k + 1 for k in asked if k is not None and k < greatest]
    others = [rng.choice(asked + near) for _ in range(rng.choice([1, 60, 700]))]
    if rng.random() < 0.1:
        others = [None] * len(others)
    same_name = rng.random() < 0.5
    names = ("k", "k" if same_name else "j")
    small = side(rng, of_type(keys, dtype), names[1], rng.choice([[], ["a"], ["a", "b", "c"]]))
    large = side(
        rng,
        of_type(others, dtype),
        names[0],
        rng.choice([["a"], ["b", "d", "e"], ["j" if not same_name else "a"]]),
    )
    number = rng.randrange(10**9)
    large = large.with_columns(n=pl.int_range(large.height)).sample(fraction=1, shuffle=True, seed=number)
    for name, frame in (("small", small), ("large", large)):
        frame.write_parquet(folder / f"{number}_{name}.parquet", row_group_size=97)
    lazy = {name: pl.scan_parquet(folder / f"{number}_{name}.parquet") for name in ("small", "large")}
    given: dict[str, Any] = {"how": how, "nulls_equal": nulls_equal}
    given["coalesce"] = rng.choice([None, True, False]) if how not in ("semi", "anti") else None
    given["maintain_order"] = rng.choice(["none", "left" if found == "right" else "right"])
    if rng.random() < 0.3:
        given["suffix"] = "_other"
    left, right = (lazy["large"], lazy["small"]) if found == "right" else (lazy["small"], lazy["large"])
    on = names if found == "right" else names[::-1]
    query = left.join(right, left_on=on[0], right_on=on[1], **given)
    return query, allowed, f"{kind} {dtype} {given} {found} {keys}"


def finished(rng: random.Random, query: pl.LazyFrame) -> pl.LazyFrame:
    """Return a query, or some of its columns or rows."""
    names = query.collect_schema().names()
    if rng.random() < 0.3:
        return query.select(rng.sample(names, rng.randint(1, len(names))))
    if rng.random() < 0.2:
        return query.filter(pl.col(rng.choice(names)).is_not_null())
    return query


@pytest.mark.parametrize("options", [COPYING, IN_PARTITIONS, READING], ids=["copied", "partitions", "read"])
def test_joins_are_those_of_polars(options: Any, tmp_path: Path) -> None:
    looked_up = could = 0
    for seed in range(60):
        rng = random.Random(seed)
        query, allowed, what = random_join(rng, tmp_path)
        query = finished(rng, query)
        nranks = 1 + seed % 3
        # Rows of the other side that match one row are in no order.
        ordered = allowed and "maintain_order': 'none" not in what
        try:
            outcomes = assert_like_polars(query, nranks, options, ordered=ordered)
        except AssertionError as error:
            raise AssertionError(f"seed {seed} on {nranks} ranks: {what}") from error
        looked_up += by_lookup(outcomes)
        could += allowed
    assert looked_up > could / 5  # in the others both sides are read by every rank, or one has no rows


# -- what takes the way, and what does not --------------------------------------------------------------------------


@pytest.fixture
def star(tmp_path: Path) -> dict[str, pl.LazyFrame]:
    """Return a table of facts, and two that its keys refer to."""
    rng = random.Random(7)
    tables = {
        "facts": pl.DataFrame(
            {
                "n": range(5000),
                "shop": [rng.randrange(50) for _ in range(5000)],
                "day": [rng.randrange(1000, 1030) for _ in range(5000)],
            }
        ),
        "shops": pl.DataFrame({"shop": rng.sample(range(50), 50)}).with_columns(
            city="city " + pl.col("shop").cast(pl.String), size=pl.col("shop") % 3
        ),
        "days": pl.DataFrame({"day": range(1000, 1030)}).with_columns(week=pl.col("day") // 7),
    }
    for name, frame in tables.items():
        frame.write_parquet(tmp_path / f"{name}.parquet", row_group_size=700)
    return {name: pl.scan_parquet(tmp_path / f"{name}.parquet") for name in tables}


@pytest.mark.parametrize("options", [COPYING, IN_PARTITIONS, READING], ids=["copied", "partitions", "read"])
def test_a_star_is_joined_by_lookup(options: Any, star: dict[str, pl.LazyFrame]) -> None:
    query = star["facts"].join(star["shops"], on="shop").join(star["days"], on="day")
    for form in (query, query.group_by("city", "week").agg(pl.col("n").sum(), pl.len())):
        outcomes = assert_like_polars(form, 2, options, ordered=False)
        for outcome in outcomes:
            assert "2 joins by lookup" in outcome.explain()
        assert outcomes[0].paths.counts["a join by lookup"] > 0


@pytest.mark.parametrize("options", [COPYING, IN_PARTITIONS], ids=["copied", "partitions"])
def test_groups_of_a_window_are_found_by_lookup(options: Any, star: dict[str, pl.LazyFrame]) -> None:
    share = pl.col("n") / pl.col("n").sum().over("shop")
    query = star["facts"].with_columns(pl.when(pl.col("shop") > 2).then("shop").alias("shop"))
    for form in (
        query.select("n", share=share),
        query.with_columns(share=share, most=pl.col("n").max().over("day")),
    ):
        outcomes = assert_like_polars(form, 2, options)
        assert by_lookup(outcomes), outcomes[0].explain()


@pytest.mark.parametrize(
    "form",
    [
        lambda t: t["facts"].join(t["shops"].filter(pl.col("size") == 1), on="shop"),
        lambda t: t["facts"].filter(pl.col("n") % 5 == 1).join(t["shops"], on="shop"),
        lambda t: (
            t["facts"].join(t["shops"], on="shop").join(t["days"].filter(pl.col("week") == 143), on="day")
        ),
        lambda t: t["facts"].join(t["shops"], on=pl.col("shop") + 1),
        lambda t: t["facts"].join(t["shops"], on="shop", how="full"),
        lambda t: t["facts"].join(t["shops"], on="shop", validate="m:1"),
        lambda t: t["facts"].join(t["shops"], left_on=["shop", "day"], right_on=["shop", "size"]),
        lambda t: t["facts"].join(t["shops"].with_columns(pl.col("shop").cast(pl.Int32)), on="shop"),
        lambda t: t["facts"].join(t["shops"].with_columns(pl.col("shop") * 100), on="shop", how="left"),
        lambda t: t["facts"].join(pl.concat([t["shops"], t["shops"]]), on="shop", how="left"),
        lambda t: (
            t["facts"].join(t["shops"], left_on="city", right_on="city", how="left")
            if "city" in t["facts"].collect_schema()
            else t["shops"].join(t["shops"], on="city")
        ),
    ],
)
def test_other_joins_are_left_to_polars(
    form: Callable[[dict[str, pl.LazyFrame]], pl.LazyFrame], star: dict[str, pl.LazyFrame]
) -> None:
    outcomes = assert_like_polars(form(star), 2, COPYING, ordered=False)
    assert not by_lookup(outcomes), outcomes[0].explain()


def test_a_copied_side_that_is_no_lookup_is_read_once(star: dict[str, pl.LazyFrame]) -> None:
    twice = pl.concat([star["shops"], star["shops"]]).with_columns(pl.col("shop") * 2)
    query = star["facts"].join(twice, on="shop", how="left")
    for options in (COPYING, IN_PARTITIONS):
        outcomes = assert_like_polars(query, 3, options, ordered=False)
        assert "BROADCAST" in outcomes[0].explain()


@pytest.mark.parametrize("name", VALUES)
def test_values_of_all_types(name: str, star: dict[str, pl.LazyFrame], tmp_path: Path) -> None:
    rows = pl.Series([n % 4 for n in range(45)], dtype=pl.UInt32)
    frame = pl.DataFrame({"shop": range(2, 47)}).with_columns(VALUES[name].gather(rows).alias("value"))
    frame.write_parquet(tmp_path / "values.parquet")
    query = star["facts"].join(pl.scan_parquet(tmp_path / "values.parquet"), on="shop", how="left")
    for rows_of in (query, query.filter(pl.col("value").is_null())):
        outcomes = assert_like_polars(rows_of, 2, COPYING, ordered=False)
        assert by_lookup(outcomes), outcomes[0].explain()
        compare_answers(rows_of.collect(), rows_of.collect(engine="streaming"), ordered=False)


# -- sides that are copied only because their join needs no hash table -----------------------------------------

_MEMORY = 1 << 20
IN_LITTLE_MEMORY = replace(COPYING, broadcast_limit=0, memory=_MEMORY, partitions=3)
"""The limits of what is copied follow from the memory."""


@pytest.fixture
def parts(tmp_path: Path) -> dict[str, pl.LazyFrame]:
    """Return a large table, and one that takes more than a tenth of the memory and less than a third."""
    rng = random.Random(3)
    tables = {
        "lines": pl.DataFrame({"n": range(60_000), "part": [rng.randrange(-9, 4000) for _ in range(60_000)]}),
        "parts": pl.DataFrame({"part": rng.sample(range(4000), 4000)}).with_columns(
            text="the text of part " + pl.col("part").cast(pl.String)
        ),
    }
    assert _MEMORY / 10 < tables["parts"].estimated_size() < _MEMORY / 4
    for name, frame in tables.items():
        frame.write_parquet(tmp_path / f"{name}.parquet", row_group_size=5000)
    return {name: pl.scan_parquet(tmp_path / f"{name}.parquet") for name in tables}


@pytest.mark.parametrize("nranks", [1, 2, 3])
@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
def test_larger_sides_are_copied_for_a_lookup(how: Any, nranks: int, parts: dict[str, pl.LazyFrame]) -> None:
    query = parts["lines"].join(parts["parts"], on="part", how=how)
    outcomes = assert_like_polars(query, nranks, IN_LITTLE_MEMORY, ordered=False)
    assert by_lookup(outcomes), outcomes[0].explain()
    assert "SHUFFLE" not in outcomes[0].explain()


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: rows.with_columns(pl.col("part") * 100),  # too far apart
        lambda rows: rows.with_columns(pl.col("part") // 2),  # each twice
        lambda rows: rows.with_columns(pl.col("part").cast(pl.Float64)),
    ],
    ids=["far", "twice", "float"],
)
def test_they_move_where_a_hash_table_would_be_needed(
    change: Callable[[pl.LazyFrame], pl.LazyFrame], parts: dict[str, pl.LazyFrame]
) -> None:
    query = change(parts["lines"]).join(change(parts["parts"]), on="part", how="left")
    outcomes = assert_like_polars(query, 2, IN_LITTLE_MEMORY, ordered=False)
    assert not by_lookup(outcomes)
    assert "SHUFFLE" in outcomes[0].explain(), outcomes[0].explain()
