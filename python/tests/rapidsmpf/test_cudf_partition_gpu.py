"""Partitions of pylibcudf's tables, compared with what pylibcudf itself makes. Needs a GPU and pylibcudf."""

from __future__ import annotations

import datetime
import decimal
import random

import pyarrow as pa
import pytest
from rapidsmpf import table as tables
from rapidsmpf.integrations.cudf.partition import (
    partition_and_pack,
    spill_partitions,
    split_and_pack,
    unpack_and_concat,
    unspill_partitions,
)
from rapidsmpf.memory.buffer import MemoryType
from rapidsmpf.memory.packed_data import PackedData
from rapidsmpf.utils.system_info import get_device_name

plc = pytest.importorskip("pylibcudf")
rmm_stream = pytest.importorskip("rmm.pylibrmm.stream")

pytestmark = pytest.mark.skipif(get_device_name() == "cpu", reason="the compute device is the CPU")

TYPES = {
    "i8": (pa.int8(), lambda r: r.randint(-128, 127)),
    "i16": (pa.int16(), lambda r: r.randint(-999, 999)),
    "i32": (pa.int32(), lambda r: r.randint(-10, 10)),
    "i64": (pa.int64(), lambda r: r.randint(-(2**60), 2**60)),
    "u32": (pa.uint32(), lambda r: r.randint(0, 2**32 - 1)),
    "f32": (pa.float32(), lambda r: r.choice([0.0, -0.0, 1.5, 2.25])),
    "f64": (pa.float64(), lambda r: r.choice([0.0, -0.0, 1.5, float("inf")])),
    "bool": (pa.bool_(), lambda r: r.random() < 0.5),
    "text": (pa.string(), lambda r: "x" * r.randint(0, 40) + str(r.randint(0, 99))),
    "long_text": (pa.large_string(), lambda r: "y" * r.randint(0, 300)),
    "date": (
        pa.timestamp("us"),
        lambda r: datetime.datetime(2026, 1, 1) + datetime.timedelta(r.randint(0, 99)),
    ),
    "dec": (pa.decimal128(20, 2), lambda r: decimal.Decimal(r.randint(-(10**9), 10**9)) / 100),
    "list": (pa.list_(pa.int32()), lambda r: [r.randint(0, 9) for _ in range(r.randint(0, 5))]),
    "texts": (pa.list_(pa.string()), lambda r: ["z" * r.randint(0, 9) for _ in range(r.randint(0, 4))]),
    "struct": (
        pa.struct([("p", pa.int64()), ("q", pa.string())]),
        lambda r: {"p": r.randint(0, 9), "q": "w" * r.randint(0, 20)},
    ),
}


def random_table(seed: int) -> pa.Table:
    """Columns of every type, some with nulls."""
    r = random.Random(seed)
    count = r.choice([1, 7, 100, 5000])
    nulls = {name: r.choice([0.0, 0.3]) for name in TYPES}
    return pa.table(
        {
            name: pa.array([None if r.random() < nulls[name] else make(r) for _ in range(count)], kind)
            for name, (kind, make) in TYPES.items()
        }
    )


def metadata_of(field: pa.Field):
    """Name a column and what is in it, as pylibcudf wants it: a column there has no names."""
    children = []
    if pa.types.is_struct(field.type):
        children = [metadata_of(child) for child in field.type]
    elif pa.types.is_list(field.type):
        children = [plc.interop.ColumnMetadata("offsets"), metadata_of(field.type.value_field)]
    return plc.interop.ColumnMetadata(field.name, children_meta=children)


def back(table, like: pa.Table) -> pa.Table:
    """Bring a table of pylibcudf to the host, with the names and types of another."""
    metadata = [metadata_of(field) for field in like.schema]
    return table.to_arrow(metadata=metadata).cast(like.schema).combine_chunks()


@pytest.fixture
def stream():
    return rmm_stream.Stream()


@pytest.mark.parametrize("seed", range(8))
def test_partitions_hold_the_rows_where_the_host_puts_them(br, stream, seed):
    host = random_table(seed)
    table = plc.Table.from_arrow(host, stream=stream)
    count = random.Random(seed).choice([1, 2, 13])
    parts = partition_and_pack(table, [2, 8, 14], count, stream, br)
    expected = tables.partition_and_pack(host, [2, 8, 14], count, br)
    for pid, part in parts.items():
        assert part.mem_type is MemoryType.DEVICE
        wanted = pa.table(tables.unpack(expected[pid])).cast(host.schema)
        found = back(unpack_and_concat([part], stream, br), host)
        assert found.to_pylist() == wanted.to_pylist()


@pytest.mark.parametrize("seed", range(8))
def test_rows_put_together_are_those_that_libcudf_puts_together(br, stream, seed):
    host = random_table(seed)
    table = plc.Table.from_arrow(host, stream=stream)
    r = random.Random(seed)
    splits = sorted(r.randint(0, host.num_rows) for _ in range(r.randint(0, 6)))
    pieces = plc.copying.split(table, splits, stream)
    expected = plc.concatenate.concatenate(pieces, stream)
    found = unpack_and_concat(split_and_pack(table, splits, stream, br).values(), stream, br)
    assert back(found, host).equals(back(expected, host))


@pytest.mark.parametrize("seed", range(4))
def test_what_libcudf_has_packed_is_unpacked(br, stream, seed):
    host = random_table(seed)
    table = plc.Table.from_arrow(host, stream=stream)
    half = host.num_rows // 2
    first, second = plc.copying.split(table, [half], stream)
    theirs = PackedData.from_cudf_packed_columns(plc.contiguous_split.pack(first, stream), stream, br)
    ours = split_and_pack(second, [], stream, br)[0]
    assert back(unpack_and_concat([theirs, ours], stream, br), host).equals(host.combine_chunks())


@pytest.mark.parametrize("seed", range(4))
def test_slices_hold_their_own_rows(br, stream, seed):
    host = random_table(seed)
    half = host.num_rows // 2
    for table, expected in zip(
        plc.copying.split(plc.Table.from_arrow(host, stream=stream), [half], stream),
        [host[:half], host[half:]],
        strict=True,
    ):
        parts = partition_and_pack(table, [3], 3, stream, br)
        wanted = tables.partition_and_pack(expected.combine_chunks(), [3], 3, br)
        for pid, part in parts.items():
            found = back(unpack_and_concat([part], stream, br), host)
            assert found.to_pylist() == pa.table(tables.unpack(wanted[pid])).cast(host.schema).to_pylist()


def test_tables_on_the_gpu_are_read_by_what_works_on_the_host(br, stream):
    host = random_table(5)
    table = tables.Table(plc.Table.from_arrow(host, stream=stream), br, stream)
    assert table.is_on_gpu
    found = pa.table(table).rename_columns(host.column_names)  # those of pylibcudf have no names
    assert found.num_rows == host.num_rows
    assert found["i64"].to_pylist() == host["i64"].to_pylist()
    assert found["text"].to_pylist() == host["text"].to_pylist()
    assert found["texts"].to_pylist() == host["texts"].to_pylist()


def test_spilled_partitions_come_back(br, stream):
    host = random_table(3)
    parts = split_and_pack(plc.Table.from_arrow(host, stream=stream), [1, 2], stream, br)
    spilled = spill_partitions(parts.values(), br)
    assert all(part.mem_type is not MemoryType.DEVICE for part in spilled)
    returned = unspill_partitions(spilled, br, allow_overbooking=False)
    assert back(unpack_and_concat(returned, stream, br), host).equals(host.combine_chunks())


def test_columns_that_are_not_there(br, stream):
    table = plc.Table.from_arrow(pa.table({"a": [1, 2]}), stream=stream)
    with pytest.raises(IndexError):
        partition_and_pack(table, [1], 2, stream, br)
    with pytest.raises(IndexError):
        split_and_pack(table, [3], stream, br)
