"""Files that a query holds as bytes are read by all ranks, like files of a file system."""

from __future__ import annotations

import gc
import io
import os
import sys
import threading
from dataclasses import replace
from pathlib import Path

import cloudpickle
import polars as pl
import pytest
from differential.devices import open_device
from execute.compare import ORDINARY, PARTITIONED, TINY, assert_like_polars
from execute.local_transport import LocalTransport, run_ranks
from polars.testing import assert_frame_equal

from cudf_polars.execute.agreement import QueryMismatchError
from cudf_polars.execute.lazy_batches import LazyBatches
from cudf_polars.execute.run import open_query, run_query
from cudf_polars.plan.memory_files import MemoryFile
from cudf_polars.plan.nodes import Scan
from cudf_polars.plan.read import read_plan
from cudf_polars.plan.rebuild import to_lazyframe

ROWS = pl.DataFrame(
    {
        "id": range(400),
        "region": [("north", 'south, "far"', "east\nwest")[i % 3] for i in range(400)],
        "v": [i * 0.25 for i in range(400)],
    }
)
STRICT = replace(ORDINARY, fallback_mode="raise")


def content(kind: str, rows: pl.DataFrame = ROWS) -> bytes:
    stream = io.BytesIO()
    match kind:
        case "parquet":
            rows.write_parquet(stream, row_group_size=50)
        case "csv":
            rows.write_csv(stream)
        case "ndjson":
            rows.write_ndjson(stream)
        case "ipc":
            rows.lazy().sink_ipc(stream, record_batch_size=50)
    return stream.getvalue()


SCANS = {"parquet": pl.scan_parquet, "csv": pl.scan_csv, "ndjson": pl.scan_ndjson, "ipc": pl.scan_ipc}


def queries(kind: str):
    scan, one = SCANS[kind], content(kind)
    more = content(kind, ROWS.with_columns(pl.col("id") + 400))
    whole = scan(one)
    yield whole, True
    yield scan(io.BytesIO(one)).filter(pl.col("id") % 3 == 1).select("v"), True
    yield whole.group_by("region").agg(pl.col("id").sum(), pl.len()), False
    yield whole.select(pl.len()), True
    yield whole.slice(100, 150).select("id"), True
    yield whole.tail(70), True
    yield (
        scan(one, row_index_name="n", row_index_offset=3).filter(pl.col("id") > 250).select("n", "region"),
        True,
    )
    yield scan([one, io.BytesIO(more)]), True
    yield scan([one, more, one], row_index_name="n").slice(300, 600).select("n", "id"), True
    yield whole.join(scan(more).with_columns(pl.col("id") - 200), on="id").sort("id"), True
    yield whole.select(pl.col("id").max() - pl.col("v").sum()), True
    yield pl.concat([whole, pl.LazyFrame(ROWS.clear())]), True


@pytest.mark.timeout(120)
@pytest.mark.parametrize("nranks", [1, 2, 3, 5])
@pytest.mark.parametrize("kind", SCANS)
def test_no_rank_reads_them_alone(kind: str, nranks: int) -> None:
    for query, ordered in queries(kind):
        assert_like_polars(query, nranks, STRICT, ordered=ordered)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("options", [TINY, PARTITIONED], ids=["tiny", "partitioned"])
@pytest.mark.parametrize("kind", SCANS)
def test_with_every_exchange(kind: str, options) -> None:
    for query, ordered in queries(kind):
        assert_like_polars(query, 2, options, ordered=ordered)


@pytest.mark.parametrize("kind", SCANS)
def test_each_rank_reads_its_part(kind: str) -> None:
    outcomes = assert_like_polars(SCANS[kind](content(kind)), 2, STRICT)
    assert min(outcome.frame.height for outcome in outcomes) >= 100


def test_the_paths_of_bytes_are_those_that_polars_gives() -> None:
    query = pl.scan_parquet([content("parquet")] * 2, include_file_paths="p")
    outcomes = assert_like_polars(query.group_by("p").len(), 2)
    assert outcomes[0].fallbacks != []


def test_hidden_expressions_over_bytes() -> None:
    query = pl.scan_csv(content("csv")).select(
        pl.col("id").map_elements(lambda v: v + 1, return_dtype=pl.Int64)
    )
    assert_like_polars(query, 2, STRICT)


def test_columns_with_names_that_polars_generates() -> None:
    rows = pl.scan_csv(content("csv"))
    query = pl.SQLContext(t=rows).execute(
        'SELECT "region", SUM("v") AS s FROM t GROUP BY "region" HAVING COUNT(*) > 1'
    )
    assert_like_polars(query, 2, STRICT, ordered=False)


@pytest.mark.parametrize(
    "query", [pl.scan_parquet(b"no Parquet"), pl.scan_ipc(b"no Arrow"), pl.scan_csv(b"")]
)
def test_wrong_bytes_are_errors_of_the_type_that_polars_raises(query: pl.LazyFrame) -> None:
    with pytest.raises((pl.exceptions.PolarsError, OSError)) as expected:
        query.collect()
    with pytest.raises((pl.exceptions.PolarsError, OSError)) as found:
        run_ranks(2, lambda transport: run_query(query, transport, options=STRICT))
    assert type(found.value) is type(expected.value)


def test_ranks_with_other_bytes_run_different_queries() -> None:
    """As with files: they are one table, which all ranks see."""

    def work(transport: LocalTransport) -> None:
        run_query(pl.scan_csv(b"a\n1\n2\n" if transport.rank else b"a\n1\n3\n"), transport, options=STRICT)

    with pytest.raises(QueryMismatchError) as raised:
        run_ranks(2, work)
    assert "/proc" not in str(raised.value)


# --- the files ---------------------------------------------------------------------------------------------


def descriptors() -> list[str]:
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            link = os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:
            continue
        found += [link] if "riverrun" in link and link.startswith("/memfd:") else []
    return found


def test_equal_bytes_are_one_file_which_ends_with_its_last_user() -> None:
    gc.collect()
    before = len(descriptors())
    one, same, other = MemoryFile.of(b"some rows"), MemoryFile.of(b"some rows"), MemoryFile.of(b"others")
    assert one is same
    assert one.name == same.name != other.name
    assert len(descriptors()) == before + 2
    with open(one, "rb") as file:
        assert file.read() == b"some rows"
    del one, same, other, file
    gc.collect()
    assert len(descriptors()) == before


@pytest.mark.parametrize("kind", SCANS)
@pytest.mark.parametrize("device", ["cpu", "emulated"])
def test_nothing_is_left_of_bytes_that_were_read(kind: str, device: str) -> None:
    """Footers are kept for later queries: the files in memory that they are of are not."""
    gc.collect()
    before = len(descriptors())
    for number in range(3):
        query = SCANS[kind]([content(kind), content(kind)]).filter(pl.col("id") > number)
        for options in (ORDINARY, PARTITIONED):
            run_ranks(2, lambda t, q=query, o=options: run_query(q, t, options=o, device=open_device(device)))
    del query
    gc.collect()
    assert len(descriptors()) == before


def test_a_plan_that_travels_brings_the_bytes() -> None:
    plan = read_plan(pl.scan_csv([b"a\n1\n", b"a\n2\n"]))
    packed = cloudpickle.dumps(plan)
    (scan,) = plan.nodes
    assert isinstance(scan, Scan)
    names = [path.name for path in scan.paths]
    del plan, scan
    gc.collect()
    (scan,) = cloudpickle.loads(packed).nodes
    assert [path.name for path in scan.paths] == names
    assert [Path(path).read_bytes() for path in scan.paths] == [b"a\n1\n", b"a\n2\n"]


@pytest.mark.parametrize("kind", SCANS)
def test_a_rebuilt_query_outlives_its_plan(kind: str) -> None:
    query = SCANS[kind]([content(kind), content(kind)]).filter(pl.col("id") > 3)
    rebuilt = to_lazyframe(read_plan(query).root)
    gc.collect()
    assert_frame_equal(rebuilt.collect(), query.collect())


@pytest.mark.parametrize("kind", SCANS)
def test_the_files_last_as_long_as_their_query(kind: str) -> None:
    gc.collect()
    before = len(descriptors())

    def work(transport: LocalTransport) -> pl.DataFrame:
        opened = open_query(
            SCANS[kind](content(kind)).with_columns(w=pl.col("v") * 2), transport, options=STRICT
        )
        gc.collect()
        return pl.concat(list(LazyBatches(opened.rows, pl.QueryOptFlags(), ordered=True)))

    parts = run_ranks(2, work)
    assert_frame_equal(pl.concat(parts), ROWS.with_columns(w=pl.col("v") * 2))
    del parts
    gc.collect()
    assert len(descriptors()) == before


@pytest.mark.timeout(60)
def test_a_file_that_ends_while_another_thread_asks_for_it() -> None:
    """It has either the one that is about to end, as long as it likes, or a new one."""
    former, wrong = sys.getswitchinterval(), []

    def work() -> None:
        for _ in range(3000):
            file = MemoryFile.of(b"some bytes")
            if not os.path.exists(file) or Path(file).read_bytes() != b"some bytes":
                wrong.append(file)
            del file

    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(former)
    assert wrong == []


def test_more_files_than_are_worth_a_descriptor_each() -> None:
    query = pl.scan_csv([f"a\n{n}\n".encode() for n in range(100)])
    outcomes = assert_like_polars(query, 2)
    assert outcomes[0].fallbacks != []
