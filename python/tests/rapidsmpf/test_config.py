"""Options and the environment."""

from __future__ import annotations

import contextlib
import pickle
import struct
import threading
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rapidsmpf.config import (
    Optional,
    OptionalBytes,
    Options,
    get_environment_variables,
    registered_options,
)
from rapidsmpf.error import FormatError
from rapidsmpf.utils.string import format_bytes, parse_bytes

WORDS = ["false", "no", "off", "disable", "disabled", "OFF", "Disabled"]


@pytest.mark.parametrize("word", WORDS)
def test_optional_is_switched_off_by_words(word):
    assert Optional(word).value is None
    assert OptionalBytes(word).value is None


@pytest.mark.parametrize("value", ["100", "", 1e-3, None, True])
def test_optional_keeps_other_values(value):
    assert Optional(value).value == value


@pytest.mark.parametrize(
    ("text", "size"), [("1KiB", 1024), ("100 MB", 100_000_000), ("1e6", 1_000_000), (2048, 2048)]
)
def test_optional_bytes(text, size):
    assert OptionalBytes(text).value == size


def test_optional_bytes_refuses_what_is_no_size():
    with pytest.raises(ValueError, match="a lot"):
        OptionalBytes("a lot")


def test_keys_are_trimmed_and_lower_case():
    assert Options({"  Some_Key ": "1"}).get_strings() == {"some_key": "1"}


def test_keys_and_values_are_strings():
    with pytest.raises(TypeError, match="num"):
        Options({"num": 1})


def test_insert_if_absent_keeps_what_is_there():
    options = Options({"a": "1"})
    assert options.insert_if_absent({"A": "2", "b": "3"}) == 1
    assert options.get_strings() == {"a": "1", "b": "3"}


@pytest.mark.parametrize(
    ("return_type", "factory", "value"),
    [
        (int, int, 12),
        (float, float, 12.0),
        (str, str, "12"),
        (bool, lambda text: text == "12", True),
        (object, lambda text: [text], ["12"]),
        (list, lambda text: [text], ["12"]),
    ],
)
def test_get(return_type, factory, value):
    options = Options({"key": "12"})
    assert options.get("key", return_type=return_type, factory=factory) == value


def test_get_parses_once():
    calls = []
    options = Options({"key": "12"})

    def factory(text):
        calls.append(text)
        return int(text)

    assert [options.get("key", return_type=int, factory=factory) for _ in range(2)] == [12, 12]
    assert calls == ["12"]


def test_get_gives_the_factory_an_empty_string_when_unset():
    assert Options().get("key", return_type=str, factory=lambda text: f"<{text}>") == "<>"


@pytest.mark.parametrize("first", [int, object])
def test_get_with_another_type(first):
    options = Options({"key": "12"})
    options.get("key", return_type=first, factory=int)
    with pytest.raises(TypeError, match="key"):
        options.get("key", return_type=str, factory=str)


def test_get_raises_what_the_factory_raises():
    with pytest.raises(ZeroDivisionError):
        Options().get("key", return_type=int, factory=lambda text: 1 // 0)


def test_get_checks_the_factory():
    with pytest.raises(TypeError, match="returned str, not int"):
        Options().get("key", return_type=int, factory=str)


def test_get_wants_a_type():
    with pytest.raises(ValueError, match="must be a type"):
        Options().get("key", return_type="int", factory=int)


def test_get_refuses_integers_that_do_not_fit():
    with pytest.raises(OverflowError):
        Options({"key": str(2**70)}).get("key", return_type=int, factory=int)


def test_get_of_two_threads():
    # One thread holds the options' lock while its factory lets the other one run.
    options = Options({"key": "1"})
    inside = threading.Event()

    def slow(text):
        inside.set()
        other.join(0.1)
        return int(text)

    results = []
    other = threading.Thread(
        target=lambda: inside.wait() and results.append(options.get("key", return_type=int, factory=int))
    )
    other.start()
    results.append(options.get("key", return_type=int, factory=slow))
    other.join()
    assert results == [1, 1]


@pytest.mark.parametrize(
    ("text", "default", "value"),
    [
        (None, False, False),
        ("on", False, True),
        ("2", 1.5, 2.0),
        ("7", 1, 7),
        ("debug", "info", "debug"),
        (None, "info", "info"),
    ],
)
def test_get_or_default(text, default, value):
    options = Options({} if text is None else {"key": text})
    result = options.get_or_default("key", default_value=default)
    assert result == value
    assert type(result) is type(value)


def test_get_or_default_of_optional():
    options = Options({"a": "off"})
    assert options.get_or_default("a", default_value=Optional(1.0)).value is None
    assert options.get_or_default("b", default_value=Optional(1e-3)).value == 1e-3


def test_get_or_default_keeps_the_default():
    options = Options()
    options.get_or_default("key", default_value=1)
    assert options.get_or_default("key", default_value=2) == 1


def test_get_or_default_of_unreadable_text():
    with pytest.raises(ValueError, match="perhaps"):
        Options({"key": "perhaps"}).get_or_default("key", default_value=False)


text = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)


@given(st.dictionaries(text.map(str.strip).map(str.lower).filter(lambda key: key.isascii() and key), text))
def test_serialised_options_come_back(values):
    assert Options.deserialize(Options(values).serialize()).get_strings() == values
    assert pickle.loads(pickle.dumps(Options(values))).get_strings() == values


def test_options_that_were_read_cannot_be_serialised():
    options = Options({"key": "1"})
    options.get("key", return_type=int, factory=int)
    with pytest.raises(ValueError, match="key"):
        options.serialize()


def test_every_damaged_byte_is_found():
    good = Options({"key": "value", "other": ""}).serialize()
    for at in range(len(good)):
        bad = bytearray(good)
        bad[at] ^= 1
        with pytest.raises(FormatError):
            Options.deserialize(bytes(bad))


@given(st.binary(max_size=100), st.booleans())
def test_any_bytes_are_a_value_error_or_options(data, plausible):
    if plausible:
        data = b"RMPO\x01\x01\0\0" + data
        data += struct.pack("<I", zlib.crc32(data))
    with contextlib.suppress(ValueError):
        Options.deserialize(data)


@given(
    st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 100), min_size=1, max_size=9), st.binary(max_size=20)
)
def test_absurd_counts_and_offsets_are_a_value_error_or_options(words, data):
    body = b"RMPO\x01\x01\0\0" + struct.pack(f"<{len(words)}Q", *words) + data
    with contextlib.suppress(ValueError):
        Options.deserialize(body + struct.pack("<I", zlib.crc32(body)))


@pytest.mark.parametrize("options", [{"k" * 4097: ""}, {"k": "v" * (2**20 + 1)}])
def test_what_could_not_be_read_back_is_not_serialised(options):
    with pytest.raises(ValueError, match="too long"):
        Options(options).serialize()


def test_what_cannot_be_read_leaves_no_trace():
    options = Options()
    with pytest.raises(ZeroDivisionError):
        options.get("key", return_type=int, factory=lambda text: 1 // 0)
    assert options.get_strings() == {}
    assert options.insert_if_absent({"key": "3"}) == 1
    assert options.get_or_default("key", default_value=1) == 3


@pytest.mark.parametrize("text", ["perhaps", "2", "truee", "t"])
def test_truth_values_are_strict(text):
    with pytest.raises(ValueError, match=text):
        Options({"key": text}).get_or_default("key", default_value=True)


def test_registered_options_are_unique_and_described():
    table = registered_options()
    assert len({info.key for info in table}) == len(table)
    assert all(info.key == info.key.strip().lower() and info.meaning for info in table)


def test_environment(monkeypatch):
    monkeypatch.setenv("RAPIDSMPF_SOME_OPTION", "bar")
    monkeypatch.setenv("OTHER_THING", "1")
    variables = get_environment_variables()
    assert variables["SOME_OPTION"] == "bar"
    assert "THING" not in variables
    assert get_environment_variables("OTHER_(.*)")["THING"] == "1"


@pytest.mark.parametrize("expression", ["no group", "(two)(groups)", "(open"])
def test_environment_wants_one_group(expression):
    with pytest.raises(ValueError, match="key_regex"):
        get_environment_variables(expression)


@given(st.integers(0, 2**50))
def test_sizes_are_read_as_they_are_written(size):
    assert abs(parse_bytes(format_bytes(size)) - size) <= size * 0.006
