"""RmmResourceAdaptor, what it records, and limits on what goes through it."""

from __future__ import annotations

import ctypes
import gc
import sys
import threading

import polars as pl
import pytest
import rmm
from rapidsmpf.config import Options
from rapidsmpf.error import BadAlloc, OutOfMemory
from rapidsmpf.memory.buffer import MemoryType
from rapidsmpf.memory.buffer_resource import (
    AvailableMemoryMap,
    BufferResource,
    LimitAvailableMemory,
    periodic_spill_check_from_options,
    stream_pool_from_options,
)
from rapidsmpf.memory.host_memory_resource import HostMemoryResource
from rapidsmpf.memory.scoped_memory_record import AllocType, ScopedMemoryRecord
from rapidsmpf.rmm_resource_adaptor import RmmResourceAdaptor
from rapidsmpf.table import pack
from rapidsmpf.utils.system_info import get_device_name

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]

on_a_cpu = pytest.mark.skipif(get_device_name() != "cpu", reason="host memory is no memory of a GPU")


def callbacks(largest=1000, error=MemoryError):
    """Return an RMM resource over malloc that refuses what is too large."""

    def allocate(size, stream):
        if size > largest:
            raise error("too large")
        return libc.malloc(size)

    return rmm.mr.CallbackMemoryResource(allocate, lambda pointer, size, stream: libc.free(pointer))


@pytest.fixture
def mr():
    return RmmResourceAdaptor(HostMemoryResource())


def test_counts_what_is_in_use(mr):
    first = mr.allocate(100)
    second = mr.allocate(50)
    assert mr.current_allocated == 150
    mr.deallocate(first, 100)
    mr.deallocate(second, 50)
    assert mr.current_allocated == 0
    record = mr.get_main_record()
    assert (record.peak(), record.total(), record.current()) == (150, 150, 0)
    assert (record.num_total_allocs(), record.num_current_allocs()) == (2, 0)


def test_main_record_is_a_copy(mr):
    record = mr.get_main_record()
    pointer = mr.allocate(8)
    assert record.num_total_allocs() == 0
    mr.deallocate(pointer, 8)


def test_memory_can_be_used(mr):
    pointer = mr.allocate(5)
    ctypes.memmove(pointer, b"hello", 5)
    assert ctypes.string_at(pointer, 5) == b"hello"
    assert pointer % 256 == 0
    mr.deallocate(pointer, 5)


def test_knows_its_resources():
    upstream, fallback = callbacks(), HostMemoryResource()
    mr = RmmResourceAdaptor(upstream, fallback_mr=fallback)
    assert mr.upstream_mr is upstream
    assert mr.get_upstream() is upstream
    assert mr.fallback_mr is fallback
    assert RmmResourceAdaptor(upstream).fallback_mr is None


def test_is_a_resource_of_rmm(mr):
    assert isinstance(mr, rmm.mr.DeviceMemoryResource)
    outer = rmm.mr.StatisticsResourceAdaptor(mr)
    pointer = outer.allocate(100)
    assert mr.current_allocated == 100
    outer.deallocate(pointer, 100)
    assert mr.current_allocated == 0


@on_a_cpu
def test_a_device_buffer_comes_through_it(mr):
    buffer = rmm.DeviceBuffer(size=1024, mr=mr)
    assert mr.current_allocated == 1024
    del buffer
    assert mr.current_allocated == 0


def test_adaptors_stack(mr):
    outer = RmmResourceAdaptor(mr)
    pointer = outer.allocate(10)
    assert (outer.current_allocated, mr.current_allocated) == (10, 10)
    outer.deallocate(pointer, 10)


def test_fallback_serves_what_upstream_cannot():
    mr = RmmResourceAdaptor(callbacks(largest=1000), fallback_mr=HostMemoryResource())
    small, large = mr.allocate(10), mr.allocate(2000)
    record = mr.get_main_record()
    assert record.current(AllocType.PRIMARY) == 10
    assert record.current(AllocType.FALLBACK) == 2000
    assert record.current(AllocType.ALL) == 2010
    mr.deallocate(large, 2000)
    mr.deallocate(small, 10)
    assert mr.current_allocated == 0


def test_out_of_memory_without_a_fallback():
    mr = RmmResourceAdaptor(callbacks(largest=1000))
    with pytest.raises(OutOfMemory, match="too large"):
        mr.allocate(2000)
    assert mr.get_main_record().num_total_allocs() == 0


def test_through_rmm_out_of_memory_is_a_memory_error():
    mr = RmmResourceAdaptor(callbacks(largest=1000))
    with pytest.raises(MemoryError, match="too large"):
        rmm.mr.StatisticsResourceAdaptor(mr).allocate(2000)


@on_a_cpu
def test_resource_without_a_device_says_so():
    with pytest.raises(BadAlloc, match="driver"):
        RmmResourceAdaptor(rmm.mr.CudaMemoryResource()).allocate(100)


@pytest.mark.parametrize("upstream", [object(), "host", 1])
def test_needs_a_resource(upstream):
    with pytest.raises(TypeError):
        RmmResourceAdaptor(upstream)


def test_upstream_is_let_go():
    upstream = callbacks()
    before = sys.getrefcount(upstream)
    mr = RmmResourceAdaptor(upstream)
    pointer = mr.allocate(10)
    mr.deallocate(pointer, 10)
    assert sys.getrefcount(upstream) > before
    del mr
    gc.collect()
    assert sys.getrefcount(upstream) == before


def test_stream_must_be_one(mr):
    with pytest.raises(TypeError, match="__cuda_stream__"):
        mr.allocate(10, stream=7)


def test_scopes_nest(mr):
    mr.begin_scoped_memory_record()
    first = mr.allocate(1024)
    mr.begin_scoped_memory_record()
    second = mr.allocate(1024)
    assert mr.end_scoped_memory_record().peak() == 1024
    assert mr.end_scoped_memory_record().peak() == 2048
    with pytest.raises(RuntimeError, match="no scope"):
        mr.end_scoped_memory_record()
    mr.deallocate(first, 1024)
    mr.deallocate(second, 1024)


def test_scopes_are_of_a_thread(mr):
    mr.begin_scoped_memory_record()

    def elsewhere():
        mr.deallocate(mr.allocate(100), 100)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert mr.end_scoped_memory_record().num_total_allocs() == 0
    assert mr.get_main_record().num_total_allocs() == 1


def test_record_starts_empty_and_counts():
    record = ScopedMemoryRecord()
    assert record.peak() == 0
    record.record_allocation(AllocType.PRIMARY, 100)
    record.record_allocation(AllocType.FALLBACK, 20)
    record.record_deallocation(AllocType.PRIMARY, 100)
    assert (record.current(), record.peak(), record.total()) == (20, 120, 120)
    assert record.num_current_allocs(AllocType.PRIMARY) == 0
    assert record.num_current_allocs(alloc_type=AllocType.FALLBACK) == 1


@pytest.mark.parametrize("method", ["record_allocation", "record_deallocation"])
def test_record_is_told_of_one_resource(method):
    with pytest.raises(ValueError, match="PRIMARY or FALLBACK"):
        getattr(ScopedMemoryRecord(), method)(AllocType.ALL, 1)
    with pytest.raises(OverflowError):
        getattr(ScopedMemoryRecord(), method)(AllocType.PRIMARY, -1)


def test_records_add_up():
    outer, inner = ScopedMemoryRecord(), ScopedMemoryRecord()
    outer.record_allocation(AllocType.PRIMARY, 100)
    inner.record_allocation(AllocType.PRIMARY, 50)
    outer.add_subscope(inner)
    assert (outer.peak(), outer.num_total_allocs()) == (150, 2)
    outer.add_scope(inner)
    assert (outer.peak(), outer.num_total_allocs()) == (150, 3)


@pytest.fixture
def shared():
    """Bytes of shared memory that this process's communicators hold: limits count them as in use."""
    return -LimitAvailableMemory(RmmResourceAdaptor(HostMemoryResource()), 0)()


def test_limit_less_what_is_in_use(mr, shared):
    available = LimitAvailableMemory(mr, 100 + shared)
    assert available() == 100
    pointer = mr.allocate(130)
    assert available() == -30
    mr.deallocate(pointer, 130)
    assert available() == 100


def test_limit_keeps_its_adaptor(shared):
    available = LimitAvailableMemory(RmmResourceAdaptor(HostMemoryResource()), limit=100 + shared)
    gc.collect()
    assert available() == 100


@pytest.mark.parametrize("mr", [HostMemoryResource(), object()])
def test_limit_needs_an_adaptor(mr):
    with pytest.raises(TypeError, match="RmmResourceAdaptor"):
        LimitAvailableMemory(mr, 100)


def test_limit_says_what_is_available(mr, shared):
    limit = LimitAvailableMemory(mr, limit=1000 + shared)
    br = BufferResource(memory_available={MemoryType.DEVICE: limit})
    pointer = mr.allocate(400)
    reservation, overbooked = br.reserve(MemoryType.DEVICE, 700, allow_overbooking=True)
    assert (reservation.size, overbooked) == (700, 100)
    assert br.memory_available(MemoryType.DEVICE) == -100
    mr.deallocate(pointer, 400)
    assert br.memory_available(MemoryType.DEVICE) == 300


def test_buffer_resource_keeps_what_its_limits_need(shared):
    mr = RmmResourceAdaptor(HostMemoryResource())
    limit = LimitAvailableMemory(mr, limit=1000 + shared)
    br = BufferResource(memory_available={MemoryType.HOST: limit})
    del mr, limit
    gc.collect()
    assert br.memory_available(MemoryType.HOST) == 1000


def test_map_from_options(mr):
    available = AvailableMemoryMap.from_options(mr, Options({"spill_device_limit": "1 KiB"}))
    br = BufferResource(memory_available=available)
    assert br.memory_available(MemoryType.DEVICE) <= 1024
    off = AvailableMemoryMap.from_options(mr, Options({"spill_device_limit": "off"}))
    assert BufferResource(memory_available=off).memory_available(MemoryType.DEVICE) > 1 << 60


def test_map_is_made_of_options(mr):
    with pytest.raises(TypeError, match="from_options"):
        AvailableMemoryMap()
    with pytest.raises(TypeError):
        AvailableMemoryMap.from_options(None, Options())
    with pytest.raises(ValueError, match="much"):
        AvailableMemoryMap.from_options(mr, Options({"spill_device_limit": "much"}))


@on_a_cpu
def test_device_memory_comes_from_the_resource(mr):
    br = BufferResource(mr, memory_available={MemoryType.DEVICE: LimitAvailableMemory(mr, limit=1 << 40)})
    assert br.device_mr is mr
    packed = pack(pl.DataFrame({"a": range(1000)}), br)
    assert packed.mem_type is MemoryType.DEVICE
    assert mr.current_allocated >= 8000
    assert br.memory_available(MemoryType.DEVICE) <= (1 << 40) - 8000
    del packed
    assert mr.current_allocated == 0


@on_a_cpu
def test_buffers_keep_their_resource():
    mr = RmmResourceAdaptor(callbacks(largest=1 << 20))
    packed = pack(pl.DataFrame({"a": [1, 2, 3]}), BufferResource(mr))
    del mr
    gc.collect()
    assert packed.data_size > 0
    del packed


@on_a_cpu
def test_resource_of_rmm_is_a_device_resource():
    rmm_mr = callbacks(largest=1 << 20)
    br = BufferResource(rmm_mr)
    assert br.device_mr is rmm_mr
    packed = pack(pl.DataFrame({"a": [1, 2, 3]}), br)
    assert packed.data_size > 0


@on_a_cpu
def test_resource_that_has_not_enough_is_out_of_memory():
    br = BufferResource(callbacks(largest=1000))
    with pytest.raises(OutOfMemory, match="too large"):
        pack(pl.DataFrame({"a": range(10_000)}), br)


def test_from_options_uses_the_adaptor(mr):
    br = BufferResource.from_options(mr, Options({"spill_device_limit": "1 TiB"}))
    assert br.device_mr is mr
    before = br.memory_available(MemoryType.DEVICE)
    assert before <= 1 << 40
    assert (
        BufferResource.from_options(mr, Options({"spill_device_limit": "1"})).memory_available(
            MemoryType.DEVICE
        )
        <= 1
    )


@pytest.mark.parametrize("readers", [lambda *readers: readers, lambda *readers: readers[::-1]])
def test_options_can_be_read_in_any_order(mr, readers):
    options = Options({"periodic_spill_check": "2ms", "num_streams": "3", "spill_device_limit": "1 GiB"})
    for read in readers(
        lambda: BufferResource.from_options(mr, options),
        lambda: AvailableMemoryMap.from_options(mr, options),
        lambda: periodic_spill_check_from_options(options),
        lambda: stream_pool_from_options(options),
    ):
        read()
    assert periodic_spill_check_from_options(options) == pytest.approx(2e-3)
    assert stream_pool_from_options(options).get_pool_size() == 3
