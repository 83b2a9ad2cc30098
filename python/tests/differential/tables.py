"""The tables of a case: columns of every type, as files of every format or as frames that lie on some ranks.

A column's name stands for what it is made for (``g`` is a key of few values, ``srt`` numbers the rows), the same in
all tables: so joins find columns that match, and names that collide. The names and types are those of the catalogue of
expressions, whose texts can thus be used over any table that has the columns.
"""

from __future__ import annotations

import datetime as dt
import random
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl

__all__ = ["COLUMNS", "Table", "peek", "random_table"]

Maker = Callable[[random.Random, int], object]

_EPOCH = dt.datetime(2020, 1, 1)
_LONG = "a string that is too long to be kept inline"


def _of(*values: object) -> Maker:
    return lambda rng, _: rng.choice(values)


def _days(rng: random.Random, _: int) -> object:
    return dt.date(2020, 1, 1) + dt.timedelta(days=rng.randrange(60))


def _times(unit: int) -> Maker:
    return lambda rng, _: _EPOCH + dt.timedelta(hours=rng.randrange(72), microseconds=unit * rng.randrange(3))


def _eighths(rng: random.Random, _: int) -> object:
    # Sums and products of few of them are exact, in whatever order they are made.
    return rng.randrange(-80, 80) / 8


def _float(rng: random.Random, row: int) -> object:
    special = rng.random()
    if special < 0.05:
        return float("nan")
    if special < 0.08:
        return rng.choice([float("inf"), float("-inf")])
    return rng.choice([-0.0, 0.0]) if special < 0.15 else _eighths(rng, row)


def _list_of(maker: Maker) -> Maker:
    return lambda rng, row: [maker(rng, row) for _ in range(rng.choice([0, 1, 1, 2, 3]))]


def peek(rng: random.Random) -> random.Random:
    """Return a source of choices that takes none of ``rng``'s: with it, seeds stand for what they did without it."""
    apart = random.Random()
    apart.setstate(rng.getstate())
    return apart


_SMALL = (1, 2, 3, 4, 5, 6)
_INTS = (pl.Int8(), pl.Int16(), pl.Int32(), pl.Int64(), pl.UInt8(), pl.UInt16(), pl.UInt32(), pl.UInt64())
_CATEGORIES = ("a", "b", "c")
_TEXTS = ("foo", "Bar baz", "", '{"a":1}', "2020-01-02", "12.5", "o", " padded ", "älter", _LONG)
_DATES = ("2020-01-02", "2020-02-03", "03/04/2021", "04/05/2021", "2021-12-31")


@dataclass(frozen=True)
class Column:
    """How a column is made: its types, the first the usual one; its values; and whether some are null."""

    dtypes: tuple[pl.DataType, ...]
    value: Maker
    nulls: bool = True


COLUMNS: Mapping[str, Column] = {
    "i": Column((pl.Int64(), pl.Int32(), pl.Int16()), lambda r, _: r.randrange(-20, 20)),
    "j": Column((pl.Int32(), pl.Int64(), pl.Int8(), pl.UInt16()), lambda r, _: r.randrange(10), nulls=False),
    "k": Column(_INTS, lambda r, _: r.randrange(8)),
    "h": Column((pl.Int64(), pl.Int32(), pl.UInt64()), lambda r, _: r.randrange(1000)),
    "w": Column((pl.Int64(), pl.Int128()), _of(-(2**63), -(2**40), -1, 0, 5, 2**53 + 1, 2**63 - 1)),
    "u": Column((pl.UInt32(), pl.UInt64()), _of(*_SMALL), nulls=False),
    "u8": Column((pl.UInt8(), pl.UInt16()), _of(*_SMALL), nulls=False),
    "i128": Column((pl.Int128(), pl.UInt128()), _of(*_SMALL, 2**62)),
    "f": Column((pl.Float64(),), _float),
    "f32": Column((pl.Float32(), pl.Float64(), pl.Float16()), _eighths),
    "g": Column((pl.String(), pl.Categorical(), pl.Enum(_CATEGORIES)), _of(*_CATEGORIES)),
    "b": Column((pl.Boolean(),), _of(True, False)),
    "b2": Column((pl.Boolean(),), _of(True, True, False), nulls=False),
    "s": Column((pl.String(),), _of(*_TEXTS)),
    "t": Column((pl.String(),), _of("x", "y", "z"), nulls=False),
    "sd": Column((pl.String(),), _of(*_DATES)),
    "d": Column((pl.Date(), pl.Datetime("us")), _days),
    "dtm": Column((pl.Datetime("us"), pl.Datetime("ns"), pl.Datetime("ms")), _times(1)),
    "tns": Column((pl.Datetime("ns"),), lambda r, _: r.randrange(-5, 5) * 1000 + r.choice([0, 1, 999])),
    "dur": Column(
        (pl.Duration("us"), pl.Duration("ms"), pl.Duration("ns")),
        lambda r, _: dt.timedelta(hours=r.randrange(-5, 50)),
    ),
    "tm": Column((pl.Time(),), lambda r, _: dt.time(r.randrange(24), r.randrange(60), r.randrange(60))),
    "l": Column((pl.List(pl.Int64()), pl.List(pl.Int16())), _list_of(_of(*_SMALL, None))),
    "ls": Column((pl.List(pl.String()),), _list_of(_of("a", "b", _LONG)), nulls=False),
    "l2": Column((pl.List(pl.Int64()),), lambda r, _: [r.randrange(6)], nulls=False),
    "ll": Column((pl.List(pl.List(pl.Int64())),), _list_of(_list_of(_of(*_SMALL)))),
    "st": Column(
        (pl.Struct({"x": pl.Int64(), "y": pl.String()}),),
        lambda r, _: {"x": r.choice([None, 0, 1, 2]), "y": r.choice("pq")},
    ),
    "sl": Column((pl.List(pl.Struct({"x": pl.Int64()})),), _list_of(lambda r, _: {"x": r.randrange(3)})),
    "bin": Column((pl.Binary(),), _of(b"ab", b"cd", b"", b"\x00\xff", b"YWI=", _LONG.encode())),
    "dec": Column((pl.Decimal(10, 2), pl.Decimal(38, 2)), lambda r, _: Decimal(r.randrange(-500, 500)) / 100),
    "nul": Column((pl.Null(),), _of(None)),
    "a": Column((pl.Array(pl.Int64(), 2),), lambda r, _: [r.randrange(4), r.choice([None, 1, 2])]),
    "sa": Column((pl.Array(pl.String(), 2),), lambda r, _: [r.choice("pq"), "q"]),
    "c": Column((pl.Categorical(), pl.String()), _of(*_CATEGORIES)),
    "e": Column((pl.Enum(_CATEGORIES), pl.Categorical()), _of(*_CATEGORIES)),
    "dtz": Column(
        (pl.Datetime("us", "Europe/Paris"), pl.Datetime("us", "UTC")),
        lambda r, _: _EPOCH.replace(tzinfo=dt.UTC) + dt.timedelta(hours=r.randrange(48)),
    ),
}
"""By name, the columns that a table may have besides ``srt``, the number of the row."""

PLAIN = ("i", "j", "k", "h", "g", "f", "t", "b", "u", "d", "s", "tns", "sd")
_NO_CSV = {
    "l",
    "ls",
    "l2",
    "ll",
    "st",
    "sl",
    "bin",
    "nul",
    "a",
    "sa",
    "dur",
    "i128",
    "w",
    "tns",
    "dtz",
    "f",
    "dec",
}
_NDJSON = {"i", "j", "k", "h", "f32", "b", "b2", "s", "t", "sd", "l", "ls", "l2", "st", "sl", "g"}
_NDJSON_TYPES = (pl.Int64, pl.Int32, pl.Float64, pl.Float32, pl.Boolean, pl.String, pl.List, pl.Struct)


@dataclass
class Table:
    """A table of a case.

    Attributes
    ----------
    frame
        All its rows.
    kind
        ``"frame"``, or the format of its files.
    cuts
        Of a frame, where each rank's part begins and the last ends; of files, where each file does.
    options
        How the files are written, and whether they are read as ``"bytes"``; of ``"odd"``, the number of a file with
        other columns, and a seed for them.
    """

    name: str
    frame: pl.DataFrame
    kind: str
    cuts: tuple[int, ...]
    options: dict[str, Any] = field(default_factory=dict)

    def parts(self) -> list[pl.DataFrame]:
        """Return the rows between the cuts."""
        return [self.frame[low:high] for low, high in zip(self.cuts, self.cuts[1:], strict=False)]

    def write(self, folder: Path) -> None:
        """Write the files, if it is made of some."""
        target = folder / self.name
        shutil.rmtree(target, ignore_errors=True)
        if self.kind == "frame":
            return
        target.mkdir()
        if self.kind == "hive":
            self.frame.write_parquet(target, partition_by=self.options["by"])
            return
        for number, part in enumerate(self.parts()):
            path = target / f"{number:02}.{self.kind}"
            odd, seed = self.options.get("odd", (None, 0))
            if odd == number:
                part = part.select(_odd_columns(random.Random(seed), part))
            if self.kind == "parquet":
                # Snappy pages have a decompressor of ours on a GPU; most writers make them. Not by chance: seeds would
                # stand for other cases then.
                part.write_parquet(
                    path,
                    compression="snappy" if (number + part.height) % 2 == 0 else "zstd",
                    row_group_size=self.options["row_group_size"],
                    statistics=self.options["statistics"],
                )
            else:
                getattr(part, f"write_{self.kind}")(path)

    def text(self) -> str:
        """Return how the table is made a lazy frame, over ``folder`` and, for a frame, over the rows of a rank."""
        if self.kind == "frame":
            return f"{self.name}_rows.lazy()"
        if self.kind == "hive":
            return f"pl.scan_parquet(folder / {self.name!r}, hive_partitioning=True)"
        several = len(self.cuts) > 2
        if self.options.get("bytes"):
            path = f"[p.read_bytes() for p in sorted((folder / '{self.name}').glob('*.{self.kind}'))]"
            path += "" if several else "[0]"
        else:
            path = f"folder / '{self.name}' / '{'*' if several else '00'}.{self.kind}'"
        schema = (
            f", schema={self.name}_schema"
            if self.kind in ("csv", "ndjson") and self.options["schema"]
            else ""
        )
        return f"pl.scan_{self.kind}({path}{schema}{self.options.get('extra', '')})"

    def variables(self, rank: int | None) -> dict[str, object]:
        """Return what :meth:`text` refers to besides ``folder``; ``rank`` is ``None`` for all rows."""
        if self.kind == "frame":
            return {f"{self.name}_rows": self.frame if rank is None else self.parts()[rank]}
        return {f"{self.name}_schema": self.frame.schema}


def _usable(name: str, dtype: pl.DataType, kind: str) -> bool:
    if kind == "csv":
        return name not in _NO_CSV and dtype not in (pl.Float16,)
    if kind == "ndjson":
        return name in _NDJSON and dtype.base_type() in _NDJSON_TYPES
    if kind in ("parquet", "hive"):
        return dtype != pl.Float16
    return True


def _height(rng: random.Random) -> int:
    return rng.choice(
        [
            0,
            1,
            2,
            rng.randrange(1, 8),
            rng.randrange(8, 30),
            rng.randrange(8, 60),
            rng.randrange(30, 200),
            rng.randrange(200, 3000 if rng.random() < 0.93 else 20_000),
        ]
    )


def _cuts(rng: random.Random, height: int, parts: int) -> tuple[int, ...]:
    """Cut ``height`` rows into parts: of random sizes, of equal ones, or all rows in one of them."""
    how = rng.random()
    if how < 0.25:
        full = rng.randrange(parts)
        inner = [0] * full + [height] * (parts - 1 - full)
    elif how < 0.5:
        inner = [height * part // parts for part in range(1, parts)]
    else:
        inner = sorted(rng.randrange(height + 1) for _ in range(parts - 1))
    return (0, *inner, height)


def _column(rng: random.Random, column: Column, dtype: pl.DataType, height: int) -> list[object]:
    nulls = rng.choice([0.0, 0.1, 0.1, 0.3, 1.0 if height < 30 else 0.1]) if column.nulls else 0.0
    skewed = rng.random() < 0.15
    common = column.value(rng, 0)
    values = []
    for row in range(height):
        if nulls and rng.random() < nulls:
            values.append(None)
        elif skewed and rng.random() < 0.9:
            values.append(common)
        else:
            values.append(column.value(rng, row))
    return values


def _series(name: str, values: list[object], dtype: pl.DataType) -> pl.Series:
    if dtype.is_unsigned_integer():
        values = [None if v is None else abs(int(v)) for v in values]  # type: ignore[call-overload]
    if name == "w":
        bound = 2**63 - 1
        values = [None if v is None else max(-bound - 1, min(bound, int(v))) for v in values]  # type: ignore[call-overload]
    if dtype == pl.Enum and name in ("g", "c", "e"):
        return pl.Series(name, values, dtype=pl.String).cast(dtype)
    return pl.Series(name, values, dtype=dtype, strict=False)


def _sorted_by_a_key(rng: random.Random, frame: pl.DataFrame) -> tuple[pl.DataFrame, dict[str, Any]]:
    """Return a table as a database writes it, now and then, and how: by a key that is never null, in its order.

    Few columns are left, so that queries use the key.
    """
    keys = [name for name, dtype in frame.schema.items() if dtype.is_integer() or dtype == pl.Date]
    if not keys or frame.height < 16 or rng.random() < 0.6:
        return frame, {}
    key = rng.choice(keys)
    others = [name for name in frame.columns if name not in (key, "srt")]
    kept = {key, *rng.sample(others, min(len(others), 2))}
    if key == "srt" or rng.random() < 0.5:
        kept.add("srt")
    frame = frame.select(name for name in frame.columns if name in kept)
    frame = frame.filter(pl.col(key).is_not_null())
    if key != "srt" and frame.schema[key] in (pl.Int64, pl.Int32, pl.UInt64, pl.UInt32):
        # More values than a rank has row groups: each comes a few times.
        values = [rng.randrange(1 + frame.height // 3) for _ in range(frame.height)]
        frame = frame.with_columns(pl.Series(key, values, dtype=frame.schema[key]))
    frame = frame.sort(key, maintain_order=True)
    if "srt" in frame.columns:
        frame = frame.with_columns(pl.Series("srt", range(frame.height), dtype=pl.Int64))
    return frame, {"row_group_size": max(1, frame.height // rng.randrange(8, 40)), "statistics": True}


def random_table(rng: random.Random, name: str, nranks: int) -> Table:
    """Return a table for so many ranks."""
    kind = rng.choices(["frame", "parquet", "csv", "ndjson", "ipc", "hive"], [9, 7, 1.5, 1.5, 2, 1])[0]
    height = _height(rng)
    wide = rng.random()
    if wide < 0.14:
        chosen = list(COLUMNS)
    elif wide < 0.6:
        chosen = rng.sample(PLAIN, rng.randrange(1, 6)) + rng.sample(list(COLUMNS), rng.randrange(0, 4))
    else:
        chosen = rng.sample(list(COLUMNS), rng.randrange(1, 12))
    if wide < 0.14:
        height = min(height, 60)
    chosen = list(dict.fromkeys(chosen))
    if rng.random() < 0.75:
        chosen.insert(rng.randrange(len(chosen) + 1), "srt")
    columns: list[pl.Series] = []
    for column in chosen:
        if column == "srt":
            columns.append(pl.Series("srt", range(height), dtype=pl.Int64))
            continue
        spec = COLUMNS[column]
        dtype = spec.dtypes[0] if rng.random() < 0.75 else rng.choice(spec.dtypes)
        if _usable(column, dtype, kind):
            columns.append(_series(column, _column(rng, spec, dtype, height), dtype))
    if not columns:
        columns.append(pl.Series("srt", range(height), dtype=pl.Int64))
    frame = pl.DataFrame(columns)
    if rng.random() < 0.3:
        # Several chunks.
        frame = pl.concat([frame[: height // 3], frame[height // 3 :]], rechunk=False)
    if kind == "frame":
        return Table(name, frame, kind, _cuts(rng, height, nranks))
    as_written: dict[str, Any] = {}
    if kind == "parquet":
        frame, as_written = _sorted_by_a_key(peek(rng), frame)
        height = frame.height
    if kind == "hive":
        by = [
            c
            for c in ("g", "k", "t", "j", "u8", "d", "b2")
            if c in frame.columns and frame.schema[c] in (pl.String, pl.Int64, pl.Int32, pl.Date)
        ]
        if not by or frame.width < 2 or not height or frame[by[0]].null_count():
            kind = "parquet"
        else:
            return Table(name, frame, kind, (0, height), {"by": by[:1]})
    files = rng.choice([1, 1, 1, 2, 3, 6])
    options: dict[str, Any] = {
        "row_group_size": rng.choice([1, 3, 7, 50, 1000]) if height < 300 else rng.choice([37, 100, 1000]),
        "statistics": rng.random() < 0.8,
        "schema": not height or rng.random() < (0.8 if kind == "csv" else 0.7),
    }
    options |= as_written
    options["bytes"] = peek(rng).random() < 0.15
    if rng.random() < 0.15 and kind in ("parquet", "csv", "ipc"):
        options["extra"] = rng.choice(
            [", row_index_name='ri'", ", n_rows=5", ", include_file_paths='path'", ", rechunk=True"]
        )
    if files > 1 and rng.random() < 0.15:
        options["odd"] = rng.randrange(files), rng.randrange(2**32)
        if kind == "parquet" and rng.random() < 0.7:
            options["extra"] = (
                ", missing_columns='insert', extra_columns='ignore', cast_options=pl.ScanCastOptions("
                "integer_cast='upcast', float_cast=['upcast', 'downcast'], datetime_cast='nanosecond-downcast')"
            )
    return Table(name, frame, kind, _cuts(rng, height, files), options)


_OTHER_TYPES: Mapping[pl.DataType, pl.DataType] = {
    pl.Int64(): pl.Int32(),
    pl.Int32(): pl.Int64(),
    pl.UInt16(): pl.UInt8(),
    pl.Float64(): pl.Float32(),
    pl.Float32(): pl.Float64(),
    pl.Datetime("us"): pl.Datetime("ns"),
    pl.Boolean(): pl.String(),
}


def _odd_columns(rng: random.Random, frame: pl.DataFrame) -> list[pl.Expr]:
    """Return the columns of a file that has other types than the others, another order, one more or one fewer."""
    columns = [
        pl.col(name).cast(_OTHER_TYPES[dtype], strict=False)
        if rng.random() < 0.5 and dtype in _OTHER_TYPES
        else pl.col(name)
        for name, dtype in frame.schema.items()
    ]
    how = rng.random()
    if how < 0.15:
        columns.append(pl.lit(1).alias("one_more"))
    elif how < 0.3 and len(columns) > 1:
        columns.pop(rng.randrange(len(columns)))
    elif how < 0.4:
        columns.reverse()
    elif how < 0.55:
        columns = [pl.when(False).then(c).alias(n) for c, n in zip(columns, frame.columns, strict=True)]
    return columns
