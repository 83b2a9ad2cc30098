"""The keys of a join's side leave out rows of the other side before it makes groups of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from execute.compare import PARTITIONED, TINY, assert_like_polars
from execute.test_key_filters import KEYS, SHUFFLED, filters, large_and_small, on_disk, rows_sent, sides

from cudf_polars.lower.group_counts import mean_count

pytestmark = pytest.mark.filterwarnings("ignore")


def groups_of(lf: pl.LazyFrame) -> pl.LazyFrame:
    return lf.group_by("k").agg(pl.col("a").sum(), pl.len())


SHAPES: dict[str, tuple[Callable[[pl.LazyFrame], pl.LazyFrame], bool]] = {
    "group-by": (groups_of, True),
    "order of groups": (lambda lf: lf.group_by("k", maintain_order=True).agg(pl.col("a").first()), True),
    "whole groups": (
        lambda lf: lf.group_by("k").agg(pl.col("a").median(), two=pl.col("a").sort().head(2)),
        True,
    ),
    "two keys": (lambda lf: lf.group_by("k", pl.col("a") % 3).agg(n=pl.len()), True),
    "distinct values": (lambda lf: lf.group_by("k").agg(pl.col("a").n_unique()), True),
    "distinct": (lambda lf: lf.select("k").unique(), True),
    "first of each": (lambda lf: lf.unique("k", keep="first", maintain_order=True), True),
    "only ones": (lambda lf: lf.with_columns(pl.col("a") % 3).unique(["k", "a"], keep="none"), True),
    "steps above": (
        lambda lf: (
            groups_of(lf)
            .filter(pl.col("len") > 0)
            .select("k", b2=pl.col("a") * 2)
            .with_columns(c=pl.col("b2") + 1)
        ),
        True,
    ),
    "renamed": (
        lambda lf: (
            lf.rename({"k": "o"}).group_by(p="o").agg(pl.col("a").max()).select(pl.col("p").alias("k"), "a")
        ),
        True,
    ),
    # A filter of rows would change what these give.
    "value of all groups": (
        lambda lf: groups_of(lf).with_columns(share=pl.col("len") / pl.col("len").sum()),
        False,
    ),
    "rank among groups": (lambda lf: groups_of(lf).with_columns(r=pl.col("a").rank("dense")), False),
    "head of groups": (lambda lf: lf.group_by("k").agg(pl.col("a").max()).sort("a", "k").head(3), False),
    "key is computed": (lambda lf: lf.group_by(pl.col("k").fill_null(strategy="max")).agg(pl.len()), False),
    "other column is distinct": (lambda lf: lf.unique("a").select("k", "a"), False),
    "key of aggregates": (lambda lf: lf.group_by("a").agg(pl.col("k").max()), False),
}


@pytest.mark.parametrize("how", ["inner", "left", "right", "full", "semi", "anti"])
@pytest.mark.parametrize("shape", SHAPES)
def test_answers_are_those_of_polars(shape: str, how: str, tmp_path: Path) -> None:
    build, is_filtered = SHAPES[shape]
    large, small = on_disk(tmp_path, *sides("integers"))
    for turned, options in ((False, TINY), (True, PARTITIONED)):
        left, right = (small, build(large)) if turned else (build(large), small)
        query = left.join(right, on="k", how=how)
        outcomes = assert_like_polars(query, 2, options, ordered=False)
        preserved = {"left": "left", "right": "right", "anti": "left"}.get(how)
        ours = "right" if turned else "left"
        expected = is_filtered and how != "full" and preserved != ours
        if turned and how in ("semi", "anti") and not is_filtered:
            continue  # the answer has no column of these groups: Polars drops what would forbid a filter
        assert _filters_below_groups(outcomes[0].explain()) == expected, outcomes[0].explain()


def _filters_below_groups(text: str) -> bool:
    """Whether a filter by keys stands under what makes groups, that is under no exchange of them."""
    lines = text.splitlines()
    scan = next(n for n, line in enumerate(lines) if "PARQUET SCAN" in line and "/0.parquet" in line)
    for line in reversed(lines[:scan]):
        if "KEEP" in line:
            return True
        if "GROUPBY" in line or "DISTINCT" in line or line.lstrip()[:1].isdigit():
            return False
    return False


@pytest.mark.parametrize("nulls_equal", [False, True])
@pytest.mark.parametrize("kind", KEYS)
def test_keys_of_every_type(kind: str, nulls_equal: bool, tmp_path: Path) -> None:
    large, small = on_disk(tmp_path, *sides(kind))
    for nranks, options in ((2, TINY), (3, PARTITIONED)):
        query = groups_of(large).join(small, on="k", nulls_equal=nulls_equal)
        outcomes = assert_like_polars(query, nranks, options, ordered=False)
        if kind != "nothing":  # which every rank reads for itself
            assert bool(filters(outcomes)) == (kind not in ("decimals", "categories"))


def test_groups_without_a_partner_are_not_made(tmp_path: Path) -> None:
    large, small = large_and_small(tmp_path, keys=1000)
    # Other than in the file, so that no range of it is a rank's.
    scattered = large.with_columns(k=pl.col("k") * 7919 % 40_000)
    query = scattered.group_by("k").agg(pl.col("w").sum()).join(small, on="k")
    outcomes = assert_like_polars(query, 2, SHUFFLED, ordered=False)
    assert filters(outcomes) == ["k"]
    assert sum(rows_sent(outcomes[0].explain())) <= 1000 + 2 * 1000
    off = assert_like_polars(query, 2, replace(SHUFFLED, filter_keys=0), ordered=False)
    assert sum(rows_sent(off[0].explain())) > 40_000


def test_what_others_read_too_is_not_filtered(tmp_path: Path) -> None:
    large, small = on_disk(tmp_path, *sides("integers"))
    groups = groups_of(large)
    query = groups.join(small, on="k").join(groups.select("a", c="k"), on="a", how="full")
    outcomes = assert_like_polars(query, 2, ordered=False)
    assert not _filters_below_groups(outcomes[0].explain())


def test_both_sides_group(tmp_path: Path) -> None:
    large, small = on_disk(tmp_path, *sides("integers"))
    query = groups_of(large).join(small.group_by("k").agg(pl.col("b").sum()), on="k")
    for nranks in (2, 3):
        assert_like_polars(query, nranks, ordered=False)
        assert_like_polars(query, nranks, PARTITIONED, ordered=False)


def test_what_is_left_of_a_large_side_is_copied(tmp_path: Path) -> None:
    """The smaller side is too large for that, but the larger one is not any more when it has been filtered."""
    rows = pl.DataFrame({"k": range(40_000)}).with_columns(t=pl.lit("a text that takes its place in memory"))
    rows = rows.with_columns(pl.col("t") + pl.col("k").cast(pl.String))
    many = pl.DataFrame({"j": [k * 7919 % 400_000 for k in range(400_000)]}).with_columns(w=pl.col("j") % 11)
    small, large = on_disk(tmp_path, rows, many)
    query = large.join(small.filter(pl.col("k") % 8 == 0), left_on="j", right_on="k")
    options = replace(SHUFFLED, broadcast_limit=200 << 10)
    outcomes = assert_like_polars(query, 2, options, ordered=False)
    text = outcomes[0].explain()
    assert filters(outcomes) == ["j"]
    assert "SHUFFLE" not in text, text
    assert "BROADCAST" in text


def test_counts_of_ranks_are_used_together() -> None:
    """The greatest of each count would not be those of any sample."""
    one = {"rows": 200, "first": 100, "second": 100, "both": 190, "once": 180, "twice": 10, "thrice": 0}
    other = {"rows": 220, "first": 120, "second": 100, "both": 210, "once": 200, "twice": 10, "thrice": 0}
    none = dict.fromkeys(one, 0)
    mean = mean_count([one, other, none])
    assert mean.first + mean.second - mean.both == 10
    assert mean.groups(1e9) == pytest.approx(mean.first * mean.second / 10, rel=0.01)
    assert mean_count([none]).groups(100) == 0
