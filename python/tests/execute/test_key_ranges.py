"""Files that are sorted by a key are read by ranges of its values: rows with equal keys meet without an exchange."""

from __future__ import annotations

import datetime as dt
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from execute.local_transport import LocalTransport, run_ranks
from polars.testing import assert_frame_equal

from cudf_polars.execute.explain import explain_query
from cudf_polars.execute.options import ExecutionOptions
from cudf_polars.execute.paths import TO_RANGES
from cudf_polars.execute.run import QueryOutcome, run_query
from cudf_polars.lower import joins
from cudf_polars.lower.physical import RangeExchange, Shuffle, walk

c = pl.col
Query = Callable[[pl.LazyFrame, pl.LazyFrame], pl.LazyFrame]
_OPTIONS = ExecutionOptions(broadcast_limit=0, small_limit=0, read_everywhere_limit=0)
_ROWS = 400


def _facts(rows: int = _ROWS) -> pl.DataFrame:
    """Return a table whose keys come once to five times, in ascending order."""
    rng = random.Random(3)
    keys = sorted(rng.randrange(rows // 3) for _ in range(rows))
    return pl.DataFrame(
        {
            "k": keys,
            "v": [rng.randrange(100) for _ in keys],
            "s": [rng.choice("abc") for _ in keys],
            "d": [dt.date(2020, 1, 1) + dt.timedelta(days=key) for key in keys],
            "at": range(rows),
        }
    )


def _names(rows: int = _ROWS) -> pl.DataFrame:
    return pl.DataFrame({"k": range(0, rows // 3, 2), "name": [f"n{i % 7}" for i in range(0, rows // 3, 2)]})


def _written(folder: Path, facts: pl.DataFrame, *, group: int = 10, files: int = 1) -> tuple[Path, Path]:
    (folder / "facts").mkdir()
    size = -(-facts.height // files)
    for number in range(files):
        part = facts[number * size : (number + 1) * size]
        part.write_parquet(folder / "facts" / f"{number}.parquet", row_group_size=group)
    _names().write_parquet(folder / "names.parquet", row_group_size=max(1, group // 4))
    return folder / "facts", folder / "names.parquet"


def _run(
    lf: pl.LazyFrame, nranks: int, partitions: int = 1, **options: Any
) -> tuple[pl.DataFrame, QueryOutcome]:
    def on_rank(transport: LocalTransport) -> QueryOutcome:
        return run_query(lf, transport, options=replace(_OPTIONS, partitions=partitions, **options))

    outcomes = run_ranks(nranks, on_rank)
    return pl.concat([outcome.frame for outcome in outcomes]), outcomes[0]


def _moves(outcome: QueryOutcome) -> list[str]:
    """Return the exchanges of rows by key."""
    assert outcome.physical is not None
    return [s.label for s in walk(outcome.physical) if isinstance(s, Shuffle | RangeExchange)]


QUERIES: dict[str, Query] = {
    "groups": lambda f, _: f.group_by("k").agg(c("v").n_unique(), c("s").max().alias("t")),
    "groups_by_more": lambda f, _: f.group_by("s", "k").agg(c("v").median()),
    "groups_of_a_part": lambda f, _: f.filter(c("v") > 50).group_by(c("k").alias("key")).agg(pl.len()),
    "groups_by_date": lambda f, _: f.group_by("d").agg(c("v").sum(), pl.len()),
    "distinct": lambda f, _: f.unique(["k", "s"], keep="none").select("k", "s"),
    "join": lambda f, n: f.join(n, on="k"),
    "left": lambda f, n: f.join(n, on="k", how="left"),
    "right": lambda f, n: f.join(n, on="k", how="right"),
    "full": lambda f, n: f.join(n, on="k", how="full"),
    "full_coalesced": lambda f, n: f.join(n, on="k", how="full", coalesce=True),
    "semi": lambda f, n: f.join(n, on="k", how="semi"),
    "anti": lambda f, n: f.join(n, on="k", how="anti"),
    "renamed": lambda f, n: f.rename({"k": "x"}).join(n.rename({"k": "y"}), left_on="x", right_on="y"),
    "groups_of_a_join": lambda f, n: f.join(n, on="k").group_by("k").agg(c("v").sum(), c("name").max()),
    "itself": lambda f, _: (
        f.filter(c("v") > 30)
        .join(f.group_by("k").agg(c("s").n_unique().alias("kinds")).filter(c("kinds") > 1), on="k")
        .join(f.filter(c("v") <= 30).group_by("k").agg(pl.len().alias("few")), on="k")
    ),
}
"""Queries that need no row of another rank."""


@pytest.mark.parametrize("nranks", [2, 3, 5])
@pytest.mark.parametrize("files", [1, 3])
@pytest.mark.parametrize("name", QUERIES)
def test_no_row_moves(name: str, files: int, nranks: int, tmp_path: Path) -> None:
    """Row groups end within the rows of a key, so that ranks read row groups of others, too."""
    facts, names = _written(tmp_path, _facts(), files=files)
    lf = QUERIES[name](pl.scan_parquet(facts), pl.scan_parquet(names))
    answer, outcome = _run(lf, nranks)
    assert_frame_equal(answer, lf.collect(), check_row_order=False)
    assert _moves(outcome) == []
    text = explain_query(lf, nranks, options=_OPTIONS)
    assert "by ranges of " in text
    assert "SHUFFLE" not in text


@pytest.mark.parametrize(("nranks", "partitions"), [(1, 4), (2, 3), (3, 2)])
@pytest.mark.parametrize("name", QUERIES)
def test_no_row_moves_between_partitions(name: str, nranks: int, partitions: int, tmp_path: Path) -> None:
    """What a rank cannot hold at once is read from files a range at a time."""
    facts, names = _written(tmp_path, _facts(), files=2)
    lf = QUERIES[name](pl.scan_parquet(facts), pl.scan_parquet(names))
    answer, outcome = _run(lf, nranks, partitions)
    assert_frame_equal(answer, lf.collect(), check_row_order=False)
    assert _moves(outcome) == []
    assert (
        f"; a rank {partitions} partitions" in outcome.explain()
        or f", {partitions} partitions" in outcome.explain()
    )


def _changes() -> pl.DataFrame:
    """Return fewer rows in no order: some keys twice, some null, some that the facts do not have."""
    rng = random.Random(5)
    keys = [None if rng.random() < 0.1 else rng.randrange(-20, _ROWS // 3 + 20) for _ in range(90)]
    frame = pl.DataFrame({"k": keys, "v": [rng.randrange(100) for _ in keys], "change": range(90)})
    return frame.with_columns((pl.date(2020, 1, 1) + pl.duration(days=c("k"))).alias("d"))


MOVING: dict[str, Query] = {
    "inner": lambda f, m: f.join(m, on="k"),
    "left": lambda f, m: f.join(m, on="k", how="left"),
    "right": lambda f, m: f.join(m, on="k", how="right"),
    "full": lambda f, m: f.join(m, on="k", how="full"),
    "full_coalesced": lambda f, m: f.join(m, on="k", how="full", coalesce=True, nulls_equal=True),
    "semi": lambda f, m: f.join(m, on="k", how="semi"),
    "anti": lambda f, m: f.join(m, on="k", how="anti"),
    "moves_on_the_left": lambda f, m: m.join(f, on="k", how="left"),
    "two_keys": lambda f, m: f.join(m, on=["v", "k"]),
    "a_computed_key": lambda f, m: f.join(m, left_on=["k", c("v") % 7], right_on=["k", c("v") % 7]),
    "grouped_after": lambda f, m: f.join(m, on="k").group_by("k").agg(pl.len(), c("change").n_unique()),
    "dates": lambda f, m: f.join(m.drop("k"), on="d"),
}
"""Queries of two tables of which the first is in the order of the key, the other one in none."""


@pytest.mark.parametrize(("nranks", "partitions"), [(1, 3), (2, 3), (3, 2)])
@pytest.mark.parametrize("name", MOVING)
def test_a_smaller_table_moves_to_the_ranges(name: str, nranks: int, partitions: int, tmp_path: Path) -> None:
    facts, _ = _written(tmp_path, _facts())
    _changes().write_parquet(tmp_path / "changes.parquet")
    lf = MOVING[name](pl.scan_parquet(facts), pl.scan_parquet(tmp_path / "changes.parquet"))
    answer, outcome = _run(lf, nranks, partitions, broadcast_limit=1)
    assert_frame_equal(answer, lf.collect(), check_row_order=False)
    assert [move.partition("(")[0] for move in _moves(outcome)] == ["SHUFFLE by ranges"]
    assert outcome.paths.counts[TO_RANGES] == 1


def test_a_larger_table_does_not_move_to_the_ranges(tmp_path: Path) -> None:
    """Ranges are about equal parts of the table that is split, but need not be of the other one."""
    facts, _ = _written(tmp_path, _facts())
    many = _facts().with_columns(k=c("k") % 3 + 120).drop("d")
    pl.concat([many] * 4).write_parquet(tmp_path / "many.parquet")
    lf = pl.scan_parquet(facts).join(pl.scan_parquet(tmp_path / "many.parquet"), on="k", how="right")
    answer, outcome = _run(lf, 2, 3, broadcast_limit=1)
    assert_frame_equal(answer, lf.collect(), check_row_order=False)
    assert [move.partition("(")[0] for move in _moves(outcome)] == ["SHUFFLE by hash"] * 2


@pytest.mark.parametrize(("nranks", "by"), [(1, "ranges"), (2, "ranges"), (3, "hash"), (5, "hash")])
def test_rows_of_few_ranges_do_not_move_to_them(nranks: int, by: str, tmp_path: Path) -> None:
    """One rank would have all the work. Of two, one spares the other more than it could help."""
    facts, _ = _written(tmp_path, _facts())
    _changes().filter(c("k") > 120).write_parquet(tmp_path / "changes.parquet")
    lf = pl.scan_parquet(facts).join(pl.scan_parquet(tmp_path / "changes.parquet"), on="k", how="left")
    answer, outcome = _run(lf, nranks, 2, broadcast_limit=1)
    assert_frame_equal(answer, lf.collect(), check_row_order=False)
    assert all(f"SHUFFLE by {by}" in move for move in _moves(outcome))


@pytest.mark.parametrize(("nranks", "partitions"), [(2, 1), (3, 1), (1, 3), (2, 3)])
@pytest.mark.parametrize("group", [7, 20, 100])
def test_order_of_files_stays(group: int, nranks: int, partitions: int, tmp_path: Path) -> None:
    facts, names = _written(tmp_path, _facts(), group=group)
    scan = pl.scan_parquet(facts)
    lf = scan.join(pl.scan_parquet(names), on="k", how="left", maintain_order="left")
    assert_frame_equal(_run(lf, nranks, partitions)[0], lf.collect())
    lf = scan.with_columns(scanned=c("v") + 1)
    assert_frame_equal(_run(lf, nranks, partitions)[0], lf.collect())
    lf = scan.group_by("k", maintain_order=True).agg("at")
    assert_frame_equal(_run(lf, nranks, partitions)[0], lf.collect())


@pytest.mark.parametrize("nranks", [1, 2])
def test_files_beside_a_large_copy_are_read_in_one(
    nranks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each range would build the table of the copy anew; where a step in place needs ranges, its rows come as one."""
    monkeypatch.setattr(joins, "_BUILT_AGAIN", 0)
    monkeypatch.setattr(joins, "_LITTLE_TO_BUILD", 0)
    facts, _ = _written(tmp_path, _facts())
    # One key is far from the others, so that the join cannot be by lookup and builds a hash table.
    pl.DataFrame({"v": [*range(0, 99, 3), 10**6], "w": range(34)}).write_parquet(tmp_path / "few.parquet")
    scan, few = pl.scan_parquet(facts), pl.scan_parquet(tmp_path / "few.parquet")
    options = replace(_OPTIONS, broadcast_limit=1 << 20, partitions=3)
    rowwise = scan.with_columns(x=c("v") + 1).filter(c("x") != 7)
    in_place = scan.group_by("k", "v").agg(c("at").max())
    for lf, in_one in ((rowwise, True), (in_place, False)):
        query = lf.join(few, on="v").group_by("k").agg(c("w").n_unique())
        outcomes = run_ranks(
            nranks, lambda transport, query=query: run_query(query, transport, options=options)
        )
        answer = pl.concat([outcome.frame for outcome in outcomes])
        assert_frame_equal(answer, query.collect(), check_row_order=False)
        text = outcomes[0].explain()
        assert ("by ranges of k" not in text) == in_one, text
        assert ("for the other side to be built once" not in text) == in_one, text
        assert "BROADCAST" in text
        assert "hash(v)" not in text


def test_files_beside_a_copy_for_a_lookup_are_read_by_ranges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A join by lookup builds its table of keys once for all ranges, so ranges cost nothing."""
    monkeypatch.setattr(joins, "_BUILT_AGAIN", 0)
    monkeypatch.setattr(joins, "_LITTLE_TO_BUILD", 0)
    facts, _ = _written(tmp_path, _facts())
    pl.DataFrame({"v": range(0, 100, 3), "w": range(34)}).write_parquet(tmp_path / "few.parquet")
    in_place = pl.scan_parquet(facts).group_by("k", "v").agg(c("at").max())
    query = in_place.join(pl.scan_parquet(tmp_path / "few.parquet"), on="v").group_by("k").agg(c("w").sum())
    options = replace(_OPTIONS, broadcast_limit=1 << 20, partitions=3)
    outcomes = run_ranks(1, lambda transport: run_query(query, transport, options=options))
    assert_frame_equal(outcomes[0].frame, query.collect(), check_row_order=False)
    text = outcomes[0].explain()
    assert "by ranges of k" in text, text
    assert "joins by lookup" in text, text


def _with(**columns: object) -> pl.DataFrame:
    return _facts().with_columns(
        **{n: v if isinstance(v, pl.Expr) else pl.lit(v) for n, v in columns.items()}
    )


@pytest.mark.parametrize(
    ("facts", "by"),
    [
        (_facts().sample(fraction=1, shuffle=True, seed=1), "k"),
        (_with(k=pl.when(c("at") != 390).then("k")), "k"),
        (_with(k=c("k").cast(pl.Float64)), "k"),
        (_with(k=c("k").cast(pl.String)), "k"),
        (_with(k=c("k") // 100), "k"),
        (_facts().sort("k", descending=True), "k"),
        (_facts(), "v"),
        (_facts().head(20), "k"),
    ],
    ids=["no_order", "a_null", "floats", "strings", "few_values", "descending", "another", "one_row_group"],
)
def test_other_files_are_split_by_rows(facts: pl.DataFrame, by: str, tmp_path: Path) -> None:
    path, _ = _written(tmp_path, facts)
    lf = pl.scan_parquet(path).group_by(by).agg(c("at").sum(), c("s").n_unique())
    answer, outcome = _run(lf, 3)
    assert_frame_equal(answer, lf.collect(), check_row_order=False)
    assert _moves(outcome) != []


@pytest.mark.parametrize("column", ["k", "at", "d"])
def test_filters_that_leave_a_range_leave_it_to_all_ranks(column: str, tmp_path: Path) -> None:
    """Whether of the key itself or of a column that grows with it: one rank would have all the rows."""
    path, _ = _written(tmp_path, _facts())
    low = {"k": 100, "at": 300, "d": dt.date(2020, 4, 1)}[column]
    lf = pl.scan_parquet(path).filter(c(column) > low).group_by("k").agg(c("v").n_unique())
    answer, outcome = _run(lf, 2)
    assert_frame_equal(answer, lf.collect(), check_row_order=False)
    assert _moves(outcome) != []


@pytest.mark.parametrize("skewed", [0.3, 0.6])
def test_a_frequent_key(skewed: float, tmp_path: Path) -> None:
    """Where half of the rows have one key, ranges of keys are uneven."""
    keys: Sequence[int] = sorted([50] * int(_ROWS * skewed) + list(range(int(_ROWS * (1 - skewed)))))
    facts = pl.DataFrame({"k": keys, "v": [i % 10 for i in range(len(keys))]})
    path, names = _written(tmp_path, facts)
    for lf in (
        pl.scan_parquet(path).group_by("k").agg(c("v").n_unique()),
        pl.scan_parquet(path).join(pl.scan_parquet(names), on="k"),
    ):
        for nranks in (2, 5):
            answer, _ = _run(lf, nranks)
            assert_frame_equal(answer, lf.collect(), check_row_order=False)


def test_tables_of_other_ranges(tmp_path: Path) -> None:
    """A table whose keys are all in the range of one rank is sent to where the rows of the other one are."""
    facts, _ = _written(tmp_path, _facts())
    few = tmp_path / "few.parquet"
    pl.DataFrame({"k": range(20), "more": range(20)}).write_parquet(few, row_group_size=4)
    for how in ("inner", "left", "full", "anti"):
        lf = pl.scan_parquet(facts).join(pl.scan_parquet(few), on="k", how=how)  # type: ignore[arg-type]
        answer, _ = _run(lf, 3)
        assert_frame_equal(answer, lf.collect(), check_row_order=False)


def test_ranks_that_see_other_footers_split_by_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank may know no bounds, of files in a store: then none uses them."""
    from cudf_polars.execute import range_agreement

    path, _ = _written(tmp_path, _facts())
    lf = pl.scan_parquet(path).group_by("k").agg(c("v").n_unique())
    found = range_agreement.find_key_ranges
    calls = iter([True, False])
    monkeypatch.setattr(range_agreement, "find_key_ranges", lambda *args: found(*args) if next(calls) else {})
    answer, outcome = _run(lf, 2)
    assert_frame_equal(answer, lf.collect(), check_row_order=False)
    assert _moves(outcome) != []


# -- random queries over sorted files -------------------------------------------------------------------------

_HOWS = ("inner", "left", "right", "full", "semi", "anti")


def _random_tables(rng: random.Random, folder: Path) -> list[pl.LazyFrame]:
    """Write three tables with a key, mostly in its order, in files of other numbers and row groups of other sizes."""
    scans = []
    for name in "xyz":
        rows = rng.randrange(1, 300)
        keys: list[int | None] = [rng.randrange(-20, rng.choice([10, 100, 400])) for _ in range(rows)]
        order = rng.random()
        if order < 0.8:
            keys.sort(key=lambda key: 0 if key is None else key)
        if order < 0.1:
            keys[rng.randrange(rows)] = None
        frame = pl.DataFrame(
            {
                "k": pl.Series(keys, dtype=rng.choice([pl.Int64, pl.Int64, pl.Int32])).cast(pl.Int64),
                name: [rng.randrange(20) for _ in keys],
                "g": [rng.randrange(4) for _ in keys],
            }
        )
        if rng.random() < 0.2:
            frame = frame.with_columns(pl.date(2020, 1, 1) + pl.duration(days=c("k").fill_null(0)).alias("k"))
        files = rng.choice([1, 1, 2, 4])
        size = -(-rows // files)
        (folder / name).mkdir()
        for number in range(files):
            part = frame[number * size : (number + 1) * size]
            path = folder / name / f"{number}.parquet"
            part.write_parquet(path, row_group_size=rng.choice([1, 3, 5, 10, 30]))
        scans.append(pl.scan_parquet(folder / name))
    return scans


def _random_step(rng: random.Random, lf: pl.LazyFrame, other: Callable[[], pl.LazyFrame]) -> pl.LazyFrame:
    names = lf.collect_schema().names()
    rest = [name for name in names if name != "k"]
    if "k" not in names or not rest:
        return lf
    value = rng.choice(rest)
    match rng.randrange(11):
        case 0:
            return lf.filter(c(value).hash(1) % 3 > 0)
        case 1:
            return lf.group_by("k", maintain_order=rng.random() < 0.2).agg(
                c(value).n_unique(), pl.len().alias(f"n{rng.randrange(10**9)}")
            )
        case 2:
            return lf.group_by(value, "k").agg(
                pl.len().alias(f"n{rng.randrange(10**9)}"), *(c(n).max() for n in rest if n != value)
            )
        case 3:
            return lf.unique(["k"], keep="none") if rng.random() < 0.5 else lf.unique()
        case 4:
            return lf.with_columns(o=c(value).n_unique().over("k"))
        case 5:
            return lf.rename({"k": f"q{rng.randrange(10**9)}"}).with_columns(
                pl.nth(names.index("k")).alias("k")
            )
        case 6:
            return lf.select("k", value)
        case 7:
            return pl.concat([lf, lf.filter(c("k") > c("k").min())])
        case _:
            right = other()
            shared = [n for n in right.collect_schema().names() if n in names and n != "k"]
            right = right.rename({n: f"{n}_{rng.randrange(10**9)}" for n in shared})
            if right.collect_schema()["k"] != lf.collect_schema()["k"]:
                return lf
            return lf.join(
                right, on="k", how=rng.choice(_HOWS), coalesce=True, nulls_equal=rng.random() < 0.2
            )


def _random_query(rng: random.Random, scans: Sequence[pl.LazyFrame], depth: int) -> pl.LazyFrame:
    lf = rng.choice(scans)
    for _ in range(rng.randrange(depth + 1)):
        lf = _random_step(rng, lf, lambda: _random_query(rng, scans, max(0, depth - 2)))
    return lf


@pytest.mark.parametrize("seed", range(int(os.environ.get("RIVERRUN_TEST_KEY_RANGES", "100"))))
def test_random_queries(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    if rng.random() < 0.3:
        monkeypatch.setattr(joins, "_BUILT_AGAIN", 0)
        monkeypatch.setattr(joins, "_LITTLE_TO_BUILD", 0)
    lf = _random_query(rng, _random_tables(rng, tmp_path), 5)
    options = replace(
        _OPTIONS if rng.random() < 0.7 else ExecutionOptions(),
        dynamic_planning=rng.random() < 0.8,
        fallback_mode="silent",
    )
    partitions = rng.choice([1, 1, 2, 4])
    options = replace(
        options,
        partitions=partitions,
        partition_limit=rng.choice([0, 300]) if partitions > 1 else 0,
        sample_least=rng.choice([0, options.sample_least]),
        broadcast_limit=rng.choice([0, 1]),
    )
    nranks = rng.choice([1, 2, 3, 5])
    answers = run_ranks(nranks, lambda transport: run_query(lf, transport, options=options).frame)
    assert_frame_equal(pl.concat(answers), lf.collect(), check_row_order=False)
