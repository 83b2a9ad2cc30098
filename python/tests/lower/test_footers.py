"""Row groups from Parquet footers, by pyarrow and by our own reader."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from cudf_polars.lower import footers
from cudf_polars.lower.footers import (
    FileFooters,
    FooterError,
    RowGroup,
    _footer_bytes,
    parse_footer,
    read_row_groups,
)


@pytest.fixture
def path(tmp_path: Path) -> str:
    file = tmp_path / "t.parquet"
    pl.DataFrame({"a": range(1000), "s": [f"text {i}" for i in range(1000)]}).write_parquet(
        file, row_group_size=300
    )
    return str(file)


def test_rows_of_each_group(path: str) -> None:
    assert [group.rows for group in read_row_groups(path)] == [300, 300, 300, 100]


def test_own_reader_agrees_with_pyarrow(path: str) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    metadata = pq.read_metadata(path)
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    expected = tuple(RowGroup(group.num_rows, group.total_byte_size) for group in groups)
    assert parse_footer(_footer_bytes(path)) == expected


def test_footer_longer_than_the_first_read(tmp_path: Path) -> None:
    file = tmp_path / "wide.parquet"
    pl.DataFrame({f"column {i}": [i] * 40 for i in range(300)}).write_parquet(file, row_group_size=2)
    assert len(parse_footer(_footer_bytes(str(file)))) == 20


def test_file_without_rows(tmp_path: Path) -> None:
    file = tmp_path / "none.parquet"
    pl.DataFrame(schema={"a": pl.Int64}).write_parquet(file)
    assert sum(group.rows for group in read_row_groups(str(file))) == 0


@pytest.mark.parametrize("content", [b"", b"PAR1", b"not parquet at all, but long enough"])
def test_not_parquet(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "t.txt"
    file.write_bytes(content)
    with pytest.raises(FooterError, match=r"t\.txt"):
        read_row_groups(str(file))


def test_missing_and_remote(tmp_path: Path) -> None:
    with pytest.raises(FooterError, match=r"gone\.parquet"):
        read_row_groups(str(tmp_path / "gone.parquet"))
    with pytest.raises(FooterError, match=r"ftp://host/t\.parquet"):
        read_row_groups("ftp://user:secret@host/t.parquet")
    with pytest.raises(FooterError) as raised:
        read_row_groups("https://user:secret@host/t.parquet?signature=secret")
    assert "secret" not in str(raised.value)


def test_every_cut_of_a_footer_is_an_error_or_the_answer(path: str) -> None:
    footer = _footer_bytes(path)
    whole = parse_footer(footer)
    for length in range(0, len(footer), 7):
        try:
            assert parse_footer(footer[:length]) == whole
        except FooterError:
            continue


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
    monkeypatch.setattr(footers, "_native_reader", lambda: pytest.fail("read a second time"))
    for number, path in enumerate(paths[1:], start=1):
        assert sum(group.rows for group in files(path)) == number
    with pytest.raises(FooterError, match=r"0\.parquet"):
        files(paths[0])
