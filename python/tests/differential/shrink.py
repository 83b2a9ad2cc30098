"""Makes a failing case smaller while it fails alike: fewer steps, expressions, rows, columns and ranks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from cudf_polars.execute.options import ExecutionOptions
from differential.cases import Case, rename_variable, with_lines
from differential.compare import Finding, Kind
from differential.relation import Line
from differential.tables import Table

__all__ = ["alike", "shrink"]

Check = Callable[[Case, Path], Finding | None]


def alike(first: Finding, second: Finding | None) -> bool:
    """Whether two findings are probably the same fault."""
    if second is None or first.kind is not second.kind:
        return False
    if first.kind in (Kind.WE_RAISE, Kind.WE_ANSWER, Kind.ERROR_TYPE):
        return first.detail.split(":")[0] == second.detail.split(":")[0]
    return True


def shrink(case: Case, finding: Finding, folder: Path, check: Check, seconds: float) -> tuple[Case, Finding]:
    """Return the smallest case found within ``seconds`` that fails like ``finding``, and how it fails."""
    end = time.monotonic() + seconds
    improved = True
    while improved:
        improved = False
        for candidate in _candidates(case, folder):
            if time.monotonic() > end:
                return case, finding
            for table in candidate.tables:
                table.write(folder)
            found = check(candidate, folder)
            if alike(finding, found):
                assert found is not None
                case, finding, improved = candidate, found, True
                break
        for table in case.tables:
            table.write(folder)
    return case, finding


def _candidates(case: Case, folder: Path) -> Iterator[Case]:
    for maker in (_fewer_lines, _shorter_lines):
        for lines in maker(case.lines):
            found = with_lines(case, lines, folder)
            if found is not None:
                yield found
    if case.nranks > 2:
        fewer = [_recut(table, 2) for table in case.tables]
        yield replace(case, nranks=2, tables=fewer)
    if case.loopback:
        yield replace(case, loopback=False)
    if case.shipped:
        yield replace(case, shipped=False)
    if case.flags:
        yield replace(case, flags=())
    for options in (ExecutionOptions(fallback_mode="silent"), ExecutionOptions.tiny("silent")):
        if case.options != options and case.options != ExecutionOptions(fallback_mode="silent"):
            yield replace(case, options=options)
    for number, table in enumerate(case.tables):
        for smaller in _smaller(table):
            tables = [*case.tables[:number], smaller, *case.tables[number + 1 :]]
            found = (
                with_lines(replace(case, tables=tables), case.lines, folder)
                if smaller.kind == "frame"
                else None
            )
            yield found or replace(case, tables=tables)


def _recut(table: Table, nranks: int) -> Table:
    if table.kind != "frame":
        return table
    height = table.frame.height
    return replace(table, cuts=tuple(height * part // nranks for part in range(nranks + 1)))


def _fewer_lines(lines: list[Line]) -> Iterator[list[Line]]:
    for number in range(len(lines) - 1, -1, -1):
        line = lines[number]
        if not line.inputs:
            continue
        for other in dict.fromkeys(line.inputs):
            rest = [
                replace(
                    later,
                    inputs=tuple(other if name == line.target else name for name in later.inputs),
                    text=rename_variable(later.text, line.target, other),
                )
                for later in lines[number + 1 :]
            ]
            yield [*lines[:number], *rest]


def _shorter_lines(lines: list[Line]) -> Iterator[list[Line]]:
    for number, line in enumerate(lines):
        for text in _fewer_arguments(line.text):
            yield [*lines[:number], replace(line, text=text), *lines[number + 1 :]]


def _fewer_arguments(text: str) -> Iterator[str]:
    """Yield the text without one of the arguments of a call that has several."""
    stack: list[list[int]] = []
    quote = ""
    found: list[tuple[int, int, bool]] = []
    for at, char in enumerate(text):
        if quote:
            if char == quote:
                quote = ""
        elif char in "'\"":
            quote = char
        elif char in "([{":
            stack.append([at])
        elif char == "," and stack:
            stack[-1].append(at)
        elif char in ")]}" and stack:
            marks = [*stack.pop(), at]
            if len(marks) > 2 and len(stack) < 2:
                found += [(marks[i], marks[i + 1], i == 0) for i in range(len(marks) - 1)]
    for start, stop, first in sorted(found, key=lambda span: span[0] - span[1]):
        yield text[: start + 1] + text[stop + 1 :] if first else text[:start] + text[stop:]


def _smaller(table: Table) -> Iterator[Table]:
    height = table.frame.height

    def kept(low: int, high: int) -> Table:
        cuts = tuple(min(max(cut, low), high) - low for cut in table.cuts)
        cuts = (0, *cuts[1:-1], high - low)
        return replace(table, frame=table.frame[low:high], cuts=cuts)

    if height > 1:
        yield kept(0, height // 2)
        yield kept(height // 2, height)
        if height < 12:
            for row in range(height):
                cuts = tuple(cut - (cut > row) for cut in table.cuts)
                frame = table.frame[:row].vstack(table.frame[row + 1 :])
                yield replace(table, frame=frame, cuts=cuts)
    for name in table.frame.columns:
        if table.frame.width > 1 and name not in table.options.get("by", ()):
            yield replace(table, frame=table.frame.drop(name))
    if table.kind in ("csv", "ndjson", "ipc", "hive"):
        options = {"row_group_size": 3, "statistics": True, "schema": False}
        yield replace(table, kind="parquet", cuts=(0, height), options=options)
    if table.kind == "parquet" and len(table.cuts) > 2:
        yield replace(table, cuts=(0, height))
