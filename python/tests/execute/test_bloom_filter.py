"""Bloom filters: no key is missed, few others are found, and the filters of several ranks become one."""

from __future__ import annotations

import ctypes
import random

import polars as pl
import pytest
from execute.local_transport import run_ranks

from cudf_polars.execute.bloom_filter import BloomFilter
from cudf_polars.execute.keys import keys_of_rank, meet
from cudf_polars.lower.findings import KeyLimit
from cudf_polars.plan.plugin import find_library, plugin_expr


def numbers(first: int, count: int) -> pl.Series:
    """Return so many different integers; those of other ranges of ``first`` are others."""
    return pl.int_range(first, first + count, eager=True).alias("k")


def found(made: BloomFilter, keys: pl.Series, *, streaming: bool = False) -> int:
    """Return how many of the keys may be in a filter."""
    rows = keys.to_frame().lazy().select(made.may_contain(pl.col(keys.name)).sum())
    return int(rows.collect(engine="streaming" if streaming else "in-memory").item())


@pytest.mark.parametrize("count", [0, 1, 2, 21, 22, 1000, 100_000])
def test_every_key_and_few_others(count: int) -> None:
    made = BloomFilter.sized(count)
    assert 12 * count <= 8 * len(made.bits) < max(24 * count, 257)
    keys, others = numbers(0, count), numbers(1 << 40, 100_000)
    made.insert(keys)
    assert found(made, keys) == found(made, keys, streaming=True) == count
    assert found(made, others) <= 1000
    assert abs(made.count() - count) <= max(1, count // 50)


def test_keys_in_chunks_and_slices() -> None:
    made = BloomFilter.sized(3000)
    keys = pl.concat([numbers(0, 1000), numbers(1000, 1000).slice(3, 500), numbers(9000, 1)], rechunk=False)
    made.insert(keys)
    assert found(made, keys) == keys.len()
    assert found(made, keys.slice(997, 100)) == 100
    column = pl.concat([numbers(1 << 30, 13), keys.slice(990, 20), keys.clear()], rechunk=False)
    assert found(made, column) == 20
    # A bit for each, in the right places.
    rows = column.to_frame().select(made.may_contain(pl.col("k")))["k"]
    assert rows.to_list() == [False] * 13 + [True] * 20
    assert rows.name == "k"


def test_a_filter_becomes_smaller() -> None:
    large = BloomFilter.sized(100_000)
    large.insert(numbers(0, 2000))
    large.shrink_to(2000)
    small = BloomFilter.sized(2000)
    small.insert(numbers(0, 2000))
    assert large.bits == small.bits
    small.shrink_to(100_000)
    assert large.bits == small.bits
    small.shrink_to(0)
    assert len(small.bits) == 32


def test_a_full_filter_finds_everything() -> None:
    made = BloomFilter.sized(1)
    made.insert(numbers(0, 10_000))
    assert found(made, numbers(1 << 40, 1000)) == 1000
    assert made.count() > 1


def test_filters_are_of_hashes() -> None:
    library, bits = find_library(), bytes(32)
    rows = pl.LazyFrame({"k": [1, 2]})
    for column, arguments, message in (
        (pl.col("k"), bits, "no UInt64"),
        (pl.col("k").hash(), b"", "no words"),
    ):
        call = plugin_expr(library, "may_contain", [column], arguments, elementwise=True)
        with pytest.raises(pl.exceptions.ComputeError, match=message):
            rows.select(call).collect()


def test_the_plugin_frees_what_it_is_given() -> None:
    """Neither the column nor the result of a call stays."""
    made = BloomFilter.sized(10)
    keys = numbers(0, 1 << 20)
    call = made.may_contain(pl.col("k"))
    before = 0
    for repeat in range(60):
        keys.to_frame().select(call)
        if repeat == 9:
            before = _resident()
    assert _resident() - before < 64 << 20  # 50 calls have 8 MiB of hashes each


def _resident() -> int:
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


@pytest.mark.parametrize("seed", range(20))
def test_ranks_find_the_same(seed: int) -> None:
    """Of random keys of random ranks: whatever is exchanged, it has every key, and is the same on all ranks."""
    rng = random.Random(seed)
    nranks = rng.choice([1, 2, 3, 5])
    limit = KeyLimit(rng.choice([0, 1, 10, 100]), rng.choice([0, 50, 1000]))
    dtype = rng.choice([pl.Int64(), pl.Date(), pl.Float64(), pl.String()])
    spread = rng.choice([3, 60, 3000])
    batches = [
        [
            pl.DataFrame(
                {"k": [rng.randrange(spread) for _ in range(rng.choice([0, 1, 30, 300]))]}
            ).with_columns(pl.when(pl.col("k") != 1).then("k").cast(pl.Int32).cast(dtype))
            for _ in range(rng.randrange(4))
        ]
        for _ in range(nranks)
    ]
    rows = sum(batch.height for each in batches for batch in each)

    class Ranks:
        def __init__(self, transport) -> None:
            self.transport, self.op = transport, 0

        def _next(self) -> int:
            self.op += 1
            return self.op

        def allgather_bytes(self, value: bytes) -> list[bytes]:
            return self.transport.allgather_bytes(value, op=self._next())

        def allgather_rows(self, frame: pl.DataFrame):
            return self.transport.allgather(frame, op=self._next())

        def merge_bits(self, bits: bytearray) -> bytearray:
            return self.transport.merge_bits(bits, op=self._next())

    def work(transport):
        mine = keys_of_rank(iter(batches[transport.rank]), {"k": limit}, {"k": dtype}, rows)
        return meet(mine, Ranks(transport))[0]

    found_by = run_ranks(nranks, work)
    every = pl.concat([pl.Series("k", [], dtype=dtype), *(batch["k"] for each in batches for batch in each)])
    expected = every.drop_nulls().unique().sort()
    for keys in found_by:
        assert keys.has_null == bool(every.null_count())
        if dtype in (pl.Int64(), pl.Date()):
            assert keys.bounds == ((expected.min(), expected.max()) if expected.len() else None)
        if keys.values is not None:
            assert keys.values.sort().equals(expected)
            assert keys.count == expected.len() <= limit.values
        elif keys.bloom_filter is not None:
            assert found(keys.bloom_filter, expected) == expected.len()
            assert abs(keys.count - expected.len()) <= max(2, expected.len() // 20)
            assert keys.bloom_filter.bits == found_by[0].bloom_filter.bits
        else:
            assert keys.count >= expected.len() or not limit.in_filter
            assert expected.len() > 0
