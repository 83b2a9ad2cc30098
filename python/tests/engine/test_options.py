"""StreamingOptions: explicit values, environment, command line, the library's table, and errors."""

import argparse
import inspect
import os
import pickle
import pydoc
import typing
import warnings
from pathlib import Path

import numpy as np
import pytest
from rapidsmpf import given_options
from rapidsmpf.config import Options, registered_options

from cudf_polars.engine.hardware_binding import HardwareBindingPolicy
from cudf_polars.engine.options import UNSPECIFIED, StreamingOptions, Unspecified
from cudf_polars.engine.rank_settings import RankSettings, resolve_options


@pytest.fixture(autouse=True)
def _fresh(monkeypatch):
    """No option comes from the environment, and what was warned of is warned of again."""
    for name in os.environ:
        if name.startswith(("RAPIDSMPF_", "CUDF_POLARS__")):
            monkeypatch.delenv(name)
    monkeypatch.setattr(given_options, "_told", set())


def test_everything_is_unspecified_at_first():
    assert StreamingOptions().to_dict() == {}
    assert StreamingOptions().fallback_mode is UNSPECIFIED


def test_built_in_defaults():
    assert StreamingOptions().get("fallback_mode") == "warn"
    assert StreamingOptions().get("num_streaming_threads") == 4


def fields_of_library():
    return {n: i for n, i in StreamingOptions.describe().items() if i.group == "rapidsmpf"}


def test_what_the_library_has_is_said_as_it_says_it():
    library = {info.key: info for info in registered_options()}
    own = set(StreamingOptions.library_defaults())
    for name, info in fields_of_library().items():
        row = library[name]
        assert (info.doc, info.effective, info.env) == (
            row.meaning,
            row.effective,
            f"RAPIDSMPF_{name.upper()}",
        )
        if name not in own:
            assert str(info.default).lower() == row.default.lower(), name
    assert own == {"num_streaming_threads"}


def test_types_of_fields_are_those_of_the_library():
    allowed = {
        "boolean": {bool},
        "count": {int},
        "bytes": {int, str},
        "share": {int, str},
        "duration": {float, str},
        "text": {str, os.PathLike[str]},
    }
    hints = typing.get_type_hints(StreamingOptions)
    library = {info.key: info for info in registered_options()}
    for name in fields_of_library():
        kinds = set(typing.get_args(hints[name])) - {Unspecified}
        for kind in kinds:
            if typing.get_origin(kind) is typing.Literal:
                assert typing.get_args(kind) == library[name].words
            else:
                assert kind in allowed[library[name].kind], name
        assert kinds == allowed[library[name].kind] or library[name].kind == "text"


def test_help_shows_every_option():
    text = pydoc.plain(pydoc.render_doc(StreamingOptions))
    for name, info in StreamingOptions.describe().items():
        assert f"{name} : {info.type}; default " in text
        assert info.doc in text
        assert info.env is None or info.env in text
    assert list(inspect.signature(StreamingOptions).parameters) == list(StreamingOptions.describe())


def test_repr_shows_what_is_set():
    assert repr(StreamingOptions(memory_limit=5)) == "StreamingOptions(memory_limit=5)"


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


@pytest.mark.parametrize(
    ("given", "texts"),
    [
        ({"memory_limit": 300_000_000}, {"memory_limit": "300000000"}),
        ({"memory_limit": np.int64(5)}, {"memory_limit": "5"}),
        ({"memory_limit": 3e8}, {"memory_limit": "300000000"}),
        ({"memory_limit": "2 GiB"}, {"memory_limit": "2 GiB"}),
        ({"memory_limit": False}, {"memory_limit": "false"}),
        ({"spill_directory": Path("/tmp")}, {"spill_directory": "/tmp"}),
        ({"spill_disk_limit": "50%"}, {"spill_disk_limit": "50%"}),
        ({"peer_memory": "off"}, {"peer_memory": "off"}),
        ({"bootstrap_timeout": 2.5}, {"bootstrap_timeout": "2.5"}),
        ({"periodic_spill_check": False}, {"periodic_spill_check": "false"}),
    ],
)
def test_numbers_paths_and_off(given, texts):
    assert StreamingOptions(**given).to_rapidsmpf_options() == texts


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({"memory_limit": True}, TypeError, "option memory_limit must be int or str, not bool"),
        ({"memory_limit": "80%"}, ValueError, "option memory_limit: cannot read"),
        ({"memory_limit": -1}, ValueError, "option memory_limit: "),
        ({"bootstrap_timeout": 0}, ValueError, "option bootstrap_timeout: "),
        ({"bootstrap_timeout": None}, TypeError, "option bootstrap_timeout must be float or str"),
        ({"peer_memory": "perhaps"}, ValueError, "option peer_memory: .* not one of auto"),
        ({"broadcast_limit": -1}, ValueError, "option broadcast_limit: -1 is less than 0"),
        ({"memory_limi": 5}, TypeError, "unknown option 'memory_limi' .*: did you mean memory_limit"),
        ({"fallback_mode": 3}, TypeError, "option fallback_mode must be one of warn, raise, silent, not int"),
    ],
)
def test_errors_name_the_option_and_where_it_was_set(given, error, said):
    with pytest.raises(error, match=f"{said}.*") as caught:
        StreamingOptions(**given)
    assert "given to StreamingOptions" in str(caught.value)
    if None not in given.values():  # unspecified, in a mapping
        with pytest.raises(error, match=said) as caught:
            StreamingOptions.from_dict(given)
        assert "given to StreamingOptions.from_dict" in str(caught.value)


@pytest.mark.parametrize("variable", ["RAPIDSMPF_SPIL_DIRECTORY", "CUDF_POLARS__EXECUTOR__FALLBACK_MOD"])
def test_misspelt_variable(monkeypatch, variable):
    monkeypatch.setenv(variable, "1")
    with pytest.raises(TypeError, match=f"(?i){variable.rpartition('_')[0]}.*did you mean"):
        resolve_options(None, None, None).library_options()


@pytest.mark.parametrize(
    "variable", ["RAPIDSMPF_TEST_RRUN", "RAPIDSMPF_", "CUDF_POLARS__OTHER", "RAPIDSMPF_LOG"]
)
def test_variables_of_others_and_blank_ones_are_left_alone(monkeypatch, variable):
    monkeypatch.setenv(variable, "")
    assert resolve_options(None, None, None).options.to_dict() == {}


def test_policy_from_a_dict():
    assert StreamingOptions(hardware_binding={"cpu": False}).hardware_binding == HardwareBindingPolicy(
        cpu=False
    )
    with pytest.raises(TypeError, match=r"'enable' .*hardware_binding.*did you mean enabled"):
        StreamingOptions(hardware_binding={"enable": False})
    with pytest.raises(TypeError, match="hardware_binding: cpu must be bool, not str"):
        StreamingOptions(hardware_binding={"cpu": "no"})


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({"spil_directory": "/tmp"}, TypeError, "did you mean spill_directory"),
        ({"spill_io_threads": -5}, ValueError, "option spill_io_threads: "),
        ({"spill_io_threads": True}, ValueError, "option spill_io_threads: "),
        ({"memory_limit": [5]}, TypeError, "option memory_limit must be text, a number"),
        ({"nothing_like_it": 5}, TypeError, "nothing_like_it.*known options: "),
        (Options({"spill_io_threads": "-5"}), ValueError, "option spill_io_threads: "),
        (Options({"spil_directory": "/tmp"}), TypeError, "did you mean spill_directory"),
    ],
)
def test_bad_options_of_the_library(given, error, said):
    with pytest.raises(error, match=f"{said}") as caught:
        resolve_options(given, None, None)
    assert "given in rapidsmpf_options" in str(caught.value)


def test_options_of_the_library_in_any_form():
    given = {" Memory_Limit ": 300_000_000, "statistics": True, "spill_io_threads": 2, "log": None}
    settings = resolve_options(given, None, None)
    assert settings.options.to_dict() == {"memory_limit": 300_000_000, "statistics": True}
    texts = settings.library_options().get_strings()
    assert texts == {
        "memory_limit": "300000000",
        "statistics": "true",
        "spill_io_threads": "2",
        "num_streaming_threads": "4",
    }
    # What is there already is text, and may come from an environment that others share.
    settings = resolve_options(Options({"num_streaming_threads": "2", "of_others": "x"}), None, None)
    assert settings.options.num_streaming_threads == 2
    assert settings.library_options().get_strings() == {"num_streaming_threads": "2", "of_others": "x"}


def test_the_environment_of_a_rank_goes_before_the_defaults_of_engines(monkeypatch):
    settings = resolve_options(None, None, None)  # made by a client, whose environment says nothing
    monkeypatch.setenv("RAPIDSMPF_NUM_STREAMING_THREADS", "2")
    assert settings.library_options().get_strings()["num_streaming_threads"] == "2"
    settings = resolve_options({"num_streaming_threads": 3}, None, None)
    assert settings.library_options().get_strings()["num_streaming_threads"] == "3"


def test_what_has_no_effect_warns_once_at_the_line_that_sets_it(monkeypatch):
    with pytest.warns(
        given_options.OptionWithoutEffectWarning, match="kvikio_reactor_count.*no effect"
    ) as caught:
        StreamingOptions(kvikio_reactor_count=20)
    assert caught[0].filename == __file__
    with pytest.warns(given_options.OptionWithoutEffectWarning, match="dask_oom_protection") as caught:
        resolve_options({"dask_oom_protection": True}, None, None)
    assert caught[0].filename == __file__
    monkeypatch.setenv("CUDF_POLARS__EXECUTOR__KVIKIO_TASK_SIZE", "5")
    with pytest.warns(given_options.OptionWithoutEffectWarning, match="KVIKIO_TASK_SIZE"):
        StreamingOptions()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        StreamingOptions(kvikio_reactor_count=21, num_py_executors=8)
        resolve_options({"dask_oom_protection": "on", "dask_staging_spill_buffer": "128 MiB"}, None, None)


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


def test_options_without_effect_have_a_table_of_their_own():
    tables = {effective: StreamingOptions.to_markdown(effective=effective) for effective in (True, False)}
    for name, info in StreamingOptions.describe().items():
        assert f"| `{name}` |" in tables[info.effective]
        assert f"| `{name}` |" not in tables[not info.effective]


@pytest.mark.parametrize(
    ("value", "filters"), [(True, True), ({}, True), ({"any": 1}, True), (False, False), (None, False)]
)
def test_filters_by_keys_of_joins_can_be_switched_off(value, filters):
    settings = RankSettings(StreamingOptions(join_filter_pushdown=value))
    assert bool(settings.execution_options().filter_keys) == filters
    assert bool(RankSettings(StreamingOptions()).execution_options().filter_keys)


def test_dynamic_planning_reaches_the_planner():
    assert RankSettings(StreamingOptions()).execution_options().dynamic_planning
    assert not RankSettings(StreamingOptions(dynamic_planning=False)).execution_options().dynamic_planning
    assert not RankSettings(StreamingOptions(dynamic_planning=None)).execution_options().dynamic_planning
