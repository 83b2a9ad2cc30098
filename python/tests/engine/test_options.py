"""StreamingOptions: explicit values, environment, command line and errors."""

import argparse
import pickle

import pytest

from cudf_polars.engine.hardware_binding import HardwareBindingPolicy
from cudf_polars.engine.options import UNSPECIFIED, StreamingOptions


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch):
    for info in StreamingOptions.describe().values():
        if info.env:
            monkeypatch.delenv(info.env, raising=False)


def test_everything_is_unspecified_at_first():
    assert StreamingOptions().to_dict() == {}
    assert StreamingOptions().fallback_mode is UNSPECIFIED


def test_built_in_defaults():
    assert StreamingOptions().get("fallback_mode") == "warn"
    assert StreamingOptions().get("num_streaming_threads") == 4


def test_groups():
    options = StreamingOptions(num_streaming_threads=8, fallback_mode="silent", allow_gpu_sharing=True)
    assert options.to_rapidsmpf_options() == {"num_streaming_threads": "8"}
    assert options.to_executor_options() == {"fallback_mode": "silent"}
    assert options.to_engine_options() == {"allow_gpu_sharing": True}


def test_booleans_become_lower_case_strings_for_the_library():
    assert StreamingOptions(statistics=True).to_rapidsmpf_options() == {"statistics": "true"}


@pytest.mark.parametrize(
    ("variable", "text", "name", "value"),
    [
        ("RAPIDSMPF_NUM_STREAMING_THREADS", "3", "num_streaming_threads", 3),
        ("RAPIDSMPF_STATISTICS", "yes", "statistics", True),
        ("CUDF_POLARS__EXECUTOR__FALLBACK_MODE", "raise", "fallback_mode", "raise"),
        ("CUDF_POLARS__EXECUTOR__KVIKIO_NTHREADS", "none", "kvikio_nthreads", None),
        (
            "CUDF_POLARS__EXECUTOR__MAX_CONCURRENT_IO_TASKS",
            '{"local": 1}',
            "max_concurrent_io_tasks",
            {"local": 1},
        ),
        ("CUDF_POLARS__EXECUTOR__MAX_CONCURRENT_IO_TASKS", "4", "max_concurrent_io_tasks", 4),
        (
            "CUDF_POLARS__HARDWARE_BINDING",
            '{"enabled": false}',
            "hardware_binding",
            HardwareBindingPolicy(enabled=False),
        ),
    ],
)
def test_environment(monkeypatch, variable, text, name, value):
    monkeypatch.setenv(variable, text)
    assert getattr(StreamingOptions(), name) == value


def test_explicit_goes_before_environment(monkeypatch):
    monkeypatch.setenv("CUDF_POLARS__EXECUTOR__FALLBACK_MODE", "raise")
    assert StreamingOptions(fallback_mode="silent").fallback_mode == "silent"


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("RAPIDSMPF_STATISTICS", "perhaps"),
        ("RAPIDSMPF_NUM_STREAMS", "many"),
        ("CUDF_POLARS__EXECUTOR__FALLBACK_MODE", "shout"),
    ],
)
def test_bad_environment_names_the_variable(monkeypatch, variable, text):
    monkeypatch.setenv(variable, text)
    with pytest.raises(ValueError, match=variable):
        StreamingOptions()


def test_wrong_type():
    with pytest.raises(TypeError, match="num_streams must be int"):
        StreamingOptions(num_streams="16")
    with pytest.raises(TypeError, match="statistics must be bool"):
        StreamingOptions(statistics=1)
    with pytest.raises(TypeError, match="num_streams must be int"):
        StreamingOptions(num_streams=True)


def test_value_outside_the_choices():
    with pytest.raises(ValueError, match="warn, raise, silent"):
        StreamingOptions(fallback_mode="loud")


def test_from_dict_treats_none_as_unspecified():
    assert StreamingOptions.from_dict({"fallback_mode": None}).to_dict() == {}


def test_from_dict_refuses_unknown_keys():
    with pytest.raises(TypeError, match="no_such_option"):
        StreamingOptions.from_dict({"no_such_option": 1})


def test_command_line_round_trip():
    parser = argparse.ArgumentParser()
    StreamingOptions._add_cli_args(parser)
    namespace = parser.parse_args(["--fallback-mode", "silent", "--broadcast-limit", "1000"])
    assert StreamingOptions._from_argparse(namespace).to_dict() == {
        "fallback_mode": "silent",
        "broadcast_limit": 1000,
    }


def test_pickles():
    options = StreamingOptions(fallback_mode="silent")
    again = pickle.loads(pickle.dumps(options))
    assert again.to_dict() == options.to_dict()
    assert again.num_streams is UNSPECIFIED


def test_markdown_has_a_row_per_option():
    text = StreamingOptions.to_markdown()
    assert all(f"| `{name}` |" in text for name in StreamingOptions.describe())
