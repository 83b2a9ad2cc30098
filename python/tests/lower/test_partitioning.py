"""When rows already meet."""

from __future__ import annotations

from cudf_polars.lower.partitioning import (
    ARBITRARY,
    REPLICATED,
    SINGLE,
    Distribution,
    Partitioning,
    hashed,
    project,
    ranged,
)


def test_hash_by_fewer_columns_collocates_more() -> None:
    assert hashed(["a"]).collocates(["a", "b"])
    assert not hashed(["a", "b"]).collocates(["a"])


def test_ranges_collocate_their_keys() -> None:
    assert ranged(["a"]).collocates(["a"])
    assert not ranged(["a"]).is_hash()


def test_one_rank_collocates_everything() -> None:
    assert SINGLE.collocates([])
    assert REPLICATED.collocates(["x"])
    assert not ARBITRARY.collocates(["x"])


def test_any_name_of_a_key_will_do() -> None:
    partitioning = Partitioning(Distribution.HASH, (frozenset({"a", "b"}),))
    assert partitioning.collocates(["b"])
    assert project(partitioning, {"b": ["c"]}) == hashed(["c"])


def test_projection_renames_and_duplicates() -> None:
    assert project(hashed(["a"]), {"a": ["x", "y"]}) == Partitioning(
        Distribution.HASH, (frozenset({"x", "y"}),)
    )


def test_lost_key_is_arbitrary() -> None:
    assert project(hashed(["a", "b"]), {"a": ["a"]}) == ARBITRARY
    assert project(SINGLE, {}) == SINGLE
