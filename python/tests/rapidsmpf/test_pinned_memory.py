"""Page-locked memory: where there is none, that is said; the pool itself is tested on a GPU."""

from __future__ import annotations

import ctypes

import pytest
from rapidsmpf.config import Options
from rapidsmpf.memory.buffer_resource import BufferResource
from rapidsmpf.memory.pinned_memory_resource import PinnedMemoryResource, is_pinned_memory_resources_supported

supported = is_pinned_memory_resources_supported()
with_it = pytest.mark.skipif(not supported, reason="no page-locked memory on this machine: it needs a GPU")
without_it = pytest.mark.skipif(supported, reason="this machine has page-locked memory")


@without_it
def test_without_a_gpu_the_reason_is_said():
    with pytest.raises(RuntimeError, match="page-locked"):
        PinnedMemoryResource()


@without_it
def test_make_if_available_is_none():
    assert PinnedMemoryResource.make_if_available() is PinnedMemoryResource.Disabled


@without_it
def test_from_options_is_none_where_there_is_none():
    options = Options({"pinned_memory": "true", "pinned_initial_pool_size": "1 MiB"})
    assert PinnedMemoryResource.from_options(options) is None
    assert BufferResource.from_options(None, options).pinned_mr is None


def test_is_off_by_default():
    assert PinnedMemoryResource.from_options(Options()) is None


@pytest.mark.parametrize(
    "values", [{"pinned_memory": "perhaps"}, {"pinned_memory": "on", "pinned_max_pool_size": "much"}]
)
def test_options_that_cannot_be_read(values):
    with pytest.raises(ValueError, match=r"perhaps|much"):
        PinnedMemoryResource.from_options(Options(values))


def test_sizes_must_make_sense():
    with pytest.raises(ValueError, match="exceeds"):
        PinnedMemoryResource(initial_pool_size=2, max_pool_size=1)
    with pytest.raises(ValueError, match="negative"):
        PinnedMemoryResource.make_if_available(initial_pool_size=-1)


@with_it
def test_memory_can_be_used_by_the_host():
    mr = PinnedMemoryResource(max_pool_size=64 << 20)
    pointer = mr.allocate(5)
    ctypes.memmove(pointer, b"hello", 5)
    assert ctypes.string_at(pointer, 5) == b"hello"
    mr.deallocate(pointer, 5)
    assert (mr.initial_pool_size, mr.max_pool_size) == (0, 64 << 20)
