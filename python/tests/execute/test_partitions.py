"""A rank works on one partition of its rows after the other, and gives its rows away while they are made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import polars as pl
import pytest
from execute.compare import ORDINARY, PARTITIONED, TINY, compare_answers
from execute.local_transport import KeptFrame, LocalTransport, OneShotStream, run_ranks

from cudf_polars.execute import paths
from cudf_polars.execute.options import ExecutionOptions
from cudf_polars.execute.run import QueryOutcome, run_query, stream_query
from support.web_server import web_server
from support.wrong_answers import ORDERED, from_files, queries

QUERIES = queries()
N, G = pl.col("n"), pl.col("g")


class _Watched(OneShotStream):
    """Rows of a partition; says when they are read."""

    def __init__(self, stream: OneShotStream, read: Callable[[], None]) -> None:
        self._stream, self._read = stream, read

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Say so, and return the stream."""
        self._read()
        return self._stream.__arrow_c_stream__(requested_schema)

    def store(self) -> KeptFrame:
        """Say so, and return the rows."""
        self._read()
        return self._stream.store()


class _WatchedTransport(LocalTransport):
    """Notes the partitions of shuffles in the order in which they are read."""

    def __init__(self, given: LocalTransport) -> None:
        super().__init__(given._group, given._rank)
        self.read: list[tuple[int, int]] = []

    def shuffle(self, *args: object, op: int, partitions: int = 1) -> list[OneShotStream]:
        """As for the base."""
        streams = super().shuffle(*args, op=op, partitions=partitions)  # type: ignore[arg-type]
        return [
            _Watched(stream, lambda number=number: self.read.append((op, number)))  # type: ignore[misc]
            for number, stream in enumerate(streams)
        ]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("nranks", [1, 2])
def test_both_sides_of_a_join_are_read_partition_by_partition(tmp_path: Path, nranks: int) -> None:
    table, small = from_files(tmp_path)
    query = table.join(small.with_columns(N - 60), on="n", how="left").group_by("n").agg(pl.col("x").sum())

    def work(transport: LocalTransport) -> list[tuple[int, int]]:
        watched = _WatchedTransport(transport)
        run_query(query, watched, options=PARTITIONED)
        return watched.read

    for read in run_ranks(nranks, work):
        numbers = [number for _, number in read]
        assert numbers == sorted(numbers), read
        assert {number for _, number in read} == {0, 1, 2}
        assert len({op for op, _ in read}) == 2


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("nranks", "options"), [(1, PARTITIONED), (2, TINY), (2, ORDINARY), (3, PARTITIONED)]
)
@pytest.mark.parametrize("name", list(QUERIES))
def test_streamed_rows_are_those_of_the_answer(
    tmp_path: Path, name: str, nranks: int, options: ExecutionOptions
) -> None:
    query = QUERIES[name](*from_files(tmp_path))
    expected = query.collect(engine="streaming")

    def work(transport: LocalTransport) -> pl.DataFrame:
        path = tmp_path / f"{transport.rank}.ipc"
        outcome = stream_query(query, transport, lambda rows: rows.sink_ipc(path), options=options)
        assert outcome.frame.is_empty()
        return pl.read_ipc(path)

    compare_answers(pl.concat(run_ranks(nranks, work)), expected, ordered=name in ORDERED)


def test_a_failure_while_rows_are_written_keeps_its_type(tmp_path: Path) -> None:
    table, _ = from_files(tmp_path)
    query = table.sort("n").with_columns(pl.col("s").cast(pl.Int64))

    def work(transport: LocalTransport) -> None:
        path = tmp_path / f"{transport.rank}.parquet"
        stream_query(query, transport, lambda rows: rows.sink_parquet(path), options=PARTITIONED)

    with pytest.raises(pl.exceptions.InvalidOperationError, match="conversion from `str`"):
        run_ranks(2, work)


@pytest.mark.parametrize(
    ("options", "nbytes", "expected"),
    [
        (ExecutionOptions(), 1e12, 1),
        (ExecutionOptions(memory=1000), 500, 1),
        (ExecutionOptions(memory=1000), 2000, 16),
        (ExecutionOptions(memory=1000), 1e12, 256),
        (ExecutionOptions(memory=1000, target_partition_size=100), 500, 3),
        (ExecutionOptions(target_partition_size=100), 500, 3),
        (ExecutionOptions(memory=1000, partitions=5), 10, 5),
    ],
)
def test_number_of_partitions(options: ExecutionOptions, nbytes: float, expected: int) -> None:
    assert options.partitions_of(nbytes, nranks=2) == expected


def test_one_rank_cuts_what_its_memory_has_no_room_for(tmp_path: Path) -> None:
    pl.DataFrame({"k": range(1_500_000), "v": 1.5}).write_parquet(
        tmp_path / "t.parquet", compression="uncompressed", use_pyarrow=False
    )
    query = pl.scan_parquet(tmp_path / "t.parquet").group_by("k").agg(pl.col("v").median()).sort("k")
    plain = ExecutionOptions(fallback_mode="silent", memory=1 << 40)
    for options, whole in ((plain, True), (replace(plain, memory=8 << 20), False)):
        (outcome,) = run_ranks(
            1, lambda transport, options=options: run_query(query, transport, options=options)
        )
        assert (outcome.physical is None) == whole
        compare_answers(outcome.frame, query.collect(engine="streaming"), ordered=True)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (ExecutionOptions(), 1),
        (ExecutionOptions(max_rows_per_partition=100), 5),
        (ExecutionOptions(max_rows_per_partition=500), 1),
        (ExecutionOptions(max_rows_per_partition=1), 256),
        (ExecutionOptions(max_rows_per_partition=100, memory=100), 16),
        (ExecutionOptions(max_rows_per_partition=100, partitions=2), 2),
    ],
)
def test_rows_of_frames_ask_for_partitions(options: ExecutionOptions, expected: int) -> None:
    assert options.plan_of(200.0, nranks=2, frame_rows=1000.0).count == expected


@pytest.mark.parametrize("nranks", [1, 2, 3])
@pytest.mark.parametrize(
    ("options", "is_cut"),
    [
        (ExecutionOptions(memory=1 << 40), False),
        (ExecutionOptions(memory=1 << 20), True),
        (ExecutionOptions(memory=1 << 40, max_rows_per_partition=10_000), True),
        (ExecutionOptions(max_rows_per_partition=10_000), True),
        (ExecutionOptions(memory=1 << 40, max_rows_per_partition=100_000), False),
    ],
)
def test_frames_are_cut_where_they_are_too_large(
    nranks: int, options: ExecutionOptions, is_cut: bool
) -> None:
    frame = pl.select(k=pl.int_range(100_000) * 7919 % 5003, v=pl.int_range(100_000))

    def query(rows: pl.DataFrame) -> pl.LazyFrame:
        return rows.lazy().group_by("k").agg(pl.col("v").median()).sort("k")

    def work(transport: LocalTransport) -> QueryOutcome:
        # The first rank has most of the rows, the last one none.
        parts = [frame.slice(0, 90_000), frame.slice(90_000), frame.clear()]
        part = frame if transport.nranks == 1 else parts[transport.rank]
        return run_query(query(part), transport, options=options)

    outcomes = run_ranks(nranks, work)
    assert len({outcome.partitions for outcome in outcomes}) == 1
    assert (outcomes[0].partitions > 1) == is_cut
    assert (outcomes[0].physical is None) == (nranks == 1 and not is_cut)
    answer = pl.concat(outcome.frame for outcome in outcomes)
    compare_answers(answer, query(frame).collect(engine="streaming"), ordered=True)


@pytest.mark.parametrize(("groups", "in_chunks"), [(1000, False), (40_000, True)])
def test_many_groups_are_aggregated_by_chunks_of_rows(tmp_path: Path, groups: int, in_chunks: bool) -> None:
    """Polars holds a key and its aggregates for nearly each row, where there are too many groups for one table."""
    number = pl.int_range(2_500_000)
    rows = pl.select(k=(number * 7919) % groups, v=number.hash() % (1 << 40))
    rows.write_parquet(tmp_path / "t.parquet", row_group_size=100_000)
    query = pl.scan_parquet(tmp_path / "t.parquet").group_by("k").agg(pl.col("v").sum())
    options = ExecutionOptions(fallback_mode="silent", memory=64 << 20)
    (outcome,) = run_ranks(1, lambda transport: run_query(query, transport, options=options))
    assert outcome.physical is not None
    assert "PARTIAL GROUPBY" in outcome.explain()
    assert (outcome.paths.counts[paths.CHUNKS] > 1) == in_chunks
    # Each chunk gives partial groups of its own: many rows, of which few groups are made.
    assert "GATHER to rank 0" in outcome.explain()
    compare_answers(outcome.frame, query.collect(engine="streaming"), ordered=False)


@pytest.mark.parametrize("in_files", [True, False])
def test_one_rank_cuts_small_tables_whose_join_its_memory_has_no_room_for(
    tmp_path: Path, in_files: bool
) -> None:
    sides = [
        pl.DataFrame({"k": [f"key {i * factor % 20}" for i in range(4000)], name: range(4000)})
        for factor, name in ((7, "v"), (11, "w"))
    ]
    for side in sides:
        side.write_parquet(tmp_path / f"{side.columns[1]}.parquet")
    left, right = (
        pl.scan_parquet(tmp_path / f"{side.columns[1]}.parquet") if in_files else side.lazy()
        for side in sides
    )
    joined = left.join(right, on="k")
    crossed = left.select("v").head(500).join(right.select("w").head(1500), how="cross")
    medians = joined.group_by("v").agg(pl.col("w").median()).sort("v")
    plain = ExecutionOptions(fallback_mode="silent", memory=8 << 20)
    for query, options, whole in (
        (medians, plain, False),
        (medians, replace(plain, memory=1 << 30), True),
        (medians, replace(plain, memory=1 << 30, target_partition_size=1 << 20), False),
        (joined.group_by("k").agg(pl.col("w").sum()).sort("k"), plain, True),
        (left.join(right.unique("k"), on="k").sort("v").select("v"), plain, True),
        (crossed.group_by("v").agg(pl.col("w").median()).sort("v"), plain, False),
    ):
        (outcome,) = run_ranks(
            1, lambda transport, query=query, options=options: run_query(query, transport, options=options)
        )
        assert (outcome.physical is None) == whole
        assert (outcome.partitions == 1) == whole
        compare_answers(outcome.frame, query.collect(engine="streaming"), ordered=True)
    written: list[pl.DataFrame] = []
    (outcome,) = run_ranks(
        1,
        lambda transport: stream_query(
            joined, transport, lambda rows: written.append(rows.collect()), options=plain
        ),
    )
    assert outcome.physical is None  # its rows are written while they are made
    compare_answers(written[0], joined.collect(engine="streaming"), ordered=False)


def test_one_rank_cuts_tables_in_stores_that_its_memory_has_no_room_for() -> None:
    written = BytesIO()
    rows = pl.DataFrame({"k": range(400_000), "v": 1.5})
    rows.write_parquet(written, row_group_size=50_000)
    plain = ExecutionOptions(fallback_mode="silent", memory=1 << 30)
    with web_server({"/t.parquet": written.getvalue()}) as host:
        query = pl.scan_parquet(f"http://{host}/t.parquet").group_by("k").agg(pl.col("v").median()).sort("k")
        for options, whole in ((plain, True), (replace(plain, memory=8 << 20), False)):
            (outcome,) = run_ranks(
                1, lambda transport, options=options: run_query(query, transport, options=options)
            )
            assert (outcome.physical is None) == whole
            compare_answers(outcome.frame, rows, ordered=True)
