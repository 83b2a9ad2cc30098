"""Tables through the Arrow C interface, packed and partitioned."""

from __future__ import annotations

import gc
import itertools

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from polars.testing import assert_frame_equal
from rapidsmpf.config import Options
from rapidsmpf.error import ReservationError
from rapidsmpf.memory.buffer import MemoryType
from rapidsmpf.memory.buffer_resource import BufferResource
from rapidsmpf.memory.packed_data import PackedData
from rapidsmpf.table import Table, pack, partition_and_pack, split_and_pack, unpack, unpack_and_concat
from rapidsmpf.utils.system_info import get_device_name

FRAME = pl.DataFrame(
    {
        "a": [1, 2, None, 4],
        "s": ["x", None, "a text that does not fit into a view", ""],
        "c": pl.Series(["u", "v", "u", None], dtype=pl.Categorical),
        "l": [[1], [], None, [2, 3]],
        "t": [{"p": 1, "q": "w"}, None, {"p": None, "q": "z"}, {"p": 4, "q": None}],
    }
)


def together(parts, br):
    return pl.DataFrame(unpack_and_concat(parts.values(), br))


class ArrayOnly:
    """Speaks ``__arrow_c_array__`` only."""

    def __init__(self, batch):
        self._batch = batch

    def __arrow_c_array__(self, requested_schema=None):
        return self._batch.__arrow_c_array__(requested_schema)


SOURCES = {
    "polars": lambda: pl.DataFrame({"a": [1, 2, 3], "b": [0.5, 1.5, 2.5]}),
    "pyarrow table": lambda: pa.table({"a": [1, 2, 3], "b": [0.5, 1.5, 2.5]}),
    "pyarrow batch": lambda: pa.record_batch({"a": [1, 2, 3], "b": [0.5, 1.5, 2.5]}),
    "pyarrow reader": lambda: pa.table({"a": [1, 2, 3], "b": [0.5, 1.5, 2.5]}).to_reader(1),
    "array only": lambda: ArrayOnly(pa.record_batch({"a": [1, 2, 3], "b": [0.5, 1.5, 2.5]})),
    "pandas": lambda: pd.DataFrame({"a": [1, 2, 3], "b": [0.5, 1.5, 2.5]}),
}


@pytest.mark.parametrize("source", SOURCES)
def test_sources(source, br):
    parts = partition_and_pack(SOURCES[source](), ["a"], 4, br)
    assert sorted(parts) == [0, 1, 2, 3]
    assert_frame_equal(together(parts, br).sort("a"), SOURCES["polars"]())


@pytest.mark.parametrize("source", SOURCES)
def test_table_of_a_source(source, br):
    table = Table(SOURCES[source](), br)
    assert (table.num_rows, table.num_columns, table.column_names) == (3, 2, ["a", "b"])
    assert_frame_equal(pl.DataFrame(table), SOURCES["polars"]())


@pytest.mark.parametrize("source", [3, None, "text", {"a": [1]}, pl.DataFrame])
def test_what_is_no_table(source, br):
    with pytest.raises(TypeError, match=type(source).__name__):
        partition_and_pack(source, [0], 2, br)


def test_a_column_is_no_table(br):
    with pytest.raises(ValueError, match="column"):
        partition_and_pack(pl.Series("a", [1]), [0], 2, br)


def test_a_stream_is_read_once(br):
    reader = SOURCES["pyarrow reader"]()
    capsule = reader.__arrow_c_stream__()

    class Once:
        def __arrow_c_stream__(self, requested_schema=None):
            return capsule

    Table(Once(), br)
    with pytest.raises(ValueError, match="read already"):
        Table(Once(), br)


def test_error_of_a_stream_comes_out(br):
    def batches():
        yield pa.record_batch({"a": [1]})
        raise KeyError("no second batch")

    reader = pa.RecordBatchReader.from_batches(pa.schema({"a": pa.int64()}), batches())
    with pytest.raises(RuntimeError, match="no second batch"):
        partition_and_pack(reader, ["a"], 2, br)


def test_unsupported_types_are_named(br):
    column = pa.RunEndEncodedArray.from_arrays([1, 3], [7, 8])
    with pytest.raises(ValueError, match="strange"):
        Table(pa.table({"strange": column}), br)


@pytest.mark.parametrize("export", ["__arrow_c_stream__", "__arrow_c_array__"])
def test_exports(export, br):
    table = unpack_and_concat([pack(FRAME, br)], br)

    class Only:
        pass

    setattr(Only, export, lambda self, requested_schema=None: getattr(table, export)(requested_schema))
    imported = pa.table(Only()) if export == "__arrow_c_stream__" else pa.record_batch(Only())
    assert_frame_equal(pl.DataFrame(pl.from_arrow(imported)), FRAME)


def test_schema_is_exported(br):
    assert pa.schema(Table(FRAME.select("a", "s"), br)) == pa.schema({"a": pa.int64(), "s": pa.string_view()})


def test_exported_memory_outlives_everything(br):
    frame = pl.DataFrame(unpack_and_concat([pack(FRAME, br)], br))
    gc.collect()
    assert_frame_equal(frame, FRAME)


def test_views_of_unpacked_bytes_are_not_copies():
    br = BufferResource(memory_available={MemoryType.DEVICE: lambda: 9_000_000})
    packed = pack(pl.DataFrame({"a": range(1_000_000)}), br)
    table = unpack(packed)
    assert table.num_rows == 1_000_000
    with pytest.raises(ValueError, match="taken"):
        unpack(packed)


def test_describes_itself(br):
    assert repr(Table(FRAME.select("a", "s"), br)) == "Table(4 rows; a: int64, s: string_view)"
    assert len(Table(FRAME, br)) == 4
    assert Table(FRAME, br).nbytes > 0


@pytest.mark.parametrize("keys", [["a"], [0], ["s", "c"], [3, "t"], "a", 0, []])
def test_keys_by_name_and_by_index(keys, br):
    parts = partition_and_pack(FRAME, keys, 3, br)
    assert_frame_equal(together(parts, br).sort("a"), FRAME.sort("a"))


def test_names_and_indices_are_the_same(br):
    frame = pl.DataFrame({"a": range(100), "b": range(100)})
    first, second = (partition_and_pack(frame, keys, 5, br) for keys in (["b"], [1]))
    for pid in range(5):
        assert first[pid].to_host_bytes() == second[pid].to_host_bytes()


def test_without_keys_all_rows_are_in_one_partition(br):
    parts = partition_and_pack(FRAME, [], 3, br)
    assert sorted(unpack(part).num_rows for part in parts.values()) == [0, 0, 4]


@pytest.mark.parametrize(
    ("keys", "error"), [([5], IndexError), ([-1], IndexError), (["zz"], ValueError), ([1.5], TypeError)]
)
def test_bad_keys(keys, error, br):
    with pytest.raises(error):
        partition_and_pack(FRAME, keys, 3, br)


@pytest.mark.parametrize("count", [0, -1])
def test_bad_number_of_partitions(count, br):
    with pytest.raises(ValueError, match="partition"):
        partition_and_pack(FRAME, ["a"], count, br)


def test_seed_makes_another_partitioning(br):
    frame = pl.DataFrame({"a": range(1000)})
    first, again, other = (
        [part.to_host_bytes() for part in partition_and_pack(frame, ["a"], 4, br, seed=seed).values()]
        for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other


def test_rows_keep_their_order_within_a_partition(br):
    starts = [0, 100, 100, 150]
    chunks = [
        pl.DataFrame({"row": range(begin, end), "k": [row % 7 for row in range(begin, end)]})
        for begin, end in itertools.pairwise(starts)
    ]
    frame = pl.concat(chunks, rechunk=False)
    assert frame.n_chunks() > 1
    parts = partition_and_pack(frame, ["k"], 3, br)
    rows = [pl.DataFrame(unpack(part))["row"] for part in parts.values()]
    assert sorted(pl.concat(rows)) == list(range(150))
    assert all(part.is_sorted() for part in rows)


def test_partitions_without_rows_have_the_schema(br):
    parts = partition_and_pack(FRAME.clear(), ["a"], 3, br)
    assert len(parts) == 3
    assert pl.DataFrame(unpack(parts[1])).schema == FRAME.schema


def test_split(br):
    parts = split_and_pack(FRAME, [0, 1, 3], br)
    assert sorted(parts) == [0, 1, 2, 3]
    frames = [pl.DataFrame(unpack(parts[i])) for i in range(4)]
    assert [frame.height for frame in frames] == [0, 1, 2, 1]
    assert_frame_equal(pl.concat(frames), FRAME)


def test_split_of_a_stream_of_batches(br):
    parts = split_and_pack(pa.table({"a": range(10)}).to_reader(3), [4], br)
    assert [unpack(part).num_rows for part in parts.values()] == [4, 6]


@pytest.mark.parametrize("splits", [[5], [-1], [3, 2]])
def test_bad_splits(splits, br):
    with pytest.raises(IndexError):
        split_and_pack(FRAME, splits, br)


def test_concat_takes_its_partitions(br):
    parts = partition_and_pack(FRAME, ["a"], 2, br)
    together(parts, br)
    with pytest.raises(ValueError, match="taken"):
        together(parts, br)


def test_concat_of_nothing(br):
    with pytest.raises(ValueError, match="no parts"):
        unpack_and_concat([], br)


def test_concat_wants_packed_data(br):
    good = pack(FRAME, br)
    with pytest.raises(TypeError, match="str"):
        unpack_and_concat([good, "x"], br)
    assert unpack(good).num_rows == 4


def test_concat_of_different_schemas_names_the_column(br):
    parts = [pack(pl.DataFrame({"a": [1], "b": [x]}), br) for x in (1, "x")]
    with pytest.raises(ValueError, match="b"):
        unpack_and_concat(parts, br)


def test_concat_unifies_categories(br):
    words = [["x", "y"], ["y", "z"]]
    parts = [pack(pl.DataFrame({"c": pl.Series(w, dtype=pl.Categorical)}), br) for w in words]
    result = pl.DataFrame(unpack_and_concat(parts, br))
    assert result["c"].cast(pl.String).to_list() == ["x", "y", "y", "z"]


def test_foreign_bytes_are_no_packed_table(br):
    with pytest.raises(ValueError, match="packed"):
        unpack(PackedData.from_host_bytes(b"hello", br))


def test_every_damaged_byte_of_metadata_is_found(br):
    packed = pack(FRAME, br)
    metadata, data = packed.metadata, packed.to_host_bytes()
    for at in range(len(metadata)):
        for bits in (0x01, 0x80, 0xFF):
            bad = bytearray(metadata)
            bad[at] ^= bits
            with pytest.raises(ValueError, match=r"."):
                unpack(PackedData.from_parts(bytes(bad), data, br))
    assert unpack(PackedData.from_parts(metadata, data, br)).num_rows == 4


def test_metadata_or_data_cut_short(br):
    packed = pack(FRAME, br)
    metadata, data = packed.metadata, packed.to_host_bytes()
    for length in range(len(metadata)):
        with pytest.raises(ValueError, match=r"."):
            unpack(PackedData.from_parts(metadata[:length] or b"\0", data, br))
    for length in range(len(data)):
        with pytest.raises(ValueError, match=r"."):
            unpack(PackedData.from_parts(metadata, data[:length], br))


@pytest.mark.skipif(get_device_name() != "cpu", reason="host memory is the device's only where that is a CPU")
def test_not_enough_memory():
    small = BufferResource.from_options(None, Options({"spill_device_limit": "1 KiB"}))
    parts = [pack(pl.DataFrame({"a": range(100_000)}), BufferResource()) for _ in range(2)]
    with pytest.raises(ReservationError):
        unpack_and_concat(parts, small)
