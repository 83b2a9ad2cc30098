"""Conformance cases of sources, sinks and joins."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import polars as pl

from cudf_polars.execute.gpu.program import (
    Aggregate,
    Call,
    Column,
    CudfType,
    Distinct,
    Filter,
    Group,
    Hold,
    ParquetFile,
    ParquetScan,
    Pipeline,
    RowRange,
    Sort,
    SortKey,
    TypeId,
)
from support.gpu_conformance.build import (
    Case,
    group_case,
    probe_case,
    program,
    sink_case,
    unnamed,
    whole_join_case,
)
from support.gpu_conformance.samples import DTYPES, FLOATS, INTEGERS, column, decimals, type_of

__all__ = ["group_cases", "join_cases", "order_cases", "scan_case"]

T = TypeId
INT64, FLOAT64 = CudfType(T.INT64), CudfType(T.FLOAT64)
_KEYS = (T.INT8, T.INT64, T.UINT32, T.FLOAT64, T.BOOL8, T.STRING, T.TIMESTAMP_DAYS, T.TIMESTAMP_MICROSECONDS)
_NUMBERS = (*INTEGERS, *FLOATS)


def _key(id: TypeId, seed: int) -> pl.Series:
    """Return a key of few values: nulls, and of floats NaN and both zeros."""
    series = column(id, seed)
    if id in FLOATS:
        return column(id, seed, values=(0.0, -0.0, 1.0, float("nan"), 2.5))
    return column(
        id, seed, values=series.to_physical().drop_nulls().unique(maintain_order=True).head(4).to_list()
    )


def group_cases() -> Iterator[Case]:
    """Yield cases of group-bys, with keys and without."""
    for id in _KEYS:
        frame = unnamed([_key(id, 1), column(T.INT32, 2)])
        count = Aggregate("count_all", 0, INT64)
        for in_order in (False, True):
            name = f"group by {id.name}{' in order' if in_order else ''}"
            yield group_case(name, frame, Group((0,), (count,), in_order), ordered=in_order)
    for id in DTYPES:
        yield from _aggregates(id)
    frame = unnamed([_key(T.STRING, 1), _key(T.INT64, 2), column(T.FLOAT64, 3, where=lambda v: abs(v) < 100)])
    several = Group((0, 1), (Aggregate("sum", 2, FLOAT64), Aggregate("count_valid", 2, CudfType(T.UINT32))))
    yield group_case("group by two keys", frame, several)
    yield group_case("group by two keys, no rows", frame.clear(), several)
    yield group_case("group by keys alone", frame, Group((0, 1), ()))
    for scale in (2, 4):
        frame = unnamed([_key(T.INT64, 1), decimals(scale, 2)])
        for keys in ((0,), ()):
            kinds = tuple(
                Aggregate(kind, 1, CudfType(T.DECIMAL128, -scale)) for kind in ("sum", "min", "max")
            )
            yield group_case(f"decimals of scale {scale} by {keys}", frame, Group(keys, kinds))


def _aggregates(id: TypeId) -> Iterator[Case]:
    """Yield the aggregates of a type, each in a program of its own."""
    tame = column(id, 3, where=(lambda v: abs(v) < 100) if id in _NUMBERS else lambda _: True)
    numbers = column(id, 3, where=lambda v: v == v)
    kinds: list[tuple[str, pl.Series, CudfType, tuple[int | float | str, ...]]] = [
        *((kind, numbers, CudfType(id), ()) for kind in ("min", "max")),
        *(
            (kind, column(id, 3), INT64, ())
            for kind in ("count_valid", "count_all", "nunique", "nunique_valid")
        ),
        *((kind, column(id, 3), CudfType(id), ()) for kind in ("first", "last")),
    ]
    if id in _NUMBERS:
        wide = CudfType(id) if id in FLOATS else INT64
        kinds += [("sum", column(id, 3) if id in INTEGERS else tame, wide, ())]
        if wide != CudfType(id):
            kinds += [("sum", column(id, 3), CudfType(id), ())]
        kinds += [("product", column(id, 4, values=(1, 2, 3)), wide, ())]
        kinds += [(kind, tame, FLOAT64, ()) for kind in ("mean", "median")]
        kinds += [(kind, tame, FLOAT64, (ddof,)) for kind in ("var", "std") for ddof in (0, 1)]
        ways = ("linear", "lower", "higher", "midpoint", "nearest")
        kinds += [("quantile", tame, FLOAT64, (q, way)) for q in (0.0, 0.3, 0.5, 1.0) for way in ways]
    for kind, values, type, options in kinds:
        if id is T.BOOL8 and kind in ("min", "max"):
            continue
        said = f"{kind}{list(options) if options else ''} of {id.name} as {type.id.name}"
        one = Aggregate(kind, 1, type, options)
        frame = unnamed([_key(T.INT64, 1), values])
        yield group_case(said, frame, Group((0,), (one,)))
        yield group_case(f"{said}, all rows", frame, Group((), (one,)))
        yield group_case(f"{said}, no rows", frame.clear(), Group((), (one,)))
        nothing = frame.with_columns(pl.lit(None, dtype=frame.dtypes[1]).alias("1"))
        yield group_case(f"{said}, nulls only", nothing, Group((0,), (one,)))
    # any of equal values
    equal = unnamed([_key(T.INT64, 1), column(id, 3, nulls=0.0).head(1).new_from_index(0, 60)])
    yield group_case(f"any of {id.name}", equal, Group((0,), (Aggregate("any", 1, CudfType(id)),)))


def order_cases() -> Iterator[Case]:
    """Yield cases of sorts, distinct rows, held rows and filters."""
    for id in DTYPES:
        frame = unnamed([_key(id, 1), pl.Series(range(60))])
        wide = unnamed([column(id, 1), pl.Series(range(60))])
        for descending in (False, True):
            for nulls_first in (False, True):
                key = SortKey(0, descending, nulls_first)
                said = f"{id.name}{' descending' if descending else ''}, nulls {'first' if nulls_first else 'last'}"
                yield sink_case(f"stable sort by {said}", frame, Sort((key,), stable=True), ordered=True)
                both = Sort((key, SortKey(1)))
                yield sink_case(f"sort by {said}", wide, both, ordered=True)
                top = Sort((key, SortKey(1)), range=RowRange(2, 5))
                yield sink_case(f"rows of a sort by {said}", wide, top, ordered=True)
        for keep in ("first", "last", "none"):
            for in_order in (False, True):
                said = f"distinct {id.name}, {keep}{' in order' if in_order else ''}"
                yield sink_case(said, frame, Distinct((0,), keep, in_order), ordered=in_order)
        alone = unnamed([_key(id, 1)])
        yield sink_case(f"distinct {id.name}, any", alone, Distinct((0,)), ordered=False)
    frame = unnamed([_key(T.INT64, 1), _key(T.STRING, 2), pl.Series(range(60))])
    two = Sort((SortKey(0, True, False), SortKey(1, False, True)), stable=True)
    yield sink_case("stable sort by two keys", frame, two, ordered=True)
    yield sink_case("distinct rows of two keys", frame, Distinct((0, 1), "first", True), ordered=True)
    for offset, length in ((0, 5), (3, None), (-4, 2), (-100, 42), (50, 100), (70, 3), (0, 0)):
        held = Hold(True, RowRange(offset, length))
        yield sink_case(f"rows {offset}, {length}", frame, held, ordered=True)
    yield sink_case("no rows held", frame.clear(), Hold(True), ordered=True)
    mask = unnamed([column(T.BOOL8, 1), pl.Series(range(60))])
    kept = Filter(Column(0, CudfType(T.BOOL8)))
    yield sink_case("filter", mask, Hold(True), ordered=True, steps=(kept,))
    none = Filter(Call("is_null", (Column(1, INT64),), CudfType(T.BOOL8)))
    yield sink_case("filter of all rows", mask, Hold(True), ordered=True, steps=(none,))


def join_cases() -> Iterator[Case]:
    """Yield cases of joins."""
    for id in _KEYS:
        left = unnamed([_key(id, 1), pl.Series(range(60))])
        right = unnamed([_key(id, 2).head(20), column(T.FLOAT64, 3).head(20)])
        once = right.unique("0", keep="first", maintain_order=True)
        for nulls_equal in (False, True):
            said = f"by {id.name}{', nulls equal' if nulls_equal else ''}"
            for kind in ("inner", "left", "semi", "anti"):
                yield probe_case(f"{kind} join {said}", kind, left, right, 1, nulls_equal=nulls_equal)
                yield probe_case(f"{kind} join {said}, once", kind, left, once, 1, nulls_equal=nulls_equal)
            yield whole_join_case(f"full join {said}", "full", left, right, 1, nulls_equal=nulls_equal)
    left = unnamed([_key(T.INT64, 1), _key(T.STRING, 2), pl.Series(range(60))])
    right = unnamed([_key(T.INT64, 3), _key(T.STRING, 4), column(T.TIMESTAMP_DAYS, 5)]).head(25)
    for kind in ("inner", "left", "semi", "anti"):
        for nulls_equal in (False, True):
            said = f"{kind} join by two keys{', nulls equal' if nulls_equal else ''}"
            yield probe_case(said, kind, left, right, 2, nulls_equal=nulls_equal)
        yield probe_case(f"{kind} join with nothing", kind, left, right.clear(), 2, nulls_equal=False)
        yield probe_case(f"{kind} join of nothing", kind, left.clear(), right, 2, nulls_equal=False)
    for a, b in ((left, right), (left.clear(), right), (left, right.clear())):
        yield whole_join_case(f"full join of {a.height} and {b.height}", "full", a, b, 2, nulls_equal=False)
        yield whole_join_case(f"cross join of {a.height} and {b.height}", "cross", a, b, 0, nulls_equal=False)


def scan_case(folder: str | Path | None = None) -> Case:
    """Return a case of a file of row groups, written into a folder, by default a new one that stays."""
    where = Path(tempfile.mkdtemp()) if folder is None else Path(folder)
    frame = unnamed([column(id, 1) for id in DTYPES if not id.name.startswith("DURATION")] + [decimals(2, 1)])
    path = where / "conformance.parquet"
    frame.write_parquet(path, row_group_size=25)
    types = tuple(type_of(dtype) for dtype in frame.dtypes)
    scan = ParquetScan((ParquetFile(str(path), (2, 0)), ParquetFile(str(path))), tuple(frame.columns), types)
    return Case("scan of row groups", program([Pipeline(scan, (), Hold(True), types)]), ())
