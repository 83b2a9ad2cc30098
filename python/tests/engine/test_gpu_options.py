"""Options of what runs on a GPU: what they may be, and what they make of the operators. None of it takes a GPU."""

from __future__ import annotations

import os
import warnings
from typing import Any

import polars as pl
import pytest

from cudf_polars import SPMDEngine
from cudf_polars.engine import compute_device, gpu_hook, rank
from cudf_polars.engine.gpu_options import runtime_settings
from cudf_polars.engine.options import StreamingOptions
from cudf_polars.engine.rank_settings import resolve_options
from cudf_polars.execute.cpu import CpuDevice


@pytest.fixture(autouse=True)
def _nothing_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith(("RAPIDSMPF_", "CUDF_POLARS__")):
            monkeypatch.delenv(name)


def settings_of(**given: Any) -> dict[str, Any]:
    """Return what options make of the operators, and see to it that none is said to have no effect."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        options = StreamingOptions(**given)
    return runtime_settings(options, options.to_rapidsmpf_options())


@pytest.mark.parametrize(
    ("given", "settings"),
    [
        ({}, {}),
        ({"unbounded_file_read_cache": "disabled"}, {}),
        ({"unbounded_file_read_cache": "host"}, {}),
        ({"unbounded_file_read_cache": "pinned"}, {"map_files": True}),
        ({"unbounded_file_read_cache": "device"}, {"keep_compressed": True}),
        ({"unbounded_file_read_cache": " Device "}, {"keep_compressed": True}),
        ({"keep_decoded_columns": True}, {"keep_decoded": True}),
        ({"keep_decoded_columns": False}, {}),
        (
            {"keep_decoded_columns": True, "unbounded_file_read_cache": "device"},
            {"keep_decoded": True, "keep_compressed": True},
        ),
        ({"max_concurrent_io_tasks": 3}, {"passes_in_flight": 3}),
        ({"max_concurrent_io_tasks": {"local": 5, "remote": 7}}, {"passes_in_flight": 5}),
        ({"max_concurrent_io_tasks": {"remote": 7}}, {}),
        ({"max_concurrent_io_tasks": None}, {}),
        ({"parquet_options": None}, {}),
        ({"parquet_options": {"chunk_read_limit": 1 << 20}}, {"pass_bytes": 1 << 20}),
        ({"parquet_options": {"pass_read_limit": 5, "chunk_read_limit": 0}}, {"pass_bytes": 5}),
        ({"parquet_options": {"pass_read_limit": 5, "chunk_read_limit": 3}}, {"pass_bytes": 3}),
        ({"parquet_options": {"pass_read_limit": 0, "chunk_read_limit": 0}}, {}),
        (
            {
                "parquet_options": {
                    "chunked": False,
                    "n_output_chunks": 2,
                    "max_footer_samples": None,
                    "max_row_group_samples": 0,
                    "prefetch_file_metadata": True,
                    "use_hybrid_scan": True,
                    "use_jit_filter": False,
                }
            },
            {},
        ),
    ],
)
def test_what_options_make_of_the_operators(given: dict[str, Any], settings: dict[str, Any]) -> None:
    assert settings_of(**given) == settings


def test_what_the_operators_take() -> None:
    """The names above are those of the runtime, which is there only where libcudf is."""
    libcudf = pytest.importorskip("libcudf")
    libcudf.load_library()
    compute = pytest.importorskip("rapidsmpf.compute")
    for given in ({"unbounded_file_read_cache": "device"}, {"unbounded_file_read_cache": "pinned"}):
        settings = settings_of(
            **given,
            keep_decoded_columns=True,
            max_concurrent_io_tasks=2,
            parquet_options={"chunk_read_limit": 9},
        )
        with pytest.raises(TypeError, match="br"):  # and not of a keyword
            compute.Runtime(None, **settings)
        with pytest.raises(TypeError, match="unexpected keyword"):
            compute.Runtime(None, **settings, no_such=1)


@pytest.mark.parametrize(
    ("variable", "text", "settings"),
    [
        ("RAPIDSMPF_UNBOUNDED_FILE_READ_CACHE", "DEVICE", {"keep_compressed": True}),
        ("RAPIDSMPF_UNBOUNDED_FILE_READ_CACHE", " ", {}),
        ("CUDF_POLARS__KEEP_DECODED_COLUMNS", "yes", {"keep_decoded": True}),
        ("CUDF_POLARS__EXECUTOR__MAX_CONCURRENT_IO_TASKS", "4", {"passes_in_flight": 4}),
        ("CUDF_POLARS__EXECUTOR__MAX_CONCURRENT_IO_TASKS", '{"local": 2}', {"passes_in_flight": 2}),
        ("CUDF_POLARS__EXECUTOR__MAX_CONCURRENT_IO_TASKS", "none", {}),
    ],
)
def test_variables(
    monkeypatch: pytest.MonkeyPatch, variable: str, text: str, settings: dict[str, Any]
) -> None:
    monkeypatch.setenv(variable, text)
    assert settings_of() == settings


def test_a_worker_reads_its_own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    made_by_a_client = resolve_options(None, None, None)
    monkeypatch.setenv("RAPIDSMPF_UNBOUNDED_FILE_READ_CACHE", "pinned")
    library = made_by_a_client.library_options().get_strings()
    assert runtime_settings(made_by_a_client.options, library) == {"map_files": True}


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({"unbounded_file_read_cache": "disk"}, ValueError, "disabled.*host.*pinned.*device"),
        ({"unbounded_file_read_cache": True}, TypeError, "unbounded_file_read_cache must be str"),
        ({"keep_decoded_columns": 1}, TypeError, "keep_decoded_columns must be bool"),
        ({"max_concurrent_io_tasks": 0}, ValueError, "0 is less than 1"),
        ({"max_concurrent_io_tasks": True}, TypeError, "must be int or dict or None"),
        ({"max_concurrent_io_tasks": {"locl": 1}}, TypeError, "'locl'.*there are local, remote"),
        ({"max_concurrent_io_tasks": {"local": 0}}, ValueError, "local: 0 is less than 1"),
        ({"max_concurrent_io_tasks": {"remote": "8"}}, TypeError, "remote must be int, not str"),
        ({"max_concurrent_io_tasks": {"local": True}}, TypeError, "local must be int, not bool"),
        ({"parquet_options": 5}, TypeError, "parquet_options must be dict or None, not int"),
        (
            {"parquet_options": {"chunk_limit": 5}},
            TypeError,
            "'chunk_limit'.*chunk_read_limit, pass_read_limit",
        ),
        ({"parquet_options": {"chunk_read_limit": -1}}, ValueError, "chunk_read_limit: -1 is less than 0"),
        ({"parquet_options": {"pass_read_limit": "1 GiB"}}, TypeError, "pass_read_limit must be int"),
        ({"parquet_options": {"n_output_chunks": 0}}, ValueError, "n_output_chunks: 0 is less than 1"),
        ({"parquet_options": {"chunked": 1}}, TypeError, "chunked must be bool, not int"),
        ({"parquet_options": {"n_output_chunks": None}}, TypeError, "must be int, not NoneType"),
    ],
)
def test_errors(given: dict[str, Any], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=f"(?s){said}") as caught:
        StreamingOptions(**given)
    assert "given to StreamingOptions" in str(caught.value)
    assert next(iter(given)) in str(caught.value)


def test_a_rank_opens_its_device_with_what_its_options_make(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []

    def open_device(options: Any, context: Any, settings: Any) -> CpuDevice:
        opened.append(settings)
        return CpuDevice()

    monkeypatch.setattr(rank, "open_compute_device", open_device)
    with SPMDEngine(
        rapidsmpf_options={"unbounded_file_read_cache": "device"},
        executor_options={"max_concurrent_io_tasks": {"local": 2}},
        engine_options={"parquet_options": {"pass_read_limit": 77}},
    ):
        pass
    assert opened == [{"keep_compressed": True, "passes_in_flight": 2, "pass_bytes": 77}]


class Operators:
    """Stands for the operators on a GPU."""

    def __init__(self, settings: Any) -> None:
        self.settings = settings
        self.closed = False

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Operators]:
    """Operators that are made outside of engines, in their order, as on a machine with a GPU."""
    made: list[Operators] = []

    def open_operators(br: Any, settings: Any) -> Operators:
        made.append(Operators(settings))
        return made[-1]

    monkeypatch.setattr(gpu_hook, "_newest", [])
    monkeypatch.setattr(gpu_hook, "open_operators", open_operators)
    return made


def open_with(**config: Any) -> Any:
    options = gpu_hook._gpu_options(config)
    return gpu_hook._open_gpu(options, options.get("memory_resource_config"))


def test_options_of_polars_gpu_engine(made: list[Operators], monkeypatch: pytest.MonkeyPatch) -> None:
    open_with(
        executor="streaming",
        raise_on_fail=True,
        executor_options={"max_concurrent_io_tasks": 3, "of_others": 1},
        parquet_options={"chunk_read_limit": 8},
        keep_decoded_columns=True,
    )
    monkeypatch.setenv("RAPIDSMPF_UNBOUNDED_FILE_READ_CACHE", "device")
    open_with()
    assert [operators.settings for operators in made] == [
        {"passes_in_flight": 3, "pass_bytes": 8, "keep_decoded": True},
        {"keep_compressed": True},
    ]


def test_operators_with_other_settings_take_the_place_of_those_before(made: list[Operators]) -> None:
    runs = open_with()
    assert open_with(raise_on_fail=True) is runs
    open_with(keep_decoded_columns=True)
    assert [operators.closed for operators in made] == [False, False]  # a query still has the first
    del runs
    assert [operators.closed for operators in made] == [True, False]
    open_with()
    assert [operators.closed for operators in made] == [True, True, False]


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"parquet_options": {"chunkd": True}}, "'chunkd'.*given in pl.GPUEngine.*there are chunked"),
        ({"keep_decoded_columns": "yes"}, "keep_decoded_columns must be bool"),
        ({"executor_options": {"max_concurrent_io_tasks": 0}}, "0 is less than 1.*given in executor_options"),
        ({"memory_resource_config": {}}, "needs 'qualname'"),
        (
            {
                "memory_resource": object(),
                "memory_resource_config": {"qualname": "rmm.mr.CudaMemoryResource"},
            },
            "memory_resource or memory_resource_config, not both",
        ),
    ],
)
def test_errors_of_polars_gpu_engine(config: dict[str, Any], said: str) -> None:
    with pytest.raises(Exception, match=said):
        pl.LazyFrame({"a": [1]}).select(pl.col("a") + 1).collect(engine=pl.GPUEngine(**config))


def test_a_gpu_is_opened_with_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []
    monkeypatch.setattr(
        compute_device, "open_operators", lambda br, settings: opened.append(settings) or Operators(settings)
    )
    monkeypatch.setattr(compute_device, "gpu_unavailable", lambda: None)
    monkeypatch.setattr("cudf_polars.execute.gpu.warm_up.warm_up", lambda device: None)
    with SPMDEngine(engine_options={"keep_decoded_columns": True}):
        pass
    assert opened == [{"keep_decoded": True}]
