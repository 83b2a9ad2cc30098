"""Random frames of every Polars type through partition, shuffle over ranks, and concatenation."""

from __future__ import annotations

from collections import Counter

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rapidsmpf.memory.buffer_resource import BufferResource
from rapidsmpf.memory.packed_data import PackedData
from rapidsmpf.shuffler import Shuffler
from rapidsmpf.table import Table, pack, partition_and_pack, unpack, unpack_and_concat

from support.cluster import on_ranks
from support.frames import every_dtype, every_nth_row, frames, row_bag

relaxed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def key_text(row: tuple[object, ...]) -> str:
    """Equal keys have equal text: the zeros are equal, NaN equals NaN."""
    return repr(row).replace("-0.0", "0.0")


@relaxed
@given(data=st.data(), frame=frames(), nranks=st.integers(1, 4), partitions=st.integers(1, 5))
def test_shuffle_keeps_the_rows(data, frame, nranks, partitions):
    br = BufferResource()
    keys = data.draw(st.lists(st.integers(0, frame.width - 1), max_size=2)) if frame.width else []
    seed = data.draw(st.integers(0, 2**64 - 1))
    shares = every_nth_row(frame, nranks)

    def work(comm):
        shuffler = Shuffler(comm, 1, partitions, br)
        shuffler.insert_chunks(partition_and_pack(shares[comm.rank], keys, partitions, br))
        shuffler.insert_finished()
        result = {}
        for _ in shuffler.local_partitions():
            pid = shuffler.wait_any(timeout=60)
            result[pid] = unpack_and_concat(shuffler.extract(pid), br)
        return result

    tables = {
        pid: table
        for part in on_ranks(nranks, work, seed=seed, delay_probability=0.2)
        for pid, table in part.items()
    }
    assert sorted(tables) == list(range(partitions))
    if frame.width == 0:
        assert sum(table.num_rows for table in tables.values()) == frame.height
        return
    got = {pid: pl.DataFrame(table) for pid, table in tables.items()}
    for part in got.values():
        assert part.schema == frame.schema
    assert sum((row_bag(part) for part in got.values()), Counter()) == row_bag(frame)
    places = {}
    for pid, part in got.items():
        for row in part.select(part.columns[key] for key in dict.fromkeys(keys)).rows():
            assert places.setdefault(key_text(row), pid) == pid


@relaxed
@given(frame=frames(min_cols=1))
def test_packing_keeps_rows_order_and_types(frame):
    br = BufferResource()
    result = pl.DataFrame(unpack(pack(frame, br)))
    assert result.schema == frame.schema
    assert [repr(row) for row in result.rows()] == [repr(row) for row in frame.rows()]


@relaxed
@given(frame=frames(), at=st.integers(0), bits=st.integers(1, 255))
def test_a_damaged_byte_of_metadata_is_a_value_error(frame, at, bits):
    br = BufferResource()
    packed = pack(frame, br)
    bad = bytearray(packed.metadata)
    bad[at % len(bad)] ^= bits
    with pytest.raises(ValueError, match=r"."):
        unpack(PackedData.from_parts(bytes(bad), packed.to_host_bytes(), br))


@relaxed
@given(first=frames(max_cols=3), second=frames(max_cols=3))
def test_other_frames_are_put_together_or_refused(first, second):
    br = BufferResource()
    parts = [pack(first, br), pack(second, br)]
    if first.schema == second.schema:
        assert unpack_and_concat(parts, br).num_rows == first.height + second.height
    else:
        with pytest.raises(ValueError, match=r"."):
            unpack_and_concat(parts, br)


@pytest.mark.parametrize("dtype", every_dtype(), ids=str)
def test_strategy_has_every_type(dtype):
    assert isinstance(dtype, type) or dtype.is_(dtype)


def test_rows_without_columns(br):
    table = Table(pl.DataFrame(height=5), br)
    assert (table.num_columns, table.num_rows) == (0, 5)
    assert unpack(pack(table, br)).num_rows == 5
