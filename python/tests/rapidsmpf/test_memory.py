"""Buffer resources, reservations and spilling."""

from __future__ import annotations

import os
import threading

import polars as pl
import pytest
from rapidsmpf.communicator import single
from rapidsmpf.config import Options
from rapidsmpf.error import ReservationError
from rapidsmpf.memory.buffer import MemoryType
from rapidsmpf.memory.buffer_resource import (
    BufferResource,
    periodic_spill_check_from_options,
    stream_pool_from_options,
)
from rapidsmpf.memory.memory_reservation import MemoryReservation, opaque_memory_usage
from rapidsmpf.memory.packed_data import PackedData
from rapidsmpf.memory.stream_pool import StreamPool
from rapidsmpf.shuffler import Shuffler
from rapidsmpf.statistics import Statistics
from rapidsmpf.table import pack
from rapidsmpf.utils.system_info import get_cached_host_memory, get_device_name, trim_host_memory

KIB = 1024


def limited(limit, tier=MemoryType.DEVICE):
    return BufferResource(memory_available={tier: lambda: limit})


def test_tiers_are_in_order_of_preference():
    assert list(MemoryType) == sorted(MemoryType, key=int)
    assert [tier.name for tier in MemoryType] == ["DEVICE", "PINNED_HOST", "HOST", "DISK"]


def test_available_is_what_the_function_says_less_reservations():
    br = limited(100)
    reservation, overbooked = br.reserve(MemoryType.DEVICE, 60, allow_overbooking=False)
    assert (reservation.size, overbooked) == (60, 0)
    assert br.memory_available(MemoryType.DEVICE) == 40
    assert br.memory_reserved(MemoryType.DEVICE) == 60


def test_reservation_goes_back_when_dropped():
    br = limited(100)
    reservation, _ = br.reserve(MemoryType.DEVICE, 60, allow_overbooking=False)
    del reservation
    assert br.memory_reserved(MemoryType.DEVICE) == 0


def test_reservation_that_does_not_fit_is_of_size_zero():
    reservation, overbooked = limited(100).reserve(MemoryType.DEVICE, 160, allow_overbooking=False)
    assert (reservation.size, overbooked) == (0, 60)


def test_overbooking():
    reservation, overbooked = limited(100).reserve(MemoryType.DEVICE, 160, allow_overbooking=True)
    assert (reservation.size, overbooked) == (160, 60)


def test_release_consumes():
    br = limited(100)
    reservation, _ = br.reserve(MemoryType.DEVICE, 60, allow_overbooking=False)
    assert br.release(reservation, 20) == 40
    assert reservation.size == 40
    with pytest.raises(ReservationError):
        br.release(reservation, 41)


def test_reservation_knows_what_it_is():
    br = limited(100)
    reservation, _ = br.reserve(MemoryType.HOST, 10, allow_overbooking=False)
    assert reservation.mem_type is MemoryType.HOST
    assert reservation.br is br
    reservation.clear()
    assert reservation.size == 0
    with pytest.raises(TypeError):
        MemoryReservation()


def test_opaque_memory_usage_clears_the_reservation():
    br = limited(100)
    reservation, _ = br.reserve(MemoryType.DEVICE, 60, allow_overbooking=False)

    def block():
        with opaque_memory_usage(reservation) as same:
            assert same is reservation
            assert br.memory_reserved(MemoryType.DEVICE) == 60
            raise RuntimeError("inside")

    with pytest.raises(RuntimeError, match="inside"):
        block()
    assert br.memory_reserved(MemoryType.DEVICE) == 0


def test_reserve_device_memory_and_spill_without_enough():
    with pytest.raises(ReservationError):
        limited(100).reserve_device_memory_and_spill(160, allow_overbooking=False)
    assert limited(100).reserve_device_memory_and_spill(160, allow_overbooking=True).size == 160


def test_reserve_device_memory_and_spill_asks_the_spill_functions():
    available = [100]
    br = BufferResource(memory_available={MemoryType.DEVICE: lambda: available[0]})
    asked = []

    def spill(amount):
        asked.append(amount)
        available[0] += amount
        return amount

    number = br.spill_manager.add_spill_function(spill, priority=0)
    assert br.bytes_spilled == 0
    assert br.reserve_device_memory_and_spill(160, allow_overbooking=False).size == 160
    assert asked == [60]
    br.spill_manager.remove_spill_function(number)
    assert br.spill_manager.spill(10) == 0


def test_spill_functions_are_asked_by_priority():
    manager = BufferResource().spill_manager
    asked = []
    manager.add_spill_function(lambda amount: asked.append("low") or 5, priority=-1)
    manager.add_spill_function(lambda amount: asked.append("high") or 5, priority=1)
    assert manager.spill(5) == 5
    assert asked == ["high"]
    assert manager.spill(10) == 10
    assert asked == ["high", "high", "low"]


def test_spill_to_make_headroom():
    br = limited(100)
    br.spill_manager.add_spill_function(lambda amount: amount, priority=0)
    assert br.spill_manager.spill_to_make_headroom(100) == 0
    assert br.spill_manager.spill_to_make_headroom(130) == 30


def test_error_of_a_spill_function_comes_out():
    br = limited(100)

    def spill(amount):
        raise KeyError("inside")

    br.spill_manager.add_spill_function(spill, priority=0)
    with pytest.raises(KeyError, match="inside"):
        br.spill_manager.spill(10)


@pytest.mark.parametrize("function", [lambda: 1 // 0, lambda: "many"])
def test_error_of_an_availability_function_comes_out(function):
    br = BufferResource(memory_available={MemoryType.DEVICE: function})
    with pytest.raises((ZeroDivisionError, TypeError)):
        br.memory_available(MemoryType.DEVICE)


def test_availability_function_is_called_in_other_threads():
    br = limited(100)
    seen = []
    thread = threading.Thread(target=lambda: seen.append(br.memory_available(MemoryType.DEVICE)))
    thread.start()
    thread.join()
    assert seen == [100]


def test_availability_must_be_callable():
    with pytest.raises(TypeError, match="HOST"):
        BufferResource(memory_available={MemoryType.HOST: 100})


@pytest.mark.parametrize("name", ["device_mr", "pinned_mr", "stream_pool"])
def test_arguments_of_another_type_are_refused(name):
    with pytest.raises(TypeError, match=r"resource|pinned_mr|stream_pool"):
        BufferResource(**{name: object()})


def test_nothing_is_given_by_default():
    br = BufferResource()
    assert br.device_mr is None
    assert br.pinned_mr is None
    assert br.stream_pool_size() == 16


def test_stream_pool_gives_its_size():
    assert BufferResource(stream_pool=StreamPool(3)).stream_pool_size() == 3


def test_periodic_spill_check_must_be_positive():
    with pytest.raises(ValueError, match="periodic_spill_check"):
        BufferResource(periodic_spill_check=0)


def test_from_options_limits_device_memory():
    br = BufferResource.from_options(None, Options({"spill_device_limit": "100 KiB"}))
    assert br.memory_available(MemoryType.DEVICE) <= 100 * KIB


def test_from_options_reads_all_of_them():
    options = Options({"num_streams": "5", "statistics": "on", "periodic_spill_check": "off"})
    br = BufferResource.from_options(None, options)
    assert br.stream_pool_size() == 5
    assert br.statistics.enabled
    assert br.pinned_mr is None


def test_stream_pool_from_options():
    assert stream_pool_from_options(Options()).get_pool_size() == 16
    pool = stream_pool_from_options(Options({"num_streams": "2"}))
    assert pool.get_pool_size() == 2
    version, _ = pool.get_stream().__cuda_stream__()
    assert version == 0
    assert pool.get_stream(0) == pool.get_stream(2)


@pytest.mark.parametrize("text", ["0", "-1"])
def test_stream_pool_needs_streams(text):
    with pytest.raises(ValueError, match="must be greater than 0"):
        stream_pool_from_options(Options({"num_streams": text}))
    with pytest.raises(ValueError, match="must be greater than 0"):
        StreamPool(int(text))


def test_statistics_are_those_given():
    stats = Statistics(True)
    assert BufferResource(statistics=stats).statistics is stats
    assert not BufferResource().statistics.enabled


@pytest.mark.parametrize(("text", "seconds"), [("", 1e-3), ("2 s", 2.0), ("off", None)])
def test_periodic_spill_check_from_options(text, seconds):
    assert periodic_spill_check_from_options(Options({"periodic_spill_check": text})) == seconds


@pytest.mark.parametrize("data", [b"", b"hello", bytearray(b"x" * 100_000), memoryview(b"view")])
def test_packed_bytes_come_back(br, data):
    assert PackedData.from_host_bytes(data, br).to_host_bytes() == bytes(data)


def test_packed_bytes_are_in_host_memory(br):
    packed = PackedData.from_host_bytes(b"hello", br)
    assert packed.mem_type is MemoryType.HOST
    assert packed.data_size == 5


def test_packed_data_comes_back_from_its_parts(br):
    packed = PackedData.from_parts(b"what it is", b"bytes", br)
    assert (packed.metadata, packed.to_host_bytes()) == (b"what it is", b"bytes")
    with pytest.raises(ValueError, match="metadata"):
        PackedData.from_parts(b"", b"bytes", br)


def test_taken_packed_data_is_empty(br):
    packed = PackedData.from_host_bytes(b"hello", br)
    shuffler = Shuffler(single.new_communicator(Options()), 0, 1, br)
    shuffler.insert_chunks({0: packed})
    assert packed.data_size == 0
    for use in (packed.to_host_bytes, lambda: packed.metadata, lambda: packed.mem_type):
        with pytest.raises(ValueError, match="empty"):
            use()


@pytest.mark.skipif(get_device_name() != "cpu", reason="host memory is the device's only where that is a CPU")
def test_packed_data_counts_while_it_lives():
    br = BufferResource.from_options(None, Options({"spill_device_limit": "1 GiB"}))
    before = br.memory_available(MemoryType.DEVICE)
    packed = pack(pl.DataFrame({"a": range(1_000_000)}), br)
    assert packed.data_size >= 8_000_000
    assert br.memory_available(MemoryType.DEVICE) <= before - 8_000_000


def test_free_host_memory_is_kept_and_given_back():
    trim_host_memory()
    br = BufferResource()
    packed = pack(pl.DataFrame({"a": range(512 * KIB)}), br)
    before = get_cached_host_memory()
    del packed
    kept = get_cached_host_memory()
    # AddressSanitizer is to see every use of freed memory: nothing is kept then.
    assert kept - before >= 4 * KIB * KIB or "asan" in os.environ.get("LD_PRELOAD", "")
    assert trim_host_memory(keep=kept) == 0
    assert trim_host_memory() == kept
    assert get_cached_host_memory() == 0
