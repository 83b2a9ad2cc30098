"""Partitions of tables that come by the Arrow device interface, without a GPU and without pylibcudf.

A pyarrow record batch has the device interface, too: on a CPU it stands for a table of libcudf.
"""

from __future__ import annotations

import sys
import types

import polars as pl
import pyarrow as pa
import pytest
from polars.testing import assert_frame_equal
from rapidsmpf import table as tables
from rapidsmpf.config import Options
from rapidsmpf.error import ReservationError
from rapidsmpf.integrations.cudf.partition import (
    partition_and_pack,
    spill_partitions,
    split_and_pack,
    unpack_and_concat,
    unspill_partitions,
)
from rapidsmpf.memory.buffer import MemoryType
from rapidsmpf.memory.buffer_resource import BufferResource
from rapidsmpf.memory.packed_data import PackedData
from rapidsmpf.memory.stream_pool import HostStream
from rapidsmpf.utils.system_info import get_device_name

pytestmark = pytest.mark.skipif(
    get_device_name() != "cpu", reason="stands for device memory with memory of the host"
)

BATCH = pa.record_batch(
    {
        "a": pa.array([1, 2, None, 4, 5, 6], pa.int64()),
        "s": pa.array(["x", None, "", "longer than inline texts are", "y", "z"]),
        "b": pa.array([True, False, None, True, True, False]),
        "l": pa.array([[1], [], None, [2, 3], [4], [5, None]], pa.list_(pa.int32())),
        "c": pa.array(["u", "v", "u", None, "w", "v"]).dictionary_encode(),
    }
)


class DeviceOnly:
    """Has of a table the device interface only."""

    def __init__(self, batch):
        self.batch = batch

    def __arrow_c_device_array__(self, requested_schema=None, **kwargs):
        return self.batch.__arrow_c_device_array__(requested_schema, **kwargs)


@pytest.fixture
def pylibcudf(monkeypatch):
    """What is used of pylibcudf, by pyarrow."""

    class FakeTable:
        @staticmethod
        def from_arrow(obj, dtype=None, stream=None):
            assert not isinstance(obj, pa.RecordBatch)
            return pa.RecordBatch._import_from_c_device_capsule(*obj.__arrow_c_device_array__())

    module = types.ModuleType("pylibcudf")
    module.Table = FakeTable
    monkeypatch.setitem(sys.modules, "pylibcudf", module)
    return module


class ColumnAt:
    """A column of pylibcudf that begins somewhere in its memory: what is exported of it, and what is there."""

    def __init__(self, exported, offset=0, *children, kind="INT64", mask=None, content=None):
        self.exported = exported
        self.content = content or exported
        self._offset = offset
        self._children = list(children)
        self._kind = kind
        self._mask = mask

    def offset(self):
        return self._offset

    def children(self):
        return self._children

    def null_mask(self):
        return self._mask

    def type(self):
        return types.SimpleNamespace(id=lambda: types.SimpleNamespace(name=self._kind))


class TableOf:
    """A table of pylibcudf."""

    def __init__(self, columns):
        self._columns = list(columns)

    def columns(self):
        return self._columns

    def __arrow_c_device_array__(self, requested_schema=None, **kwargs):
        arrays = [column.exported for column in self._columns]
        batch = pa.record_batch(arrays, names=[str(number) for number in range(len(arrays))])
        return batch.__arrow_c_device_array__(requested_schema, **kwargs)


def rows(batch) -> pl.DataFrame:
    return pl.DataFrame(batch)


def test_partitions_are_those_of_a_host_table(br):
    found = partition_and_pack(DeviceOnly(BATCH), [0, 1], 4, HostStream(), br)
    expected = tables.partition_and_pack(BATCH, [0, 1], 4, br)
    assert sorted(found) == [0, 1, 2, 3]
    for pid, part in found.items():
        assert part.metadata == expected[pid].metadata
        assert part.mem_type is MemoryType.DEVICE


def test_a_table_survives_being_partitioned(br, pylibcudf):
    parts = partition_and_pack(DeviceOnly(BATCH), [0], 3, HostStream(), br)
    together = unpack_and_concat(parts.values(), HostStream(), br)
    assert_frame_equal(rows(together), rows(BATCH), check_row_order=False)


def test_ranges_of_rows(br, pylibcudf):
    parts = split_and_pack(DeviceOnly(BATCH), [1, 4], HostStream(), br)
    assert sorted(parts) == [0, 1, 2]
    for pid, (begin, end) in enumerate([(0, 1), (1, 4), (4, 6)]):
        found = unpack_and_concat([parts[pid]], HostStream(), br)
        assert_frame_equal(rows(found), rows(BATCH[begin:end]))


NUMBERS = pa.array([1, 2, 3, 4, 5, 6])
TEXTS = pa.array(list("abcdef"))


@pytest.mark.parametrize(
    "column",
    [
        ColumnAt(TEXTS[:3], 3, ColumnAt(None), kind="STRING", content=TEXTS[3:]),
        ColumnAt(TEXTS[:3], 0, ColumnAt(None, 3), kind="STRUCT", content=TEXTS[3:]),
        ColumnAt(NUMBERS[:3], 3, mask=object(), content=NUMBERS[3:]),
        ColumnAt(NUMBERS[:3], 3, kind="BOOL8", content=NUMBERS[3:]),
    ],
)
def test_columns_whose_slices_are_not_exported_are_copied(br, pylibcudf, column):
    # What is exported of such a column begins with the rows of the whole.
    plain = ColumnAt(NUMBERS[3:], 3)
    copied = []

    def concatenate(parts, stream):
        copied.extend(part.columns() for part in parts)
        return TableOf([ColumnAt(one.content) for part in parts for one in part.columns()])

    pylibcudf.concatenate = types.SimpleNamespace(concatenate=concatenate)
    pylibcudf.Table = TableOf
    part = TableOf([plain, column])
    found = tables.unpack_and_concat([split_and_pack(part, [], HostStream(), br)[0]], br)
    assert rows(found).to_dict(as_series=False) == {"0": [4, 5, 6], "1": column.content.to_pylist()}
    parts = partition_and_pack(part, [0], 2, HostStream(), br)
    assert sum(tables.unpack(packed).num_rows for packed in parts.values()) == 3
    assert copied == [[column], [column]]


def test_what_is_exported_as_it_is_is_not_copied(br, pylibcudf):
    # No concatenate() is there.
    whole = TableOf([ColumnAt(NUMBERS[3:], 3), ColumnAt(TEXTS[:3], 0, ColumnAt(None), kind="STRING")])
    found = tables.unpack_and_concat([split_and_pack(whole, [], HostStream(), br)[0]], br)
    assert rows(found).to_dict(as_series=False) == {"0": [4, 5, 6], "1": ["a", "b", "c"]}


def test_partitions_are_taken(br, pylibcudf):
    parts = split_and_pack(DeviceOnly(BATCH), [3], HostStream(), br)
    unpack_and_concat(parts.values(), HostStream(), br)
    with pytest.raises(ValueError, match="taken already"):
        unpack_and_concat(parts.values(), HostStream(), br)


def test_the_memory_of_a_result_lives_as_long_as_it(br, pylibcudf):
    together = unpack_and_concat(
        split_and_pack(DeviceOnly(BATCH), [3], HostStream(), br).values(), HostStream(), br
    )
    del br
    assert_frame_equal(rows(together), rows(BATCH))


def test_nothing_to_concatenate(br, pylibcudf):
    with pytest.raises(ValueError, match="no parts"):
        unpack_and_concat([], HostStream(), br)


def test_without_pylibcudf_the_rows_are_a_table_of_ours(br, monkeypatch):
    monkeypatch.setitem(sys.modules, "pylibcudf", None)
    parts = split_and_pack(DeviceOnly(BATCH), [3], HostStream(), br)
    table = unpack_and_concat(parts.values(), HostStream(), br)
    assert isinstance(table, tables.Table)
    assert pa.record_batch(table).equals(BATCH)
    # They were taken.
    with pytest.raises(ValueError, match="taken"):
        unpack_and_concat(parts.values(), HostStream(), br)


def test_pylibcudf_that_finds_no_gpu_is_as_none(br, pylibcudf, monkeypatch):
    def no_driver(table, stream=None):
        raise RuntimeError("cuda is a driver library")

    monkeypatch.setattr(pylibcudf.Table, "from_arrow", no_driver)
    parts = split_and_pack(DeviceOnly(BATCH), [3], HostStream(), br)
    assert pa.record_batch(unpack_and_concat(parts.values(), HostStream(), br)).equals(BATCH)


def test_without_pylibcudf_it_says_what_to_install(br, monkeypatch):
    monkeypatch.setitem(sys.modules, "pylibcudf", None)
    foreign = PackedData.from_parts(b"not ours", b"bytes", br)
    with pytest.raises(ImportError, match="pip install pylibcudf"):
        unpack_and_concat([foreign], HostStream(), br)
    # Nothing has been taken.
    assert foreign.to_host_bytes() == b"bytes"


def test_wrong_arguments(br):
    with pytest.raises(IndexError):
        partition_and_pack(DeviceOnly(BATCH), [5], 2, HostStream(), br)
    with pytest.raises(IndexError):
        split_and_pack(DeviceOnly(BATCH), [7], HostStream(), br)
    with pytest.raises(ValueError, match="number of partitions"):
        partition_and_pack(DeviceOnly(BATCH), [0], 0, HostStream(), br)
    with pytest.raises(TypeError, match="__cuda_stream__"):
        partition_and_pack(DeviceOnly(BATCH), [0], 2, "stream", br)
    with pytest.raises(TypeError, match="must be PackedData"):
        spill_partitions(["part"], br)
    with pytest.raises(TypeError, match="a table must have"):
        partition_and_pack("table", [0], 2, HostStream(), br)


def test_a_device_array_is_read_once(br):
    class Once:
        def __init__(self):
            self.capsules = BATCH.__arrow_c_device_array__()

        def __arrow_c_device_array__(self, requested_schema=None, **kwargs):
            return self.capsules

    once = Once()
    assert tables.Table(once, br).num_rows == BATCH.num_rows
    with pytest.raises(ValueError, match="read already"):
        tables.Table(once, br)


def test_spilling_and_back(br, pylibcudf):
    parts = list(partition_and_pack(DeviceOnly(BATCH), [0], 3, HostStream(), br).values())
    spilled = spill_partitions(parts, br)
    assert [part.mem_type for part in spilled] == [MemoryType.HOST] * 3
    with pytest.raises(ValueError, match="taken already"):
        spill_partitions(parts, br)
    again = spill_partitions(spilled, br)
    back = unspill_partitions(again, br, allow_overbooking=False)
    assert [part.mem_type for part in back] == [MemoryType.DEVICE] * 3
    together = unpack_and_concat(back, HostStream(), br)
    assert_frame_equal(rows(together), rows(BATCH), check_row_order=False)


def test_what_is_spilled_can_be_concatenated_at_once(br, pylibcudf):
    parts = split_and_pack(DeviceOnly(BATCH), [2], HostStream(), br)
    together = unpack_and_concat(spill_partitions(parts.values(), br), HostStream(), br)
    assert_frame_equal(rows(together), rows(BATCH))


def test_unspilling_more_than_there_is(br):
    parts = spill_partitions(split_and_pack(DeviceOnly(BATCH), [], HostStream(), br).values(), br)
    full = BufferResource.from_options(None, Options({"spill_device_limit": "1"}))
    with pytest.raises(ReservationError):
        unspill_partitions(parts, full, allow_overbooking=False)
    parts = spill_partitions(split_and_pack(DeviceOnly(BATCH), [], HostStream(), br).values(), br)
    (back,) = unspill_partitions(parts, full, allow_overbooking=True)
    assert back.mem_type is MemoryType.DEVICE


def test_spilling_leaves_what_is_no_table(br):
    (packed,) = spill_partitions([PackedData.from_host_bytes(b"bytes", br)], br)
    assert packed.to_host_bytes() == b"bytes"
