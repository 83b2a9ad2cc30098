"""Row groups from Parquet footers: of whole files, and of damaged and encrypted ones, on disks and in stores."""

from __future__ import annotations

import io
import random
import struct
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
import pytest

from cudf_polars.lower import footers
from cudf_polars.lower.byte_files import ByteFile
from cudf_polars.lower.column_bounds import read_column
from cudf_polars.lower.footers import (
    FileFooters,
    FooterError,
    RowGroup,
    count_rows,
    read_footer,
    read_row_groups,
)
from support.ranks import find_rrun

URL = "s3://user:secret@bucket/t.parquet"


@pytest.fixture
def path(tmp_path: Path) -> str:
    file = tmp_path / "t.parquet"
    pl.DataFrame({"a": range(1000), "s": [f"text {i}" for i in range(1000)]}).write_parquet(
        file, row_group_size=300
    )
    return str(file)


class _InMemory(ByteFile):
    """What a store would give."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self.size = len(content)

    def read(self, start: int, stop: int) -> bytes:
        assert 0 <= start
        return self._content[start:stop]

    def close(self) -> None:
        pass


def _serve(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr(footers, "open_bytes", lambda path, cloud: _InMemory(content))


def _framed(footer: bytes, magic: bytes = b"PAR1") -> bytes:
    return b"PAR1" + footer + struct.pack("<I", len(footer)) + magic


def test_rows_and_bytes_of_each_group(path: str) -> None:
    found = read_row_groups(path)
    assert [group.rows for group in found] == [300, 300, 300, 100]
    metadata = pq.read_metadata(path)
    assert [group.nbytes for group in found] == [metadata.row_group(i).total_byte_size for i in range(4)]


@pytest.mark.parametrize("store", [False, True])
def test_footer_longer_than_the_first_read(
    store: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "wide.parquet"
    pl.DataFrame({f"column {i}": [i] * 40 for i in range(300)}).write_parquet(file, row_group_size=2)
    if store:
        _serve(monkeypatch, file.read_bytes())
    assert len(read_footer(str(file))) > footers._TAIL_BYTES
    assert [group.rows for group in read_row_groups(URL if store else str(file))] == [2] * 20


def test_file_without_rows(tmp_path: Path) -> None:
    file = tmp_path / "none.parquet"
    pl.DataFrame(schema={"a": pl.Int64}).write_parquet(file)
    assert sum(group.rows for group in read_row_groups(str(file))) == 0


_REFUSED = {
    "empty": (b"", "not a Parquet file"),
    "magic only": (b"PAR1", "not a Parquet file"),
    "text": (b"not parquet at all, but long enough", "not a Parquet file"),
    "encrypted": (_framed(b"whatever a cipher gives", b"PARE"), "encrypted"),
    "encrypted magic only": (b"PARE", "encrypted"),
    "footer longer than the file": (b"PAR1" + struct.pack("<I", 5) + b"PAR1", "exceeds the file"),
    "footer of 4 GB": (b"PAR1 rows \xff\xff\xff\xffPAR1", "exceeds the file"),
    "footer without bytes": (_framed(b""), "cannot be read"),
    "zeros": (_framed(bytes(100)), "cannot be read"),
}


@pytest.mark.parametrize("what", _REFUSED)
def test_no_footer(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content, error = _REFUSED[what]
    file = tmp_path / "t.txt"
    file.write_bytes(content)
    if error != "cannot be read":
        monkeypatch.setattr(footers, "row_group_sizes", lambda *_: pytest.fail("it is parsed"))
    with pytest.raises(FooterError, match=rf"/t\.txt: .*{error}"):
        read_row_groups(str(file))
    _serve(monkeypatch, content)
    with pytest.raises(FooterError, match=rf"^s3://bucket/t\.parquet: .*{error}"):
        read_row_groups(URL)


def test_missing_and_remote(tmp_path: Path) -> None:
    with pytest.raises(FooterError, match=r"gone\.parquet"):
        read_row_groups(str(tmp_path / "gone.parquet"))
    with pytest.raises(FooterError, match=r"gone\.parquet"):
        read_footer(str(tmp_path / "gone.parquet"))
    with pytest.raises(FooterError, match="directory"):
        read_row_groups(str(tmp_path))
    with pytest.raises(FooterError, match=r"ftp://host/t\.parquet"):
        read_row_groups("ftp://user:secret@host/t.parquet")
    with pytest.raises(FooterError) as raised:
        read_row_groups("https://user:secret@host/t.parquet?signature=secret")
    assert "secret" not in str(raised.value)


# -- damage ---------------------------------------------------------------------------------------------------


def _row_groups_of(
    content: bytes, file: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[RowGroup, ...] | None:
    """Return the row groups that a file on a disk and in a store has, None if both are refused."""
    file.write_bytes(content)
    footers._row_groups_of.cache_clear()  # the clock of files may not have gone on
    found: list[tuple[RowGroup, ...] | None] = []
    errors: list[str] = []
    for path in (str(file), URL):
        try:
            with monkeypatch.context() as patch:
                if path == URL:
                    _serve(patch, content)
                found.append(read_row_groups(path))
        except FooterError as error:
            errors.append(str(error))
            found.append(None)
    assert found[0] == found[1]
    if errors:
        of_file, of_store = errors
        assert of_file.startswith(f"{file}: ")
        assert of_store.startswith("s3://bucket/t.parquet: ")
    return found[0]


def test_every_cut_of_a_footer_is_an_error(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Path(path).read_bytes()
    footer = read_footer(path)[4:-8]
    for length in range(0, len(footer), 7):
        # The last bytes are no part of what is asked for.
        found = _row_groups_of(_framed(footer[:length]), tmp_path / "cut.parquet", monkeypatch)
        assert found is None or found == read_row_groups(path)
    for length in range(0, len(whole), max(1, len(whole) // 100)):
        assert _row_groups_of(whole[:length], tmp_path / "cut.parquet", monkeypatch) is None


def _samples() -> list[bytes]:
    """Return files as two libraries write them."""
    rows = 60
    frame = pl.DataFrame(
        {
            "integer": range(rows),
            "text": [f"text {i}" for i in range(rows)],
            "number": [i / 3 for i in range(rows)],
            "list": [[i] for i in range(rows)],
            "struct": [{"x": i} for i in range(rows)],
        }
    )
    columns = [
        pl.lit(1).cast(pl.Date).alias("date"),
        pl.lit(1).cast(pl.Datetime("us", "UTC")).alias("time"),
        pl.lit(1).cast(pl.Decimal(12, 2)).alias("money"),
    ]
    frame = frame.with_columns(columns)
    files = []
    for statistics in (True, False):
        file = io.BytesIO()
        frame.write_parquet(file, row_group_size=20, statistics=statistics)
        files.append(file.getvalue())
    file = io.BytesIO()
    pq.write_table(frame.to_arrow(), file, row_group_size=20)
    return [*files, file.getvalue()]


def _damaged(rng: random.Random, file: bytes) -> bytes:
    (length,) = struct.unpack("<I", file[-8:-4])
    footer = bytearray(file[-8 - length : -8])
    match rng.randrange(6):
        case 0 | 1:
            for _ in range(rng.choice([1, 1, 2, 20])):
                footer[rng.randrange(length)] ^= 1 << rng.randrange(8)
        case 2:
            for _ in range(rng.choice([1, 1, 3])):
                footer[rng.randrange(length)] = rng.randrange(256)
        case 3:
            place = rng.randrange(length)
            del footer[place : place + rng.randrange(1, 10)]
        case 4:
            del footer[rng.randrange(length) :]
        case _:
            footer = bytearray(rng.randbytes(rng.choice([1, 10, 1000])))
    damaged = bytearray(_framed(bytes(footer)))
    if rng.random() < 0.1:
        damaged[-8 + rng.randrange(8)] ^= 1 << rng.randrange(8)
    return bytes(damaged)


def test_of_damaged_footers_only_errors_of_ours_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(1)
    samples = _samples()
    answers = slowest = 0.0
    for _ in range(3000):
        content = _damaged(rng, rng.choice(samples))
        begin = time.thread_time()
        answers += _row_groups_of(content, tmp_path / "damaged.parquet", monkeypatch) is not None
        slowest = max(slowest, time.thread_time() - begin)
    assert 0 < answers < 3000  # some bits say nothing about row groups
    assert slowest < 1


def test_of_columns_in_damaged_footers_only_errors_of_ours_come() -> None:
    rng = random.Random(2)
    samples = _samples()
    names = ["integer", "text", "number", "list", "struct", "date", "time", "money", "absent"]
    answers = 0
    for _ in range(3000):
        content = _damaged(rng, rng.choice(samples))
        (length,) = struct.unpack("<I", content[-8:-4])
        file = _framed(content[max(4, len(content) - 8 - length) : -8])
        try:
            answers += read_column(file, "t", rng.choice(names)) is not None
        except FooterError:
            continue
    assert 0 < answers < 3000


def test_a_plain_footer_of_encrypted_columns(tmp_path: Path) -> None:
    """Its row groups are known; nothing is said of its columns."""
    file = tmp_path / "t.parquet"
    pl.DataFrame({"a": range(100)}).write_parquet(file, row_group_size=30)
    content = read_footer(str(file))
    column = read_column(content, "t", "a")
    assert column is not None
    assert [chunk.bounds for chunk in column.chunks] == [(0, 29), (30, 59), (60, 89), (90, 99)]
    signed = _framed(content[4:-8] + bytes(28))
    file.write_bytes(signed)
    assert [group.rows for group in read_row_groups(str(file))] == [30, 30, 30, 10]
    with pytest.raises(FooterError, match=r"t: .*encrypted"):
        read_column(signed, "t", "a")


# -- what is kept ---------------------------------------------------------------------------------------------


def test_a_file_is_read_again_when_it_has_changed(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    for rows in (10, 20, 20, 30):
        pl.DataFrame({"a": range(rows)}).write_parquet(path)
        assert sum(group.rows for group in read_row_groups(str(path))) == rows


def test_many_footers_are_read_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [str(tmp_path / f"{number}.parquet") for number in range(20)]
    for number, path in enumerate(paths[1:], start=1):
        pl.DataFrame({"a": range(number)}).write_parquet(path)
    files = FileFooters()
    files.read_ahead((path, None) for path in paths)  # the first is missing
    monkeypatch.setattr(footers, "read_footer", lambda *_: pytest.fail("read a second time"))
    for number, path in enumerate(paths[1:], start=1):
        assert sum(group.rows for group in files(path)) == number
    with pytest.raises(FooterError, match=r"0\.parquet"):
        files(paths[0])


def test_footers_of_stores_are_kept(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Path(path).read_bytes()
    files = FileFooters()
    _serve(monkeypatch, whole)
    assert files.of_store(URL, None) is None
    assert files(URL) == read_row_groups(path)
    kept = files.of_store(URL, None)
    assert kept == read_footer(path)
    assert len(kept) < len(whole)
    monkeypatch.setattr(footers, "open_bytes", lambda *_: pytest.fail("read a second time"))
    assert len(files(URL)) == 4


def test_of_large_footers_in_stores_only_the_rows_are_kept(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _serve(monkeypatch, Path(path).read_bytes())
    monkeypatch.setattr(footers, "_KEPT_BYTES", 100)
    files = FileFooters()
    assert len(files(URL)) == 4
    assert files.of_store(URL, None) is None


# -- rows that Polars counts ----------------------------------------------------------------------------------


def test_rows_of_files_are_counted_anew_when_one_has_changed(tmp_path: Path) -> None:
    paths = [str(tmp_path / f"{number}=x.parquet") for number in range(3)]
    for number, path in enumerate(paths):
        pl.DataFrame({"a": range(number)}).write_parquet(path)
    assert count_rows(paths) == count_rows(paths) == 3
    pl.DataFrame({"a": range(100)}).write_parquet(paths[0])
    assert count_rows(paths) == 103


def test_rows_that_cannot_be_counted(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    with pytest.raises(FooterError, match=r"t\.parquet"):
        count_rows([str(path)])
    path.write_bytes(b"no such file" * 10)
    with pytest.raises(FooterError, match=r"t\.parquet"):
        count_rows([str(path)])


WITHOUT_PYARROW = """
import sys
import polars as pl
from cudf_polars import SPMDEngine
with SPMDEngine() as engine:
    rows = pl.scan_parquet(sys.argv[1])
    groups = rows.filter(pl.col("a") >= 0).group_by("a").agg(pl.len()).collect(engine=engine)
    assert 4_000_000 // engine.nranks // 2 < groups.height <= 4_000_000  # this rank's part of the answer
assert "pyarrow" not in sys.modules
"""


@pytest.mark.parametrize("nranks", [1, 2])
def test_queries_need_no_pyarrow(nranks: int, tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pl.LazyFrame({"a": range(4_000_000)}).sink_parquet(path, compression="uncompressed")
    assert path.stat().st_size > 16e6  # the footers of smaller files are not read
    launcher = [find_rrun(), "-n", str(nranks)] if nranks > 1 else []
    subprocess.run([*launcher, sys.executable, "-c", WITHOUT_PYARROW, str(path)], check=True)
