"""Spill collections of Python objects."""

from __future__ import annotations

import gc
import threading

import pytest
from rapidsmpf.memory.buffer import MemoryType
from rapidsmpf.memory.buffer_resource import BufferResource
from rapidsmpf.memory.spill_collection import Spillable, SpillCollection


class Chunk:
    """A spillable object that notes how it is spilled."""

    def __init__(self, size, log, name=None, tier=MemoryType.DEVICE):
        self.size, self.log, self.name, self.tier = size, log, name, tier
        self.arguments = None

    def mem_type(self):
        return self.tier

    def approx_spillable_amount(self):
        return self.size

    def spill(self, amount, *, stream=None, device_mr=None, staging_device_buffer=None):
        self.arguments = (amount, stream, device_mr, staging_device_buffer)
        self.log.append(self.name)
        self.tier = MemoryType.HOST
        return self.size


@pytest.fixture
def log():
    return []


def filled(chunks):
    collection = SpillCollection()
    for chunk in chunks:
        collection.add_spillable(chunk)
    return collection


def test_oldest_first_until_enough(log):
    chunks = [Chunk(10, log, name) for name in "abc"]
    assert filled(chunks).spill(15) == 20
    assert log == ["a", "b"]


def test_object_that_is_put_in_again_is_the_last(log):
    chunks = [Chunk(10, log, name) for name in "abc"]
    collection = filled(chunks)
    collection.add_spillable(chunks[0])
    assert len(collection) == 3
    collection.spill(30)
    assert log == ["b", "c", "a"]


def test_only_what_is_on_the_device_is_spilled(log):
    chunks = [Chunk(10, log, "host", MemoryType.HOST), Chunk(0, log, "nothing"), Chunk(10, log, "device")]
    assert filled(chunks).spill(100) == 10
    assert log == ["device"]


def test_spilled_once(log):
    chunks = [Chunk(10, log, "a")]
    collection = filled(chunks)
    assert collection.spill(10) == 10
    assert collection.spill(10) == 0
    chunks[0].tier = MemoryType.DEVICE  # it has been used again
    assert collection.spill(10) == 10


def test_arguments_are_passed_on(log):
    chunks = [Chunk(10, log), Chunk(10, log)]
    filled(chunks).spill(15, stream="s", device_mr="m", staging_device_buffer="b")
    assert [chunk.arguments for chunk in chunks] == [(15, "s", "m", "b"), (5, "s", "m", "b")]


def test_nothing_wanted_nothing_spilled(log):
    assert filled([Chunk(10, log)]).spill(0) == 0
    assert log == []


def test_objects_are_not_kept_alive(log):
    chunks = [Chunk(10, log, name) for name in "ab"]
    collection = filled(chunks)
    del chunks[0]
    gc.collect()
    assert len(collection) == 1
    assert collection.spill(100) == 10
    assert log == ["b"]


def test_many_short_lives_leave_nothing(log):
    collection = SpillCollection()
    for _ in range(1000):
        collection.add_spillable(Chunk(1, log))
    gc.collect()
    assert len(collection) == 0
    assert collection.spill(1) == 0


def test_error_of_an_object_comes_out_and_the_collection_works_on(log):
    class Broken(Chunk):
        def spill(self, amount, **kwargs):
            raise OSError("inside")

    chunks = [Broken(10, log), Chunk(10, log, "good")]
    collection = filled(chunks)
    with pytest.raises(OSError, match="inside"):
        collection.spill(20)
    chunks[0].size = 0
    assert collection.spill(20) == 10


def test_spilling_may_add_and_ask_again(log):
    class Splits(Chunk):
        def spill(self, amount, **kwargs):
            collection.add_spillable(rest)
            assert collection.spill(amount) == 0  # it is being spilled already
            return super().spill(amount, **kwargs)

    rest = Chunk(5, log, "rest")
    chunks = [Splits(10, log, "first")]
    collection = filled(chunks)
    assert collection.spill(12) == 10
    assert collection.spill(2) == 5
    assert log == ["first", "rest"]


@pytest.mark.parametrize("thing", [1, object(), [1]])
def test_what_cannot_be_spilled_is_refused(thing):
    assert not isinstance(thing, Spillable)
    with pytest.raises(TypeError, match="not spillable"):
        SpillCollection().add_spillable(thing)


def test_threads_add_while_one_spills(log):
    collection = SpillCollection()
    kept = [[Chunk(1, log) for _ in range(200)] for _ in range(4)]
    start = threading.Barrier(5, timeout=60)

    def add(chunks):
        start.wait()
        for chunk in chunks:
            collection.add_spillable(chunk)
            collection.add_spillable(Chunk(1, []))  # dies at once

    threads = [threading.Thread(target=add, args=(chunks,)) for chunks in kept]
    for thread in threads:
        thread.start()
    start.wait()
    freed = sum(collection.spill(10) for _ in range(50))
    for thread in threads:
        thread.join()
    gc.collect()
    assert len(collection) == 800
    # Each was spilled once; of those that died at once some may have been.
    freed += collection.spill(10_000)
    assert len(log) == 800
    assert freed >= 800


def test_spills_for_a_buffer_resource(log):
    chunks = [Chunk(100, log, "a"), Chunk(100, log, "b")]
    collection = filled(chunks)

    def available():
        return 1000 - sum(chunk.size for chunk in chunks if chunk.tier is MemoryType.DEVICE)

    br = BufferResource(memory_available={MemoryType.DEVICE: available}, periodic_spill_check=None)
    br.spill_manager.add_spill_function(collection.spill, priority=-10)
    assert br.reserve_device_memory_and_spill(850, allow_overbooking=False).size == 850
    assert log[0] == "a"
