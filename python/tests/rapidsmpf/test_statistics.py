"""Statistics."""

from __future__ import annotations

import json

import pytest
from rapidsmpf.config import Options
from rapidsmpf.statistics import Statistics


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


@pytest.mark.parametrize(("text", "enabled"), [("on", True), ("false", False), ("", False)])
def test_from_options(text, enabled):
    assert Statistics.from_options(None, Options({"statistics": text})).enabled is enabled


def test_report_names_what_it_has(stats):
    stats.add_stat("some-name", 1.0)
    assert "some-name" in stats.report()


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
