"""Sinks and joins: what breaks a pipeline. What libcudf leaves without an order comes in a random one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cudf_polars.execute.gpu.program import (
    Aggregate,
    Build,
    Distinct,
    FromJoin,
    Group,
    Hold,
    Probe,
    RowRange,
    Sink,
    Sort,
)
from support.cudf_emulator.aggregates import Groups, aggregate
from support.cudf_emulator.choices import normalize_nans_and_zeros
from support.cudf_emulator.columns import FLOATS, Array, Values, nulls
from support.cudf_emulator.errors import refuse
from support.cudf_emulator.keys import ordered_codes, pairs_of, row_codes

__all__ = ["Table", "finish", "join_whole", "probe"]

Table = list[Values]


def finish(sink: Sink, rows: Table, count: int, random: np.random.Generator) -> Table:
    """Return what a sink makes of all rows, which come in the order of the source."""
    match sink:
        case Build(keys):
            _expect(keys, rows)
            return _taken(rows, random.permutation(count))
        case Hold(in_order, range_):
            order = np.arange(count) if in_order else random.permutation(count)
            return _taken(rows, order[_span(range_, count)])
        case Sort():
            return _taken(rows, _sorted(sink, rows, count, random)[_span(sink.range, count)])
        case Distinct():
            return _distinct(sink, rows, count, random)
        case Group():
            return _grouped(sink, rows, count, random)


def _taken(rows: Table, order: Array) -> Table:
    return [column.take(order) if len(column) else column for column in rows]


def _expect(places: Sequence[int], rows: Table) -> None:
    for place in places:
        if not 0 <= place < len(rows):
            refuse(f"there is no column {place} of {len(rows)}")


def _span(range_: RowRange | None, rows: int) -> slice:
    """Return which rows a range takes; one that begins before the first row is that much shorter."""
    if range_ is None:
        return slice(0, rows)
    begin = range_.offset if range_.offset >= 0 else rows + range_.offset
    end = rows if range_.length is None else begin + range_.length
    begin, end = min(max(begin, 0), rows), min(max(end, 0), rows)
    return slice(begin, max(begin, end))


def _sorted(sort: Sort, rows: Table, count: int, random: np.random.Generator) -> Array:
    _expect([key.column for key in sort.keys], rows)
    order = np.arange(count) if sort.stable else random.permutation(count)
    for key in reversed(sort.keys):
        column = rows[key.column].take(order) if count else rows[key.column]
        ranks = ordered_codes(column)  # NaN is larger than all numbers
        if key.descending:
            ranks = -ranks
        far = count + 1
        ranks = np.where(column.valid, ranks, -far if key.nulls_first else far)
        order = order[np.argsort(ranks, kind="stable")]
    return order


def _distinct(distinct: Distinct, rows: Table, count: int, random: np.random.Generator) -> Table:
    keys = distinct.keys or tuple(range(len(rows)))
    _expect(keys, rows)
    codes = row_codes([rows[key] for key in keys], count)
    order = np.arange(count) if distinct.keep in ("first", "last") else random.permutation(count)
    if distinct.keep == "last":
        order = order[::-1]
    _, first, counts = np.unique(codes[order], return_index=True, return_counts=True)
    match distinct.keep:
        case "any" | "first" | "last":
            kept = order[first]
        case "none":
            kept = order[first[counts == 1]]
        case _:
            refuse(f"distinct cannot keep {distinct.keep!r}")
    return _taken(rows, np.sort(kept) if distinct.in_order else random.permutation(kept))


def _grouped(group: Group, rows: Table, count: int, random: np.random.Generator) -> Table:
    _expect([*group.keys, *(a.column for a in group.aggregates if a.kind != "count_all")], rows)
    keys = [rows[key] for key in group.keys]
    if keys:
        codes = row_codes(keys, count)
        order = np.argsort(codes, kind="stable")
        starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    else:
        order, starts = np.arange(count), np.zeros(1, dtype=np.int64)
    groups = Groups(order, starts)
    if keys and not count:
        groups = Groups(order, np.zeros(0, dtype=np.int64))
    given = [column.take(order[starts]) if count else column for column in keys]
    made = [*given, *(_aggregated(a, rows, groups, random) for a in group.aggregates)]
    made = [normalize_nans_and_zeros(c) if c.type.id in FLOATS else c for c in made]
    if not keys:
        return made
    first_rows = order[starts]
    there = np.argsort(first_rows) if group.in_order else random.permutation(len(starts))
    return _taken(made, there)


def _aggregated(wanted: Aggregate, rows: Table, groups: Groups, random: np.random.Generator) -> Values:
    return aggregate(rows[wanted.column] if wanted.kind != "count_all" else rows[0], wanted, groups, random)


# --- joins ----------------------------------------------------------------------


def _check_keys(left: Table, right: Table, kind: str) -> None:
    if len(left) != len(right):
        refuse(f"a {kind} join of {len(left)} and {len(right)} keys")
    for a, b in zip(left, right, strict=True):
        if a.type != b.type:
            refuse(f"a {kind} join of keys of {a.type} and {b.type}")


def probe(
    step: Probe,
    build: Build,
    built: Table,
    built_rows: int,
    rows: Table,
    count: int,
    random: np.random.Generator,
) -> tuple[Table, int]:
    """Return a chunk joined with what was built, and its rows."""
    _expect(step.keys, rows)
    _expect(step.payload, built)
    left = [rows[key] for key in step.keys]
    right = [built[key] for key in build.keys]
    _check_keys(left, right, step.kind)
    here, there = pairs_of(left, right, (count, built_rows), nulls_equal=build.nulls_equal)
    found = np.zeros(count, dtype=np.bool_)
    found[here] = True
    match step.kind:
        case "semi" | "anti":
            here = np.flatnonzero(found == (step.kind == "semi"))
        case "left":
            lone = np.flatnonzero(~found)
            here = np.concatenate([here, lone])
            there = np.concatenate([there, np.full(len(lone), -1)])
        case "inner":
            pass
        case _:
            refuse(f"a chunk cannot be probed by a {step.kind} join")
    order = random.permutation(len(here))
    if step.kind == "left":
        itself, _ = pairs_of(right, right, (built_rows, built_rows), nulls_equal=build.nulls_equal)
        if len(itself) <= built_rows:  # no key is there twice, so each row stays where it is
            order = np.argsort(here, kind="stable")
    out = [column.take(here[order]) if count else column for column in rows]
    if step.kind in ("inner", "left"):
        out += [_gathered(built[place], there[order]) for place in step.payload]
    elif step.payload:
        refuse(f"a {step.kind} join has no payload")
    return out, len(here)


def _gathered(column: Values, rows: Array) -> Values:
    if len(column) == 0:
        return nulls(column.type, len(rows))
    return column.take(rows)


def join_whole(
    source: FromJoin, left: Table, left_rows: int, right: Table, right_rows: int, random: np.random.Generator
) -> tuple[Table, int]:
    """Return a full or cross join of two tables, and its rows."""
    if source.kind == "cross":
        here = np.repeat(np.arange(left_rows), right_rows)
        there = np.tile(np.arange(right_rows), left_rows)
    elif source.kind == "full":
        _expect(source.left_keys, left)
        _expect(source.right_keys, right)
        keys = [left[k] for k in source.left_keys], [right[k] for k in source.right_keys]
        _check_keys(*keys, "full")
        here, there = pairs_of(*keys, (left_rows, right_rows), nulls_equal=source.nulls_equal)
        lone_left = np.setdiff1d(np.arange(left_rows), here)
        lone_right = np.setdiff1d(np.arange(right_rows), there)
        here = np.concatenate([here, lone_left, np.full(len(lone_right), -1)])
        there = np.concatenate([there, np.full(len(lone_left), -1), lone_right])
    else:
        refuse(f"only full and cross joins take both sides whole, not {source.kind}")
    order = random.permutation(len(here))
    return [
        *(_gathered(c, here[order]) for c in left),
        *(_gathered(c, there[order]) for c in right),
    ], len(here)
