"""Fragments that run one after the other: the next begins while the rows of one are read, and none is left running."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field

import polars as pl
import pytest

from cudf_polars.execute.cpu import CpuDevice
from cudf_polars.execute.fragment_runs import FragmentRuns
from cudf_polars.execute.fragments import Reading
from cudf_polars.execute.pieces import Fragment
from cudf_polars.lower.partitioning import ARBITRARY
from cudf_polars.lower.physical import Estimate, Local

STREAM = Local(
    inputs=(),
    schema={"a": pl.Int64()},
    partitioning=ARBITRARY,
    ordered=True,
    estimate=Estimate(0.0, 0.0),
    build=lambda frames, _: frames[0],
    title="ROWS",
)


class Rows(Iterator[pl.DataFrame]):
    """Batches of a fragment; ``closed`` gets its number when it is closed before its end, as queries then end."""

    def __init__(self, number: int, batches: list[pl.DataFrame | Exception], closed: list[int]) -> None:
        self._number, self._batches, self._closed = number, iter(batches), closed

    def __next__(self) -> pl.DataFrame:
        batch = next(self._batches)
        if isinstance(batch, Exception):
            raise batch
        return batch

    def close(self) -> None:
        self._closed.append(self._number)


@dataclass
class Device(CpuDevice):
    """Notes which fragments begin when; a fragment's frame has its number, and its batches are given."""

    batches_of: list[list[pl.DataFrame | Exception]]
    log: list[str] = field(default_factory=list)
    closed: list[int] = field(default_factory=list)

    def batches(
        self,
        fragment: pl.LazyFrame,
        _: pl.QueryOptFlags,
        reading: Reading,
    ) -> Iterator[pl.DataFrame]:
        """Give the batches."""
        assert reading.ordered
        number = fragment.collect().item()
        self.log.append(f"{'begins' if reading.at_once else 'waits'} {number}")
        return Rows(number, self.batches_of[number], self.closed)


def _frame(*values: int) -> pl.DataFrame:
    return pl.DataFrame({"a": values}, schema=dict(STREAM.schema))


def _fragments(sizes: list[int], taken: list[int]) -> Iterator[Fragment]:
    for number, nbytes in enumerate(sizes):
        taken.append(number)
        yield Fragment(pl.LazyFrame({"number": [number]}), [], number, nbytes=nbytes)


def _run(device: Device, sizes: list[int], taken: list[int]) -> Iterator[pl.DataFrame]:
    runs = FragmentRuns(device, pl.QueryOptFlags())
    return runs.batches_of_all(STREAM, _fragments(sizes, taken), planned=True, early_limit=100)


def test_rows_come_in_order_and_the_next_fragment_begins_with_the_first_of_them() -> None:
    device = Device([[_frame(1), _frame(2)], [], [_frame(3)], [_frame(4), _frame(5)]])
    taken: list[int] = []
    rows = _run(device, [0, 100, 0, 101], taken)
    assert taken == []
    assert next(rows)["a"].to_list() == [1]
    assert taken == [0, 1]
    assert device.log == ["waits 0", "begins 1"]
    assert [batch["a"].item() for batch in rows] == [2, 3, 4, 5]
    # The second one has no rows, so that nothing begins the third before its turn; the last one is too large for that.
    assert device.log == ["waits 0", "begins 1", "waits 2", "waits 3"]


@pytest.mark.parametrize("failing", [0, 1])
def test_a_fragment_that_fails_does_so_behind_the_rows_before_it(failing: int) -> None:
    batches: list[list[pl.DataFrame | Exception]] = [[_frame(1), _frame(2)], [_frame(3)], [_frame(4)]]
    batches[failing].append(ValueError("no"))
    device = Device(batches)
    seen: list[int] = []
    with pytest.raises(ValueError, match="no"):
        seen.extend(batch["a"].item() for batch in _run(device, [0, 0, 0], []))
    assert seen == [1, 2, 3][: 2 + failing]
    assert failing + 1 in device.closed  # which had begun


@pytest.mark.parametrize("read", [0, 1, 2])
def test_fragments_that_are_not_read_are_closed(read: int) -> None:
    device = Device([[_frame(1), _frame(2)], [_frame(3)]])
    rows = _run(device, [0, 0], [])
    for _ in range(read):
        next(rows)
    assert device.closed == []
    assert isinstance(rows, Generator)
    rows.close()
    assert sorted(device.closed) == ([0, 1] if read else [])
