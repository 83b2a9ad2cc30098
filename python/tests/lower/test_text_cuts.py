"""One text file cut into ranges of bytes: together they have the rows of the whole, in order."""

from __future__ import annotations

import gzip
import itertools
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from cudf_polars.lower.text_cuts import TextLook, decide_cuts, find_cut, last_end, look_at_text, text_key
from cudf_polars.lower.text_parts import scan_text_part
from cudf_polars.plan.nodes import Scan
from cudf_polars.plan.read import read_plan

ROWS = "".join(f"{i},text {i},{i / 2}\n" for i in range(60))
QUOTED = "".join(f'{i},"line {i}\nand ""more"", {"x" * (i % 7)}\n\n",{i / 2}\n' for i in range(60))

CSV: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": ("a,b,c\n" + ROWS, {}),
    "no last newline": ("a,b,c\n" + ROWS[:-1], {}),
    "CRLF": (("a,b,c\n" + ROWS).replace("\n", "\r\n"), {}),
    "quoted newlines": ("a,b,c\n" + QUOTED, {}),
    "quoted newlines, CRLF": (("a,b,c\n" + QUOTED).replace("\n", "\r\n"), {}),
    "a header with a newline": ('a,"b\nb",c\n' + QUOTED, {}),
    "no header": (ROWS, {"has_header": False}),
    "comments": ("# one\na,b,c\n# two\n" + ROWS.replace("\n7,", "\n# seven\n7,"), {"comment_prefix": "#"}),
    "lines before the header": ("a title\n\n" + "a,b,c\n" + ROWS, {"skip_lines": 2}),
    "rows before the header": ("x,y,z\na,b,c\n" + QUOTED, {"skip_rows": 1}),
    "rows after the header": ("a,b,c\nunits,of,b\n" + ROWS, {"skip_rows_after_header": 1}),
    "no quotes": ("a,b,c\n" + ROWS.replace("text 3", '"text 3'), {"quote_char": None}),
    "another separator": (("a,b,c\n" + ROWS).replace(",", ";"), {"separator": ";"}),
    "another end of line": (("a,b,c\n" + ROWS).replace("\n", "|"), {"eol_char": "|"}),
    "types": ("a,b,c\n" + ROWS, {"schema_overrides": {"a": pl.Int16, "c": pl.Float32}}),
    "a schema": ("a,b,c\n" + ROWS, {"schema": {"a": pl.String, "b": pl.String, "c": pl.String}}),
    "nulls": ("a,b,c\n" + ROWS.replace("text 4", "NA"), {"null_values": ["NA"]}),
    "late floats": ("a,b\n" + "".join(f"{i},{i if i < 30 else 7}\n" for i in range(300)), {}),
    "dates": (
        "a,d\n" + "".join(f"{i},2024-01-{i % 28 + 1:02}\n" for i in range(99)),
        {"try_parse_dates": True},
    ),
    "one column": ("a\n" + "".join(f"{i}\n\n" for i in range(40)), {}),
    "a header only": ("a,b,c\n", {}),
    "one row": ("a,b,c\n1,2,3", {}),
    "wide characters": ("a,b\n" + "".join(f'{i},"ä€😀\n{i}"\n' for i in range(50)), {}),
    "ragged": (
        "a,b\n" + "".join(f"{i},x,{i}\n" if i % 9 == 0 else f"{i},y\n" for i in range(50)),
        {"truncate_ragged_lines": True},
    ),
}
NDJSON: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": ("".join(f'{{"a": {i}, "b": "x\\n{i}"}}\n' for i in range(60)), {}),
    "no last newline": ("\n".join(f'{{"a": {i}}}' for i in range(60)), {}),
    "CRLF": ("".join(f'{{"a": {i}, "c": [1, {i}]}}\r\n' for i in range(60)), {}),
    "other columns later": ("".join(f'{{"a": {i}, "k{i // 40}": 1}}\n' for i in range(60)), {}),
    "types": ("".join(f'{{"a": {i}}}\n' for i in range(60)), {"schema_overrides": {"a": pl.Float64}}),
}
CASES = [("csv", *case) for case in CSV.items()] + [("ndjson", *case) for case in NDJSON.items()]


def scan_of(query: pl.LazyFrame) -> Scan:
    (scan,) = (node for node in read_plan(query).nodes if not node.children)
    assert isinstance(scan, Scan)
    return scan


def bounds_of(scan: Scan, nranks: int) -> list[int] | str:
    key = text_key(scan)
    looks = [look_at_text(key, rank, nranks) for rank in range(nranks)]
    reason = decide_cuts(looks, key[3])
    if reason:
        return reason
    return [*(find_cut(key, looks, rank) for rank in range(nranks)), looks[0].size]


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("kind", "name", "case"), CASES, ids=[f"{kind}: {name}" for kind, name, _ in CASES])
def test_parts_are_the_whole(kind: str, name: str, case: tuple[str, dict[str, Any]], tmp_path: Path) -> None:
    text, options = case
    path = tmp_path / f"t.{kind}"
    path.write_bytes(text.encode())
    query = (pl.scan_csv if kind == "csv" else pl.scan_ndjson)(path, **options)
    expected = query.collect()
    scan = scan_of(query)
    for nranks in (1, 2, 3, 5, 8):
        bounds = bounds_of(scan, nranks)
        assert not isinstance(bounds, str), bounds
        assert bounds == sorted(bounds)
        for piece_bytes in (40, 1000, 1 << 20):
            parts = [
                scan_text_part(scan, low, high, piece_bytes=piece_bytes).collect()
                for low, high in itertools.pairwise(bounds)
                if high > low
            ]
            assert_frame_equal(pl.concat(parts), expected)
    if expected.height > 30:
        low, middle, high = bounds_of(scan, 2)
        assert 0.3 < (middle - low) / (high - low) < 0.7


@pytest.mark.parametrize(
    ("content", "options", "reason"),
    [
        (gzip.compress(b"a\n1\n2\n", mtime=0), {}, "compressed"),
        (b'# it"s\na,b\n1,"x\ny"\n' * 9, {"comment_prefix": "#"}, "comments may hold quotes"),
        (b'5" of rain\na,b\n1,"x\ny"\n', {"skip_lines": 1}, "skipped hold quotes"),
    ],
)
def test_what_cannot_be_cut_says_why(
    content: bytes, options: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    found = bounds_of(scan_of(pl.scan_csv(path, **options)), 2)
    assert isinstance(found, str)
    assert reason in found


def test_files_that_differ_are_not_cut() -> None:
    from cudf_polars.lower.text_cuts import TextRules

    rules = TextRules(b"\n", b'"', b"", 1, False)
    assert "different sizes" in decide_cuts([TextLook(size=10), TextLook(size=11)], rules)


def test_the_last_end_of_a_record() -> None:
    from cudf_polars.lower.text_cuts import TextRules

    rules = TextRules(b"\n", b'"', b"", 0, False)
    assert last_end(b'1,"a\n', rules) == 0
    assert last_end(b'1,2\n3,"a\nb', rules) == 4
    assert last_end(b'1,"\n"\n3', rules) == 6


def test_limits_and_predicates(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,b,c\n" + QUOTED)
    query = pl.scan_csv(path, include_file_paths="p")
    part = scan_text_part(scan_of(query), 0, path.stat().st_size, piece_bytes=100)
    for narrow in (
        lambda lf: lf.head(7).filter(pl.col("a") % 2 == 0),
        lambda lf: lf.filter(pl.col("a") % 2 == 0).head(7),
        lambda lf: lf.filter(pl.col("c") > 3).select("p", "a"),
        lambda lf: lf.select(pl.len()),
    ):
        assert_frame_equal(narrow(part).collect(), narrow(query).collect())
