"""Files whose columns differ are read as Polars reads them together, wherever the files of a rank begin."""

from __future__ import annotations

import datetime as dt
import itertools
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from execute.local_transport import LocalTransport, run_ranks

from cudf_polars.execute.options import ExecutionOptions
from cudf_polars.execute.run import run_query

_TIME = [dt.datetime(2020, 1, 1)] * 2
TYPES = {
    "int64": pl.Series([1, 2], dtype=pl.Int64),
    "int32": pl.Series([3, 4], dtype=pl.Int32),
    "float": pl.Series([1.5, 2.5]),
    "string": pl.Series(["x", "y"]),
    "null": pl.Series([None, None]),
    "list_of_null": pl.Series([[], []]),
    "list": pl.Series([["a"], []]),
    "bool": pl.Series([True, False]),
    "struct": pl.Series([{"a": 1}, {"a": 2}]),
    "longer_struct": pl.Series([{"a": 1, "b": 2}, {"a": 2, "b": 2}]),
    "ms": pl.Series(_TIME).cast(pl.Datetime("ms")),
    "us": pl.Series(_TIME),
}
QUERIES: dict[str, Callable[[pl.LazyFrame], pl.LazyFrame]] = {
    "all": lambda lf: lf,
    "one": lambda lf: lf.select("c0"),
    "number": lambda lf: lf.with_row_index(),
    "positions": lambda lf: lf.with_columns(more=pl.int_range(pl.len())).with_row_index().select("index"),
    "filter": lambda lf: lf.filter(pl.col("c0").is_not_null()),
    "tail": lambda lf: lf.tail(2),
    "length": lambda lf: lf.select(pl.len()),
    "sort": lambda lf: lf.select("c0").sort("c0"),
}
LENIENT = {
    "missing_columns": "insert",
    "extra_columns": "ignore",
    "cast_options": pl.ScanCastOptions(
        integer_cast="upcast", missing_struct_fields="insert", datetime_cast="nanosecond-downcast"
    ),
}


def _answer(frame: pl.DataFrame) -> tuple[Any, ...]:
    return list(frame.schema.items()), sorted(map(repr, frame.rows()))


def _of_polars(lf: pl.LazyFrame) -> Iterator[Any]:
    """Yield what Polars' engines give: an answer or a type of error."""
    for engine in ("streaming", "in-memory"):
        try:
            yield _answer(lf.collect(engine=engine))  # type: ignore[call-overload]
        except pl.exceptions.PanicException:
            yield None
        except pl.exceptions.PolarsError as error:
            yield type(error)


def _of_ranks(lf: pl.LazyFrame, nranks: int) -> set[Any]:
    """Return the ranks' answer, or the types of their errors."""
    options = ExecutionOptions.tiny("silent")
    errors: set[Any] = set()

    def work(transport: LocalTransport) -> pl.DataFrame:
        try:
            return run_query(lf, transport, options=options).frame
        except pl.exceptions.PolarsError as error:
            errors.add(type(error))
            raise

    try:
        schema, rows = _answer(pl.concat(run_ranks(nranks, work)))
    except pl.exceptions.PolarsError:
        return errors
    return {repr((schema, rows))}


def _compare(lf: pl.LazyFrame, nranks: int, case: object, *, reads_a_column: bool = False) -> None:
    wanted = list(_of_polars(lf))
    if None in wanted:
        return  # Polars panics
    found = _of_ranks(lf, nranks)
    accepted = {w if isinstance(w, type) else repr(w) for w in wanted}
    if reads_a_column:
        # Of IPC files of which only the rows count, a column is read under a hidden step: not all of them may have it.
        accepted |= {pl.exceptions.SchemaError, pl.exceptions.ColumnNotFoundError}
    assert found & accepted, (case, found, wanted)


def _write(folder: Path, kind: str, frames: list[pl.DataFrame], **options: Any) -> bool:
    for number, frame in enumerate(frames):
        try:
            getattr(frame, f"write_{kind}")(folder / f"{number}.{kind}", **options)
        except pl.exceptions.PolarsError:
            return False  # the format has no such type
    return True


def _scan(folder: Path, kind: str, options: dict[str, Any], form: str = "pattern") -> pl.LazyFrame:
    pattern = f"*.{kind}"
    files = sorted(folder.glob(pattern))
    source: Any = {
        "pattern": lambda: folder / pattern,
        "files": lambda: files,
        "bytes": lambda: [file.read_bytes() for file in files],
    }[form]()
    return getattr(pl, f"scan_{kind}")(source, **options)  # type: ignore[no-any-return]


@pytest.mark.parametrize("kind", ["parquet", "csv", "ndjson", "ipc"])
def test_second_file_of_another_type(kind: str, tmp_path: Path) -> None:
    compared = 0
    # Polars has made a list of a pattern when its plan is read: each takes half of the cases, and every query both.
    forms = itertools.cycle(["pattern", "files", "files", "pattern"])
    for first, second in itertools.permutations(TYPES, 2):
        folder = tmp_path / f"{first}-{second}"
        folder.mkdir()
        frames = [pl.DataFrame({"c0": TYPES[name], "k": [1, 2]}) for name in (first, second)]
        if not _write(folder, kind, frames):
            continue
        for options in ({}, LENIENT) if kind == "parquet" else ({},):
            for query in ("all", "tail"):
                form = next(forms)
                _compare(QUERIES[query](_scan(folder, kind, options, form)), 2, (first, second, query, form))
                compared += 1
    assert compared >= 80


@pytest.mark.parametrize("kind", ["csv", "ndjson"])
@pytest.mark.parametrize("query", ["positions", "length"])
@pytest.mark.parametrize("nranks", [1, 2, 3])
def test_rows_are_counted_without_their_values(kind: str, query: str, nranks: int, tmp_path: Path) -> None:
    frames = [pl.DataFrame({"c0": [True, False]}), pl.DataFrame({"c0": ["x", "y", "z"]})]
    assert _write(tmp_path, kind, frames)
    lf = _scan(tmp_path, kind, {"schema": {"c0": pl.Boolean}})
    with pytest.raises(pl.exceptions.ComputeError):
        lf.collect()
    _compare(QUERIES[query](lf), nranks, query)
    assert QUERIES[query](lf).collect().to_series().to_list() in ([0, 1, 2, 3, 4], [5])


def _random_frames(rng: random.Random) -> list[pl.DataFrame]:
    usual = rng.choices(sorted(TYPES), k=3)
    frames = []
    for _ in range(rng.choice([2, 3, 5])):
        chosen = [t if rng.random() < 0.85 else rng.choice(sorted(TYPES)) for t in usual]
        frame = pl.DataFrame({f"c{i}": TYPES[t] for i, t in enumerate(chosen)}).head(rng.choice([0, 2, 2]))
        if rng.random() < 0.1:
            frame = frame.drop("c1")
        if rng.random() < 0.1:
            frame = frame.with_columns(more=pl.lit(1))
        if rng.random() < 0.1:
            frame = frame.select(reversed(frame.columns))
        frames.append(frame)
    return frames


_CHOICES: dict[str, list[dict[str, Any]]] = {
    "parquet": [LENIENT, {"missing_columns": "insert"}, {"include_file_paths": "path"}],
    "csv": [
        {"infer_schema_files": 1},
        {"infer_schema_length": 1},
        {"infer_schema_length": None},
        {"try_parse_dates": True},
        {"schema_overrides": {"c0": pl.String}},
        {"new_columns": ["c0", "c7", "c8"]},
        {"ignore_errors": True},
        {"null_values": "1"},
        {"raise_if_empty": False},
    ],
    "ndjson": [
        {"infer_schema_length": 1},
        {"schema_overrides": {"c0": pl.String}},
        {"ignore_errors": True},
    ],
    "ipc": [{"include_file_paths": "path"}],
}


@pytest.mark.parametrize("kind", list(_CHOICES))
@pytest.mark.parametrize("first", range(0, 60, 15))
def test_random_files(kind: str, first: int, tmp_path: Path) -> None:
    for seed in range(first, first + 15):
        rng = random.Random(seed)
        folder = tmp_path / str(seed)
        folder.mkdir()
        header = {"include_header": rng.random() < 0.7} if kind == "csv" else {}
        if not _write(folder, kind, _random_frames(rng), **header):
            continue
        options: dict[str, Any] = {"has_header": header["include_header"]} if header else {}
        for choice in _CHOICES[kind]:
            if rng.random() < 0.4:
                options |= choice
        forms = ["pattern", "files", "files" if "include_file_paths" in options else "bytes"]
        for name, query in QUERIES.items():
            try:
                lf = query(_scan(folder, kind, options, rng.choice(forms)))
            except (pl.exceptions.PolarsError, ValueError):
                continue
            hidden = kind == "ipc" and name == "positions"
            _compare(lf, rng.choice([2, 3, 4]), (seed, name, options), reads_a_column=hidden)
