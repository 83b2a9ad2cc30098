"""Statistics."""

from __future__ import annotations

import contextlib
import json
import math
import pickle
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rapidsmpf.config import Options
from rapidsmpf.error import FormatError
from rapidsmpf.statistics import Statistics, registered_statistics


@pytest.fixture
def stats():
    return Statistics(True)


def test_values_are_counted_added_and_compared(stats):
    for value in (1.0, 5.0, 2.0):
        stats.add_stat("name", value)
    assert stats.get_stat("name") == {"count": 3, "value": 8.0, "max": 5.0}


def test_disabled_statistics_collect_nothing():
    stats = Statistics(False)
    stats.add_stat("name", 1.0)
    assert not stats.enabled
    assert stats.list_stat_names() == []


def test_unknown_name(stats):
    with pytest.raises(KeyError, match="name"):
        stats.get_stat("name")


def test_names_are_sorted(stats):
    for name in ("b", "a", "c"):
        stats.add_stat(name, 1.0)
    assert stats.list_stat_names() == ["a", "b", "c"]


def test_clear(stats):
    stats.add_stat("name", 1.0)
    stats.clear()
    assert stats.list_stat_names() == []


def test_a_peak_is_the_largest_value(stats):
    for value in (1.0, 5.0, 2.0):
        stats.add_stat("memory-peak-device", value)
    assert stats.get_stat("memory-peak-device") == {"count": 3, "value": 5.0, "max": 5.0}


@pytest.mark.parametrize("text", ["perhaps", "2", "truth"])
def test_from_options_is_strict(text):
    with pytest.raises(ValueError, match=f"statistics.*{text}"):
        Statistics.from_options(None, Options({"statistics": text}))


@pytest.mark.parametrize(("text", "enabled"), [("on", True), ("false", False), ("", False)])
def test_from_options(text, enabled):
    assert Statistics.from_options(None, Options({"statistics": text})).enabled is enabled


def test_report_is_sorted_and_in_the_unit_of_each(stats):
    stats.add_stat("some-name", 1.0)
    stats.add_stat("disk-write-bytes", 2.0**30)
    stats.add_stat("disk-write-seconds", 0.5)
    lines = stats.report().splitlines()[1:]
    assert lines == sorted(lines)
    assert "1.00 GiB" in lines[0]
    assert "2.00 GiB/s" in lines[0]
    assert "500.00 ms" in lines[1]
    assert "some-name" in lines[2]


def test_report_of_disabled_statistics_says_so():
    assert "disabled" in Statistics(False).report()


def test_json(stats, tmp_path):
    stats.add_stat("name", 2.5)
    stats.write_json(tmp_path / "stats.json")
    written = json.loads((tmp_path / "stats.json").read_text())
    assert written == json.loads(stats.write_json_string())
    assert written["statistics"]["name"] == {"count": 1, "value": 2.5, "max": 2.5}


@pytest.mark.parametrize("name", ['a"b', "a\\b", "a\nb"])
def test_json_refuses_names_that_need_escapes(stats, name, tmp_path):
    stats.add_stat(name, 1.0)
    with pytest.raises(ValueError, match="a"):
        stats.write_json(tmp_path / "stats.json")
    assert not (tmp_path / "stats.json").exists()


def test_json_to_a_place_that_is_not_there(stats, tmp_path):
    with pytest.raises(OSError, match="stats"):
        stats.write_json(tmp_path / "nowhere" / "stats.json")


def test_memory_profiling_without_a_resource_does_nothing(stats):
    with stats.memory_profiling("scope"):
        pass
    assert not stats.memory_profiling_enabled
    assert stats.get_memory_records() == {}


def values_of(stats):
    return {name: stats.get_stat(name) for name in stats.list_stat_names()}


number = st.floats(-1e9, 1e9)
name = st.text(st.characters(codec="utf-8"), max_size=12)
additions = st.lists(
    st.tuples(name | st.sampled_from(["memory-peak-host", "disk-read-bytes"]), number), max_size=20
)


def recorded(values):
    stats = Statistics(True)
    for key, value in values:
        stats.add_stat(key, value)
    return stats


@given(additions)
def test_serialised_statistics_come_back(values):
    stats = recorded(values)
    assert values_of(Statistics.deserialize(stats.serialize())) == values_of(stats)
    assert values_of(pickle.loads(pickle.dumps(stats))) == values_of(stats)


def test_pickled_statistics_stay_disabled():
    assert not pickle.loads(pickle.dumps(Statistics(False))).enabled


@given(st.lists(additions, max_size=4))
def test_merged_statistics_are_as_if_recorded_in_one(parts):
    merged = values_of(Statistics.merge([recorded(part) for part in parts]))
    expected = values_of(recorded([value for part in parts for value in part]))
    assert merged.keys() == expected.keys()
    for key, stat in merged.items():
        assert stat["count"] == expected[key]["count"]
        assert stat["max"] == expected[key]["max"]
        assert math.isclose(stat["value"], expected[key]["value"], rel_tol=1e-9, abs_tol=1e-3)


def test_merging_leaves_the_parts_as_they_are(stats):
    stats.add_stat("name", 1.0)
    Statistics.merge([stats, stats]).add_stat("name", 1.0)
    assert stats.get_stat("name")["count"] == 1


def test_merge_wants_statistics(stats):
    with pytest.raises(TypeError):
        Statistics.merge([stats, "other"])
    with pytest.raises(TypeError):
        Statistics.merge([None])


def test_every_damaged_bit_is_found(stats):
    stats.add_stat("name", 1.0)
    good = stats.serialize()
    for at in range(8 * len(good)):
        bad = bytearray(good)
        bad[at // 8] ^= 1 << at % 8
        with pytest.raises(FormatError):
            Statistics.deserialize(bytes(bad))


@given(st.binary(max_size=100), st.booleans())
def test_any_bytes_are_a_value_error_or_statistics(data, plausible):
    if plausible:
        data = b"RMPS\x01\0\0\0" + data
        data += struct.pack("<I", zlib.crc32(data))
    with contextlib.suppress(ValueError):
        Statistics.deserialize(data)


@given(additions, st.data())
def test_changed_bytes_with_a_right_checksum_are_a_value_error_or_statistics(values, data):
    body = bytearray(recorded(values).serialize()[:-4])
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    body = body[: data.draw(st.integers(0, len(body)))]
    with contextlib.suppress(ValueError):
        Statistics.deserialize(bytes(body) + struct.pack("<I", zlib.crc32(body)))


def test_too_many_names_are_refused(stats):
    for i in range(512 - len(registered_statistics())):
        stats.add_stat(f"own-{i}", 1.0)
    with pytest.raises(RuntimeError, match="at most 512"):
        stats.add_stat("one more", 1.0)


def test_registered_names_are_unique():
    names = [info.name for info in registered_statistics()]
    assert len(set(names)) == len(names)
    assert {"spill-bytes-device-to-host", "event-loop-total", "shuffle-payload-send"} <= set(names)
