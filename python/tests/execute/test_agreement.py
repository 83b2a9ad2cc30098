"""What ranks agree on: the query, its files, its end, and the types of the answer."""

from __future__ import annotations

import threading
from pathlib import Path

import polars as pl
import pytest
from execute.compare import TINY
from execute.local_transport import RankFailedError, run_ranks

from cudf_polars.execute import agreement
from cudf_polars.execute.agreement import agree_on_end
from cudf_polars.execute.errors import QueryMismatchError
from cudf_polars.execute.queries import read_query
from cudf_polars.execute.run import run_query
from cudf_polars.plan.fingerprint import dump

pytestmark = pytest.mark.filterwarnings("ignore")


def each_rank(nranks: int, work):  # type: ignore[no-untyped-def]
    """Return what ``work`` gave or raised on every rank."""

    def caught(transport):  # type: ignore[no-untyped-def]
        try:
            return work(transport)
        except Exception as error:
            # what a rank raises ends the others' waits
            if not isinstance(error, RankFailedError | QueryMismatchError):
                transport._group.barrier.abort()
            return error

    return run_ranks(nranks, caught)


def test_what_fails_on_one_rank_fails_on_all() -> None:
    def work(transport):  # type: ignore[no-untyped-def]
        lf = pl.LazyFrame({"a": [transport.rank]})
        step = pl.col("a").map_batches(lambda s: 1 // 0 if transport.rank == 0 else s, return_dtype=pl.Int64)
        return run_query(lf.sort("a").with_columns(step), transport, options=TINY).frame

    first, *others = each_rank(3, work)
    assert isinstance(first, ZeroDivisionError)
    assert all(isinstance(error, RankFailedError) for error in others)


def test_different_functions_are_noticed() -> None:
    def work(transport):  # type: ignore[no-untyped-def]
        function = (lambda v: v + 1) if transport.rank else (lambda v: v + 2)
        step = pl.col("a").map_elements(function, return_dtype=pl.Int64)
        return run_query(pl.LazyFrame({"a": [1]}).with_columns(step), transport, options=TINY)

    assert all(isinstance(error, QueryMismatchError) for error in each_rank(2, work))


def test_ranks_may_find_other_sub_plans_shared() -> None:
    # Polars takes equal series of a query that was unpickled for one now and for two then.
    def work(transport):  # type: ignore[no-untyped-def]
        rows = pl.LazyFrame({"a": [transport.rank, 5]})
        series = [pl.Series([1, 2]), pl.Series([1, 2 + transport.rank])]  # b is used by nobody
        left, right = (
            rows.with_columns(b=pl.col("a").replace_strict([7], [8], default=s), c=~pl.col("a"))
            for s in series
        )
        query = left.join(right.group_by("c").agg(pl.col("a").sum().alias("e")), on="c").select("a", "e")
        shared.append(dump(read_query(query, pl.QueryOptFlags()).plan))
        return run_query(query, transport, options=TINY).frame

    shared: list[str] = []
    parts = each_rank(2, work)
    assert len(set(shared)) == 2, "both ranks have found the same, so the test shows nothing"
    assert sorted(pl.concat(parts)["a"].to_list()) == [0, 1, 5, 5]


def test_a_function_may_know_its_rank() -> None:
    def work(transport):  # type: ignore[no-untyped-def]
        rank = transport.rank
        step = pl.col("a").map_elements(lambda v: v + rank, return_dtype=pl.Int64)
        return run_query(pl.LazyFrame({"a": [1]}).with_columns(step), transport, options=TINY).frame

    assert pl.concat(each_rank(2, work))["a"].to_list() == [1, 2]


def test_equal_functions_from_different_lines_are_not() -> None:
    def work(transport):  # type: ignore[no-untyped-def]
        functions = [lambda v: v + 1, lambda v: v + 1]
        step = pl.col("a").map_elements(functions[transport.rank], return_dtype=pl.Int64)
        return run_query(pl.LazyFrame({"a": [1]}).with_columns(step), transport, options=TINY).frame

    assert pl.concat(each_rank(2, work))["a"].to_list() == [2, 2]


@pytest.mark.parametrize("make", ["map_batches", "group"])
def test_different_opaque_steps_are_noticed(make: str) -> None:
    def work(transport):  # type: ignore[no-untyped-def]
        lf = pl.LazyFrame({"a": [1]})
        function = (lambda frame: frame.head(1)) if transport.rank else (lambda frame: frame.head(2))
        if make == "map_batches":
            return run_query(lf.map_batches(function), transport, options=TINY)
        query = lf.group_by("a").map_groups(function, schema={"a": pl.Int64})
        return run_query(query, transport, options=TINY)

    assert all(isinstance(error, QueryMismatchError) for error in each_rank(2, work))


def test_files_that_differ_between_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pl.DataFrame({"a": [1, 2]}).write_parquet(tmp_path / "t.parquet")
    query = pl.scan_parquet(tmp_path / "t.parquet")
    monkeypatch.setattr(agreement, "_file_digest", lambda path: f"of {threading.current_thread().name}")
    found = each_rank(2, lambda transport: run_query(query, transport, options=TINY))
    assert all("t.parquet: of rank-0" in str(error) and "of rank-1" in str(error) for error in found)


def test_the_digest_of_a_file_sees_its_beginning_its_end_and_its_size(tmp_path: Path) -> None:
    def digest(content: bytes) -> str:
        (tmp_path / "f").write_bytes(content)
        return agreement._file_digest(str(tmp_path / "f"))

    whole = bytes(range(256)) * 1000
    others = [b"x" + whole[1:], whole[:-1] + b"x", whole + b"x", b"", b"x"]
    assert len({digest(content) for content in (whole, *others)}) == 6
    assert digest(whole) == digest(whole)
    assert agreement._file_digest(str(tmp_path / "none")) == "No such file or directory"


def test_a_rank_that_leaves_early_hides_no_mismatch() -> None:
    def work(transport):  # type: ignore[no-untyped-def]
        query = pl.LazyFrame({"a": [1]}).select(pl.col("a") + transport.rank)
        calls = iter([transport.allgather_bytes] * 2)

        def once(value, *, op):  # type: ignore[no-untyped-def]
            call = next(calls, None)
            if call is None and transport.rank == 1:
                raise RankFailedError("rank 0 failed: it left")
            return (call or (lambda value, op: [b"one", b"another"]))(value, op=op)

        transport.allgather_bytes = once
        return run_query(query, transport, options=TINY)

    assert all(isinstance(error, QueryMismatchError) for error in each_rank(2, work))


def test_parts_have_the_types_of_the_first_part_with_rows() -> None:
    parts = [
        pl.DataFrame(schema={"a": pl.Int64, "b": pl.List(pl.Null)}),
        pl.DataFrame({"a": [1], "b": [["x"]]}, schema={"a": pl.UInt128, "b": pl.List(pl.String)}),
        pl.DataFrame(schema={"a": pl.Int64, "b": pl.List(pl.String)}),
    ]

    def work(transport):  # type: ignore[no-untyped-def]
        facts = bytes([transport.rank])
        part, told = agree_on_end(
            parts[transport.rank], lambda value: transport.allgather_bytes(value, op=0), None, facts
        )
        assert told == [b"\0", b"\1", b"\2"]
        return part.schema

    assert set(map(repr, run_ranks(3, work))) == {repr(parts[1].schema)}


def test_rows_without_columns_end_with_their_number() -> None:
    def work(transport):  # type: ignore[no-untyped-def]
        lf = pl.LazyFrame(height=transport.rank + 1)
        return run_query(lf, transport, options=TINY).frame.height

    assert run_ranks(3, work) == [1, 2, 3]
