"""What the next exchange sends is made while an exchange runs: where memory allows it, and nothing is left running."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import polars as pl
import pytest
from execute.local_transport import run_ranks
from polars.io.plugins import register_io_source

from cudf_polars.execute.next_exchange import bytes_ahead
from cudf_polars.execute.options import ExecutionOptions
from cudf_polars.execute.partitions import PartitionPlan
from cudf_polars.execute.run import run_query

SECONDS = 60.0
ROWS = pl.DataFrame({"k": range(100)})


def _source(rows: Callable[[], Iterator[pl.DataFrame]]) -> pl.LazyFrame:
    def read(
        with_columns: list[str] | None,
        predicate: pl.Expr | None,
        n_rows: int | None,
        batch_size: int | None,
    ) -> Iterator[pl.DataFrame]:
        del predicate, n_rows, batch_size
        for frame in rows():
            yield frame if with_columns is None else frame.select(with_columns)

    return register_io_source(read, schema=dict(ROWS.schema))


def _run(query: pl.LazyFrame, *, partitions: int = 1) -> pl.DataFrame:
    """Run a query on two ranks without counts; nothing is copied to all ranks."""
    options = ExecutionOptions(
        broadcast_limit=0,
        small_limit=0,
        dynamic_planning=False,
        partitions=partitions,
        fallback_mode="silent",
    )
    return pl.concat(
        run_ranks(2, lambda transport: run_query(query, transport, options=options).frame),
    )


def _no_fragment_runs() -> bool:
    deadline = time.monotonic() + SECONDS
    while any(thread.name == "riverrun-fragment" for thread in threading.enumerate()):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def _joined(first: pl.LazyFrame, second: pl.LazyFrame) -> pl.LazyFrame:
    return first.join(second, on="k", how="full")


def _union(first: pl.LazyFrame, second: pl.LazyFrame) -> pl.LazyFrame:
    return pl.concat([first.unique(), second.unique()])


@pytest.mark.parametrize("query", [_joined, _union])
def test_two_inputs_are_read_at_the_same_time(
    query: Callable[[pl.LazyFrame, pl.LazyFrame], pl.LazyFrame],
) -> None:
    both = threading.Barrier(2)

    def rows() -> Iterator[pl.DataFrame]:
        both.wait(SECONDS)  # no row comes of one before the other is read
        yield ROWS

    answer = _run(query(_source(rows), _source(rows)))
    expected = query(ROWS.lazy(), ROWS.lazy()).collect()
    assert answer.sort(answer.columns).equals(expected.sort(expected.columns))
    assert _no_fragment_runs()


def test_one_fragment_at_a_time_runs_ahead() -> None:
    reading, most = set[int](), 0
    begins = threading.Condition()

    def source(number: int) -> pl.LazyFrame:
        def rows() -> Iterator[pl.DataFrame]:
            nonlocal most
            with begins:
                reading.add(number)
                most = max(most, len(reading))
                begins.notify_all()
                begins.wait_for(lambda: most > 1, SECONDS)
            for _ in range(5):
                time.sleep(0.01)  # a third one would begin meanwhile
                yield ROWS
            with begins:
                reading.remove(number)

        return _source(rows)

    answer = _run(pl.concat([source(number).unique() for number in range(5)]))
    assert answer["k"].sort().to_list() == sorted([*range(100)] * 5)
    assert most == 2


def test_rows_that_do_not_fit_are_read_in_turn() -> None:
    log: list[str] = []

    def source(name: str) -> pl.LazyFrame:
        def rows() -> Iterator[pl.DataFrame]:
            log.append(f"{name} begins")
            yield ROWS
            time.sleep(0.05)
            log.append(f"{name} ends")

        return _source(rows)

    assert _run(_joined(source("left"), source("right")), partitions=3).height == 100
    assert log == ["left begins", "left ends", "right begins", "right ends"]


@pytest.mark.parametrize("failing", [0, 1])
def test_an_input_that_fails_ends_the_other_one(failing: int) -> None:
    both = threading.Barrier(2)

    def source(number: int) -> pl.LazyFrame:
        def rows() -> Iterator[pl.DataFrame]:
            both.wait(SECONDS)
            if number == failing:
                raise ValueError("no such rows")
            while number > failing:  # for ever, unless it is ended
                yield ROWS
            yield ROWS

        return _source(rows)

    with pytest.raises(ValueError, match="no such rows"):
        _run(_joined(source(0), source(1)))
    assert _no_fragment_runs()


def test_how_many_bytes_may_wait() -> None:
    assert bytes_ahead(PartitionPlan(), on_cpu=True) == 64 << 20
    assert bytes_ahead(PartitionPlan(limit=1 << 40), on_cpu=True) == 64 << 20
    assert bytes_ahead(PartitionPlan(limit=8000), on_cpu=True) == 1000
    assert bytes_ahead(PartitionPlan(count=2), on_cpu=True) == 0
    assert bytes_ahead(PartitionPlan(), on_cpu=False) == 0
