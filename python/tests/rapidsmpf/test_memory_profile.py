"""Memory profiling by the statistics, through a resource adaptor over host memory."""

from __future__ import annotations

import json
import threading

import pytest
from rapidsmpf.config import Options
from rapidsmpf.memory.host_memory_resource import HostMemoryResource
from rapidsmpf.rmm_resource_adaptor import RmmResourceAdaptor
from rapidsmpf.statistics import MemoryRecorder, Statistics


@pytest.fixture
def mr():
    return RmmResourceAdaptor(HostMemoryResource())


@pytest.fixture
def stats(mr):
    return Statistics(True, mr=mr)


def use(mr, nbytes):
    mr.deallocate(mr.allocate(nbytes), nbytes)


def test_nested_scopes(stats, mr):
    with stats.memory_profiling("outer"):
        kept = mr.allocate(1024)
        with stats.memory_profiling("inner"):
            use(mr, 1024)
    mr.deallocate(kept, 1024)
    records = stats.get_memory_records()
    assert list(records) == ["inner", "outer"]
    assert records["inner"].scoped.peak() == 1024
    assert records["inner"].global_peak == 2048
    assert records["outer"].scoped.peak() == 2048
    assert records["outer"].scoped.num_total_allocs() == 2
    assert records["outer"].num_calls == 1


def test_calls_of_one_name_are_gathered(stats, mr):
    for size in (100, 300, 200):
        with stats.memory_profiling("x"):
            use(mr, size)
    record = stats.get_memory_records()["x"]
    assert (record.num_calls, record.scoped.peak(), record.scoped.total()) == (3, 300, 600)


def test_a_block_that_raises_is_recorded(stats, mr):
    def fail():
        with stats.memory_profiling("x"):
            use(mr, 10)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert stats.get_memory_records()["x"].scoped.total() == 10


def test_other_threads_count_in_the_global_peak_only(stats, mr):
    with stats.memory_profiling("x"):
        thread = threading.Thread(target=use, args=(mr, 700))
        thread.start()
        thread.join()
    record = stats.get_memory_records()["x"]
    assert (record.scoped.peak(), record.global_peak) == (0, 700)


def test_records_are_copies(stats, mr):
    with stats.memory_profiling("x"):
        pass
    before = stats.get_memory_records()["x"]
    with stats.memory_profiling("x"):
        use(mr, 10)
    assert before.num_calls == 1
    assert before.scoped.total() == 0


def test_clear_keeps_the_records(stats, mr):
    stats.add_stat("name", 1.0)
    with stats.memory_profiling("x"):
        use(mr, 10)
    stats.clear()
    assert stats.list_stat_names() == []
    assert stats.get_memory_records()["x"].scoped.total() == 10


def test_report_and_json_have_the_records(stats, mr, tmp_path):
    stats.add_stat("name", 1.0)
    with stats.memory_profiling("scope"):
        use(mr, 2048)
    assert "peak 2.00 KiB" in stats.report()
    stats.write_json(tmp_path / "stats.json")
    written = json.loads((tmp_path / "stats.json").read_text())
    assert set(written) == {"statistics", "memory_records"}
    assert written["memory_records"]["scope"] == {
        "num_calls": 1,
        "peak_bytes": 2048,
        "total_bytes": 2048,
        "global_peak_bytes": 2048,
    }


def test_json_refuses_names_that_need_escapes(stats):
    with stats.memory_profiling('a"b'):
        pass
    with pytest.raises(ValueError, match="memory record"):
        stats.write_json_string()


def test_disabled_statistics_profile_nothing(mr):
    stats = Statistics(False, mr=mr)
    assert not stats.memory_profiling_enabled
    with stats.memory_profiling("x"):
        use(mr, 10)
    assert stats.get_memory_records() == {}


def test_from_options_takes_the_resource(mr):
    assert Statistics.from_options(mr, Options({"statistics": "on"})).memory_profiling_enabled
    assert not Statistics.from_options(mr, Options()).memory_profiling_enabled


def test_a_recorder_without_a_resource_does_nothing(stats):
    with MemoryRecorder(stats, None, "x"):
        pass
    assert stats.get_memory_records() == {}


@pytest.mark.parametrize("other", [HostMemoryResource, object])
def test_only_adaptors_can_be_profiled(other):
    with pytest.raises(TypeError, match="RmmResourceAdaptor"):
        Statistics(True, mr=other())


def test_leaving_on_another_thread_is_an_error(stats):
    recorder = stats.memory_profiling("x")
    errors = []

    def leave():
        try:
            recorder.__exit__(None, None, None)
        except RuntimeError as error:
            errors.append(error)

    recorder.__enter__()
    thread = threading.Thread(target=leave)
    thread.start()
    thread.join()
    recorder.__exit__(None, None, None)
    assert len(errors) == 1
    assert stats.get_memory_records()["x"].num_calls == 1
