"""Random files of every format, with the options of their scans, and short queries of them."""

from __future__ import annotations

import datetime as dt
import gzip
import io
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["ScanCase", "queries", "random_scan"]

STRANGE = [
    *(
        "",
        "a",
        "b b",
        "x,y",
        'q"q',
        "new\nline",
        "é",
        "#no",
        None,
        "1",
        "1.5",
        "2020-01-01",
        "a;b",
        "'",
        "NA",
    ),
    *(" lead", "null", "true", "cr\rlf", "tab\tx", "12:30:00"),
]
PLAIN = ["a", "b b", "c", "é", "zz", None, "#x", "1.5"]
HIVE = [
    ["1", "02", "003"],
    ["a b", "x/y", "é%", "k=v"],
    ["1", None, "3"],
    ["2020-01-01", "2021-05-06"],
    ["-1", "7"],
    ["1.5", "2"],
    ["true", "false"],
    ["", "a"],
]
"""Values of a partition, as text; None is a null."""


@dataclass
class ScanCase:
    """A scan and what its files are like.

    Attributes
    ----------
    kind
        ``"parquet"``, ``"csv"``, ``"ndjson"`` or ``"ipc"``.
    target, options
        What is given to the scan.
    dialect
        How texts are written.
    """

    kind: str
    target: Any = None
    options: dict[str, Any] = field(default_factory=dict)
    dialect: dict[str, Any] = field(default_factory=dict)

    def scan(self) -> pl.LazyFrame:
        """Return the scan."""
        scan: pl.LazyFrame = getattr(pl, f"scan_{self.kind}")(self.target, **self.options)
        return scan


def random_scan(rng: random.Random, folder: Path) -> ScanCase:
    """Write files below a new folder."""
    case = ScanCase(rng.choice(["parquet", "parquet", "csv", "csv", "csv", "ndjson", "ipc"]))
    _choose_options(rng, case)
    many = rng.choice([1, 1, 1, 2, 3, 4])
    values = rng.choice(HIVE) if many > 1 and rng.random() < 0.35 else None
    paths = _write_files(rng, case, folder, many, values)
    _choose_target(rng, case, folder, paths, values is not None)
    if rng.random() < 0.2:
        case.options["include_file_paths"] = "path"
    if rng.random() < 0.25:
        case.options |= {"row_index_name": "rn", "row_index_offset": rng.choice([0, 3, 1000])}
    return case


def _choose_options(rng: random.Random, case: ScanCase) -> None:
    options: list[tuple[float, dict[str, Any]]] = [
        (0.06, {"n_rows": rng.choice([0, 1, 5, 17, 100])}),
        (0.05, {"glob": True}),
    ]
    if case.kind == "csv":
        _choose_dialect(rng, case)
    if case.kind == "ndjson":
        case.dialect = {"pack": rng.choice(["gz", "zst", *[""] * 18])}
        options += [
            (0.2, {"infer_schema_length": rng.choice([5, 100, None])}),
            (0.15, {"schema_overrides": {"id": pl.Float64}}),
            (0.1, {"ignore_errors": True}),
            (0.1, {"schema": {"id": pl.Int64, "s": pl.String, "nope": pl.Int8}}),
        ]
        options.pop(1)
    if case.kind == "parquet":
        options += [
            (0.1, {"parallel": rng.choice(["columns", "row_groups", "prefiltered", "none"])}),
            (0.1, {"use_statistics": False}),
            (0.1, {"low_memory": True}),
        ]
    for chance, chosen in options:
        if rng.random() < chance:
            case.options |= chosen


def _choose_dialect(rng: random.Random, case: ScanCase) -> None:
    def often(chance: float) -> bool:
        return rng.random() < chance

    case.dialect = dialect = {
        "separator": rng.choice([",", ",", ";", "\t", "|"]),
        "style": rng.choice(["necessary", "necessary", "always", "non_numeric"]),
        "eol": rng.choice(["\n", "\n", "\r\n"]),
        "header": often(0.85),
        "null": rng.choice(["", "NULL"]),
        "before": [],
        "comments": often(0.2),
        "ragged": often(0.12),
        "latin": often(0.12),
        "blank": often(0.1),
        "bom": often(0.08),
        "pack": rng.choice(["gz", "zst", *[""] * 22]),
    }
    options = case.options
    if often(0.1):  # then nothing needs a quote
        dialect |= {"style": "never", "separator": "|"}
        options["quote_char"] = rng.choice([None, "'"])
    if dialect["separator"] != ",":
        options["separator"] = dialect["separator"]
    if not dialect["header"]:
        options["has_header"] = False
    if dialect["null"]:
        given = ["NULL", ["NULL", "NA"], {"f": "NULL", "i": "NULL"}]
        options["null_values"] = rng.choice(given) if dialect["header"] else "NULL"
    if dialect["comments"]:
        options["comment_prefix"] = "#"
    if dialect["ragged"]:
        options["truncate_ragged_lines"] = True
    if dialect["latin"]:
        options["encoding"] = "utf8-lossy"
    if often(0.1):
        dialect["before"] = ["junk line", "another"]
        options["skip_rows"] = 2
    elif often(0.05):
        dialect["before"] = ['junk "line', "another, x"]
        options["skip_lines"] = 2
    for chance, chosen in [
        (0.1, {"skip_rows_after_header": rng.choice([1, 3])}),
        (0.15, {"try_parse_dates": True}),
        (0.1, {"ignore_errors": True}),
        (0.2, {"infer_schema_length": rng.choice([0, 5, 100, None])}),
        (0.07, {"infer_schema": False}),
        (0.06, {"low_memory": True}),
    ]:
        if often(chance):
            options |= chosen
    if dialect["header"]:
        if often(0.15):
            overrides = [{"id": pl.Float64, "i": pl.Int64}, {"id": pl.String}]
            options["schema_overrides"] = rng.choice(overrides)
        if often(0.06):
            options["with_column_names"] = _upper


def _upper(names: list[str]) -> list[str]:
    return [name.upper() for name in names]


# --- files -----------------------------------------------------------------------------------------------------


def _rows(rng: random.Random, height: int, kind: str, first: int, texts: list[str | None]) -> pl.DataFrame:
    def column(values: list[Any], dtype: Any) -> pl.Series:
        return pl.Series([rng.choice(values) for _ in range(height)], dtype=dtype)

    columns = {
        "id": pl.Series(range(first, first + height), dtype=pl.Int64),
        "s": column(texts, pl.String),
        "f": column([None, 0.5, -1.25, 1e10, 3.0], pl.Float64),
        "d": column([None, dt.date(2020, 1, 1), dt.date(1999, 12, 31)], pl.Date),
        "b": column([None, True, False], pl.Boolean),
        "i": column([None, 1, 2, -3], pl.Int32),
    }
    if kind != "csv":
        columns["l"] = column([None, [], [1], [1, 2]], pl.List(pl.Int64))
        structs = [{"x": None, "y": "p"}, {"x": 1, "y": None}]
        columns["st"] = column(structs, pl.Struct({"x": pl.Int64, "y": pl.String}))
    return pl.DataFrame(columns)


def _write_files(
    rng: random.Random, case: ScanCase, folder: Path, many: int, values: list[str | None] | None
) -> list[Path]:
    pack = case.dialect.get("pack")
    ending = f"{case.kind}.{pack}" if pack else case.kind
    texts = STRANGE if rng.random() < 0.6 and "quote_char" not in case.options else PLAIN
    change = rng.random() if many > 1 else 1.0
    paths: list[Path] = []
    first = 0
    for number in range(many):
        height = rng.choice([0, 1, 5, 20, 60]) if rng.random() < 0.5 else rng.randrange(10, 80)
        rows = _rows(rng, height, case.kind, first, texts)
        first += height
        if number == many - 1 and case.dialect.get("header", True):
            rows = _changed(rng, rows, change)
        name = f"f{number}.{ending}"
        if values is not None:
            value = values[number % len(values)]
            name = f"k={'__HIVE_DEFAULT_PARTITION__' if value is None else quote(value, safe='')}/{name}"
        paths.append(folder / name)
        paths[-1].parent.mkdir(parents=True, exist_ok=True)
        _write(rng, case, rows, paths[-1], is_only=many == 1)
    if case.kind == "parquet" and change < 0.3:
        casts = pl.ScanCastOptions(integer_cast=rng.choice(["upcast", "allow-float", "forbid"]))
        for name, chosen in (
            ("missing_columns", "insert"),
            ("extra_columns", "ignore"),
            ("cast_options", casts),
        ):
            if rng.random() < 0.6:
                case.options[name] = chosen
    return paths


def _changed(rng: random.Random, rows: pl.DataFrame, change: float) -> pl.DataFrame:
    """Return the rows of a file that is not like the others, in some cases."""
    if change < 0.08:
        return rows.drop("f")
    if change < 0.16:
        return rows.with_columns(extra=pl.lit(1))
    if change < 0.22:
        return rows.with_columns(pl.col("i").cast(rng.choice([pl.Int16, pl.Int64])))
    return rows.select(reversed(rows.columns)) if change < 0.26 else rows


def _write(rng: random.Random, case: ScanCase, rows: pl.DataFrame, path: Path, *, is_only: bool) -> None:
    if case.kind == "parquet" and rng.random() < 0.2:
        table = rows.to_arrow()
        with pq.ParquetWriter(path, table.schema) as writer:
            at = 0
            while at < table.num_rows:
                size = rng.choice([0, 1, 3, 10, 50])  # also groups without rows
                writer.write_table(table.slice(at, size))
                at += size
    elif case.kind == "parquet":
        rows.write_parquet(path, row_group_size=rng.choice([1, 3, 10, 1000]), statistics=rng.random() < 0.8)
    elif case.kind == "ipc":
        compression = rng.choice(["uncompressed", "lz4", "zstd"])
        rows.lazy().sink_ipc(path, record_batch_size=rng.choice([1, 7, 1000]), compression=compression)
    else:
        is_csv = case.kind == "csv"
        text = _csv_text(rng, case.dialect, rows) if is_csv else _json_text(rng, rows, is_only=is_only)
        if case.dialect["pack"] == "gz":
            text = gzip.compress(text)
        if case.dialect["pack"] == "zst":
            text = pa.compress(text, codec="zstd", asbytes=True)
        path.write_bytes(text)


def _json_text(rng: random.Random, rows: pl.DataFrame, *, is_only: bool) -> bytes:
    text = rows.write_ndjson().encode()
    if rng.random() < 0.2 and is_only:  # of several files, Polars counts the rows of slices wrong
        text = text.rstrip(b"\n")
    return text.replace(b"\n", b"\r\n") if rng.random() < 0.2 else text


def _csv_text(rng: random.Random, dialect: dict[str, Any], rows: pl.DataFrame) -> bytes:
    eol = dialect["eol"].encode()
    text = rows.write_csv(
        separator=dialect["separator"],
        quote_style=dialect["style"],
        line_terminator=dialect["eol"],
        include_header=dialect["header"],
        null_value=dialect["null"],
    ).encode()
    lines = text.split(eol)
    if dialect["comments"] and rng.random() < 0.7:
        for _ in range(3):
            lines.insert(
                rng.randrange(1, len(lines) + 1), rng.choice([b'#a comment, "x', *[b"#a comment"] * 4])
            )
    if dialect["ragged"] and len(lines) > 1 and rng.random() < 0.7:
        place = rng.randrange(1, len(lines))
        lines[place] += dialect["separator"].encode() + b"more" if lines[place] else b""
    text = eol.join(lines)
    if dialect["latin"]:
        text = text.replace("é".encode(), b"\xe9")
    if dialect["blank"]:
        text = text.replace(eol, 2 * eol, rng.randrange(3))
    if rng.random() < 0.2:
        text = text.removesuffix(eol)
    before = b"".join(line.encode() + eol for line in dialect["before"])
    return (b"\xef\xbb\xbf" if dialect["bom"] else b"") + before + text


def _choose_target(rng: random.Random, case: ScanCase, folder: Path, paths: list[Path], parted: bool) -> None:
    ending = paths[0].name.partition(".")[2]
    names = [str(path) for path in paths]
    if parted:
        case.target = rng.choice([folder, f"{folder}/**/*.{ending}", names])
        if case.kind in ("parquet", "ipc"):
            case.options["hive_partitioning"] = rng.choice([True, True, None, False])
            if rng.random() < 0.15:
                case.options["hive_schema"] = {"k": pl.String}
            if rng.random() < 0.15:
                case.options["try_parse_hive_dates"] = False
        return
    if len(paths) > 1:
        case.target = rng.choice([folder, f"{folder}/*.{ending}", names, names[::-1]])
    else:
        case.target = rng.choice([paths[0], folder, f"{folder}/f*.{ending}", paths])
    if rng.random() < 0.08:
        contents = [path.read_bytes() for path in paths]
        case.target = rng.choice([contents[0], io.BytesIO(contents[0]), list(map(io.BytesIO, contents))])


# --- queries ---------------------------------------------------------------------------------------------------


def queries(rng: random.Random, lf: pl.LazyFrame) -> Iterator[tuple[str, pl.LazyFrame, bool]]:
    """Return queries of a scan by name, and whether Polars promises the order of their rows."""
    schema = lf.collect_schema()
    some = rng.sample(schema.names(), min(len(schema), rng.choice([1, 1, 2, 3])))
    for name in ("rn", "path"):
        if name in schema and rng.random() < 0.5:
            some = [name, *(column for column in some if column != name)]
    conditions = [getattr(pl.col(name), what)() for name in schema for what in ("is_null", "is_not_null")]
    for name, dtype in schema.items():
        if dtype.is_numeric():
            conditions += [pl.col(name) % 3 == 1, pl.col(name) > 10, pl.col(name) < 15]
        if dtype == pl.String:
            conditions += [pl.col(name) > "b", pl.col(name) == "a", pl.col(name).str.contains("a")]
    condition = rng.choice(conditions)
    part = rng.choice([0, 1, 5, 20, -1, -7, -30, -100]), rng.choice([0, 1, 5, 30, None])
    filtered = lf.filter(condition)
    found = [
        ("whole", lf, True),
        ("columns", lf.select(some), True),
        (f"slice {part}", lf.slice(*part), True),
        (f"columns of slice {part}", lf.slice(*part).select(some), True),
        ("height", lf.select(pl.len()), True),
        (f"filter {condition}", filtered, True),
        (f"slice of {condition}", filtered.slice(*rng.choice([(0, 5), (3, 10), (-5, 3)])).select(some), True),
        (f"{condition} of slice {part}", lf.slice(*part).filter(condition), True),
        (f"height of {condition}", filtered.select(pl.len()), True),
        (f"groups of {some[0]}", lf.group_by(some[0]).agg(pl.len(), n=pl.first().count()), False),
        ("tail", lf.tail(rng.choice([1, 10, 40])).select(some), True),
        ("index", lf.with_row_index("zz").filter(pl.col("zz") % 2 == 0), True),
        ("twice", pl.concat([lf, lf.slice(2, 9)]), True),
    ]
    yield from rng.sample(found, 5)
