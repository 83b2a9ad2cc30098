"""One CSV, NDJSON or IPC file is read by all ranks, in any shape of query."""

from __future__ import annotations

import gzip
from collections import Counter
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from execute.compare import ORDINARY, PARTITIONED, TINY, assert_like_polars, run

from cudf_polars.lower import text_cuts, text_parts
from cudf_polars.lower.byte_files import ByteFile, open_bytes
from cudf_polars.plan.cloud import CloudAccess

ROWS = pl.DataFrame(
    {
        "id": range(400),
        "region": [("north", 'south, "far"', "east\nwest")[i % 3] for i in range(400)],
        "v": [i * 0.25 for i in range(400)],
    }
)
SCANS = {"csv": pl.scan_csv, "ndjson": pl.scan_ndjson, "ipc": pl.scan_ipc}
STRICT = replace(ORDINARY, fallback_mode="raise")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    ROWS.write_csv(folder / "rows.csv")
    ROWS.write_ndjson(folder / "rows.ndjson")
    ROWS.lazy().sink_ipc(folder / "rows.ipc", record_batch_size=50)
    (folder / "rows.csv.gz").write_bytes(gzip.compress((folder / "rows.csv").read_bytes()))
    return folder


def queries(scan, path):
    whole, numbered = scan(path), scan(path, row_index_name="n", row_index_offset=3)
    yield whole, True
    yield whole.filter(pl.col("region") == "east\nwest").select("v"), True
    yield whole.group_by("region").agg(pl.col("id").sum(), pl.len()), False
    yield whole.select(pl.len()), True
    yield whole.head(10), True
    yield whole.slice(100, 150).select("id"), True
    yield whole.tail(70).filter(pl.col("id") % 2 == 0), True
    yield whole.slice(-300, 200).select(pl.col("v").sum()), True
    yield numbered, True
    yield numbered.select("n").filter(pl.col("n") % 3 == 0), True
    yield numbered.filter(pl.col("id") > 250).select("n", "region"), True
    yield numbered.slice(-50, 20), True
    yield numbered.group_by("region").agg(pl.col("n").max()), False
    yield whole.join(whole.filter(pl.col("id") < 20), on="id", how="semi").sort("id"), True
    yield scan(path, include_file_paths="p").group_by("p").agg(pl.col("id").sum()), False


@pytest.mark.timeout(120)
@pytest.mark.parametrize("nranks", [2, 3])
@pytest.mark.parametrize("kind", SCANS)
def test_one_file(folder: Path, kind: str, nranks: int) -> None:
    for query, ordered in queries(SCANS[kind], folder / f"rows.{kind}"):
        assert_like_polars(query, nranks, STRICT, ordered=ordered)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("options", [TINY, PARTITIONED])
def test_one_csv_with_every_exchange(folder: Path, options) -> None:
    for query, ordered in list(queries(pl.scan_csv, folder / "rows.csv"))[:9]:
        assert_like_polars(query, 2, options, ordered=ordered)


@pytest.mark.timeout(60)
def test_each_of_two_ranks_reads_about_half(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: Counter[int] = Counter()

    def counted(path: str, cloud: CloudAccess | None) -> ByteFile:
        file = open_bytes(path, cloud)
        own = file.read

        def count(start: int, stop: int) -> bytes:
            text = own(start, stop)
            read.update(range(start, start + len(text)))
            return text

        monkeypatch.setattr(file, "read", count)
        return file

    monkeypatch.setattr(text_parts, "open_bytes", counted)
    for kind in ("csv", "ndjson"):
        read.clear()
        outcomes = assert_like_polars(SCANS[kind](folder / f"rows.{kind}"), 2, STRICT)
        assert len(read) == (folder / f"rows.{kind}").stat().st_size
        assert set(read.values()) == {1}  # no byte is parsed by two ranks
        assert all(150 < outcome.frame.height < 250 for outcome in outcomes)


@pytest.mark.timeout(60)
def test_what_is_read_to_find_the_cuts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Quotes are counted in the parts before another rank's, and in none for the first rows of a file."""
    path = tmp_path / "rows.csv"
    pl.concat([ROWS] * 400).write_csv(path)
    size, read = path.stat().st_size, []

    def counted(path: str, cloud: CloudAccess | None) -> ByteFile:
        file = open_bytes(path, cloud)
        own = file.read

        def count(start: int, stop: int) -> bytes:
            text = own(start, stop)
            read.append(len(text))
            return text

        monkeypatch.setattr(file, "read", count)
        return file

    monkeypatch.setattr(text_cuts, "open_bytes", counted)
    monkeypatch.setattr(text_cuts, "_HEAD", 1 << 10)
    assert_like_polars(pl.scan_csv(path).head(5), 2, STRICT)
    assert read == []
    for nranks in (2, 3):
        read.clear()
        assert_like_polars(pl.scan_csv(path).select("v"), nranks, STRICT)
        assert sum(read) < size * (nranks - 1) / nranks + (nranks << 17)
    read.clear()
    assert_like_polars(pl.scan_csv(path, quote_char=None).select(pl.len()), 2, STRICT)
    assert sum(read) < 2 << 17


@pytest.mark.timeout(60)
def test_what_one_rank_reads_says_why(folder: Path) -> None:
    (outcome, _) = assert_like_polars(pl.scan_csv(folder / "rows.csv.gz"), 2, ORDINARY)
    assert [text.rsplit("(")[-1] for text in outcome.fallbacks] == ["it is compressed)"]
    (outcome, _) = assert_like_polars(pl.scan_csv(folder / "rows.csv", infer_schema_length=None), 2, ORDINARY)
    assert "types are found in all of its rows" in outcome.fallbacks[0]
    with pytest.raises(NotImplementedError, match="compressed"):
        assert_like_polars(pl.scan_csv(folder / "rows.csv.gz"), 2, STRICT)


@pytest.mark.timeout(60)
def test_a_wrong_row_is_polars_own_error(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a\n" + "1\n" * 300 + "x\n" * 300)
    for query in (pl.scan_csv(path), pl.scan_csv(path).select(pl.col("a").sum())):
        with pytest.raises(pl.exceptions.ComputeError, match="could not parse"):
            run(query, 2, ORDINARY)
