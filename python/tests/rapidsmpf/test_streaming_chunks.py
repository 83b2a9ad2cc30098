"""What messages hold: partitions, and rows that are made available within a reservation."""

from __future__ import annotations

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from rapidsmpf.communicator import single
from rapidsmpf.config import Options
from rapidsmpf.error import ReservationError
from rapidsmpf.memory.buffer import MemoryType
from rapidsmpf.memory.buffer_resource import BufferResource
from rapidsmpf.memory.packed_data import PackedData
from rapidsmpf.streaming.chunks.partition import PartitionMapChunk, PartitionVectorChunk
from rapidsmpf.streaming.chunks.table import TableChunk
from rapidsmpf.streaming.coll.shuffler import ShufflerAsync
from rapidsmpf.streaming.core.actor import define_actor, run_actor_network
from rapidsmpf.streaming.core.context import Context
from rapidsmpf.streaming.core.leaf_actor import pull_from_channel, push_to_channel
from rapidsmpf.streaming.core.message import Message, Payload
from rapidsmpf.table import pack, partition_and_pack, unpack_and_concat

FRAME = pl.DataFrame({"k": [i % 7 for i in range(500)], "x": range(500)})


@pytest.fixture
def br():
    return BufferResource(None)


def packed(text, br):
    return PackedData.from_host_bytes(text, br)


@define_actor()
async def partition(ctx, ch_in, ch_out):
    async for message in ch_in:
        table = TableChunk.from_message(message, ctx.br()).table_view()
        chunk = PartitionMapChunk(partition_and_pack(table, ["k"], 4, ctx.br()))
        await ch_out.send(ctx, Message(message.sequence_number, chunk))


@define_actor()
async def shuffle(ctx, ch_in, ch_out):
    shuffler = ShufflerAsync(ctx, None, 1, 4)
    async for message in ch_in:
        shuffler.insert(PartitionMapChunk.from_message(message).release())
    await shuffler.insert_finished(ctx)
    while (found := await shuffler.extract_any_async(ctx)) is not None:
        pid, chunks = found
        await ch_out.send(ctx, Message(pid, PartitionVectorChunk(chunks)))


def test_partitions_go_through_channels_to_a_shuffle_and_from_it():
    options = Options({"num_streaming_threads": "2"})
    with Context.from_options(single.new_communicator(options), options) as ctx:
        rows, cut, shuffled = (ctx.create_channel() for _ in range(3))
        parts = [Message(i, TableChunk(FRAME[i::3], ctx.br())) for i in range(3)]
        sink, received = pull_from_channel(ctx, shuffled)
        source = push_to_channel(ctx, rows, parts)
        run_actor_network(ctx, actors=[source, partition(ctx, rows, cut), shuffle(ctx, cut, shuffled), sink])
        messages = received.release()
        assert sorted(message.sequence_number for message in messages) == [0, 1, 2, 3]
        frames = []
        for message in messages:
            chunks = PartitionVectorChunk.from_message(message).release()
            frames += [pl.DataFrame(unpack_and_concat(chunks, ctx.br()))] if chunks else []
        assert_frame_equal(pl.concat(frames).sort("x"), FRAME)
        keys = [key for frame in frames for key in frame["k"].unique()]
        assert len(keys) == len(set(keys))


def test_chunks_of_partitions_come_out_as_they_went_in(br):
    message = Message(3, PartitionMapChunk({7: packed(b"seven", br), 2: packed(b"two", br)}))
    assert (message.sequence_number, message.nbytes()) == (3, 8)
    reservation, _ = br.reserve(MemoryType.HOST, message.copy_cost(), allow_overbooking=True)
    for each in (message.copy(reservation), message):
        found = PartitionMapChunk.from_message(each).release()
        assert {pid: chunk.to_host_bytes() for pid, chunk in found.items()} == {2: b"two", 7: b"seven"}
        assert each.empty()

    message = Message(0, PartitionVectorChunk([packed(b"b", br), packed(b"a", br)]))
    reservation, _ = br.reserve(MemoryType.HOST, message.copy_cost(), allow_overbooking=True)
    for each in (message.copy(reservation), message):
        found = PartitionVectorChunk.from_message(each).release()
        assert [chunk.to_host_bytes() for chunk in found] == [b"b", b"a"]


def test_partitions_are_payloads(br):
    assert isinstance(PartitionMapChunk({}), Payload)
    assert isinstance(PartitionVectorChunk([]), Payload)
    assert PartitionMapChunk.from_message(Message(0, PartitionMapChunk({}))).release() == {}


def test_what_is_wrong_with_partitions_is_said(br):
    good = packed(b"x", br)
    with pytest.raises(TypeError, match="PackedData"):
        PartitionMapChunk({0: good, 1: b"y"})
    with pytest.raises(OverflowError):
        PartitionMapChunk({-1: good})
    with pytest.raises(TypeError, match="PackedData"):
        PartitionVectorChunk([good, None])
    chunk = PartitionVectorChunk([good])  # which nothing has taken
    with pytest.raises(ValueError, match="taken"):
        PartitionVectorChunk([good])
    message = Message(0, chunk)
    with pytest.raises(ValueError, match="taken"):
        chunk.release()
    with pytest.raises(ValueError, match="holds"):
        PartitionMapChunk.from_message(message)


@pytest.mark.parametrize(
    "wrong", [lambda p: PartitionVectorChunk([p, p]), lambda p: PartitionMapChunk({0: p, 1: p})]
)
def test_a_chunk_that_is_given_twice_is_kept(br, wrong):
    chunk = packed(b"a", br)
    with pytest.raises(ValueError, match="twice"):
        wrong(chunk)
    assert PartitionVectorChunk([chunk]).release()[0] is not None


def test_rows_are_made_available_within_a_reservation(br):
    with Context(None, br) as ctx:
        channel = ctx.create_channel()
        channel.send_blocking(Message(0, PartitionVectorChunk([pack(FRAME, br)])))
        br.spill_manager.spill(1 << 30)
        message = channel.recv_blocking()
    assert message.nbytes(MemoryType.DISK) == message.nbytes() > 0
    chunk = TableChunk.from_packed_data(PartitionVectorChunk.from_message(message).release()[0])
    cost = chunk.make_available_cost()
    assert cost > 0
    small, _ = br.reserve(MemoryType.DEVICE, cost - 1, allow_overbooking=True)
    with pytest.raises(ReservationError, match="reservation"):
        chunk.make_available(small)
    enough, _ = br.reserve(MemoryType.DEVICE, cost, allow_overbooking=True)
    assert chunk.make_available(enough) is chunk
    assert enough.size == 0
    assert_frame_equal(pl.DataFrame(chunk.table_view()), FRAME)
    assert chunk.make_available(small) is chunk
    with pytest.raises(TypeError, match="MemoryReservation"):
        chunk.make_available(10)


def test_rows_that_can_be_read_where_they_are_take_nothing(br):
    chunk = TableChunk.from_packed_data(pack(FRAME, br))
    reservation, _ = br.reserve(MemoryType.DEVICE, chunk.make_available_cost(), allow_overbooking=True)
    size = reservation.size
    assert_frame_equal(pl.DataFrame(chunk.make_available(reservation).table_view()), FRAME)
    assert reservation.size == size
