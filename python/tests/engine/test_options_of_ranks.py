"""Options as a rank has them: what the library runs with is what the engine says."""

from __future__ import annotations

import os

import pytest
from rapidsmpf.communicator import single
from rapidsmpf.config import Options, registered_options
from rapidsmpf.memory.buffer import MemoryType
from rapidsmpf.progress_thread import ProgressThread

from cudf_polars import SPMDEngine, StreamingOptions
from support.ranks import run_ranks


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch):
    for info in registered_options():
        monkeypatch.delenv(f"RAPIDSMPF_{info.key.upper()}", raising=False)


def threads(engine):
    return engine.context.num_streaming_threads, engine.options.get("num_streaming_threads")


def test_threads_are_those_that_the_engine_says(monkeypatch):
    with SPMDEngine() as engine:
        assert threads(engine) == (4, 4)
    with SPMDEngine.from_options(StreamingOptions(num_streaming_threads=2)) as engine:
        assert threads(engine) == (2, 2)
    for given in (3, "3"):
        with SPMDEngine(rapidsmpf_options={"num_streaming_threads": given}) as engine:
            assert threads(engine) == (3, 3)
    with SPMDEngine(rapidsmpf_options=Options({"num_streaming_threads": "5"})) as engine:
        assert threads(engine) == (5, 5)
    monkeypatch.setenv("RAPIDSMPF_NUM_STREAMING_THREADS", "1")
    with SPMDEngine() as engine:
        assert threads(engine) == (1, 1)


def test_every_option_of_the_library_is_what_the_engine_says():
    given = {
        "memory_limit": 300_000_000,
        "statistics": True,
        "spill_disk_limit": "3 MiB",
        "peer_memory": "off",
        "bootstrap_timeout": 7,
    }
    with SPMDEngine.from_options(StreamingOptions(**given)) as engine:
        texts = engine.context.options().get_strings()
        for name, value in given.items():
            assert engine.options.get(name) == value
            assert texts[name] == ("true" if value is True else str(value))
        assert engine.context.statistics().enabled


@pytest.mark.skipif(os.environ.get("RAPIDSMPF_DEVICE", "cpu") != "cpu", reason="memory_limit is RAM")
@pytest.mark.parametrize("give", ["rapidsmpf_options", "StreamingOptions", "environment"])
def test_memory_limit(monkeypatch, give):
    limit = 300_000_000
    if give == "rapidsmpf_options":
        engine = SPMDEngine(rapidsmpf_options={"memory_limit": limit})
    elif give == "StreamingOptions":
        engine = SPMDEngine.from_options(StreamingOptions(memory_limit=limit))
    else:
        monkeypatch.setenv("RAPIDSMPF_MEMORY_LIMIT", "300 MB")
        engine = SPMDEngine()
    with engine:
        assert engine.gather_cluster_info()[0].device_memory == limit
        assert engine.context.br().memory_available(MemoryType.DEVICE) < limit


@pytest.mark.parametrize(
    ("start", "source"),
    [
        (
            lambda folder: SPMDEngine(rapidsmpf_options={"spill_directory": folder}),
            "given in rapidsmpf_options",
        ),
        (
            lambda folder: SPMDEngine.from_options(StreamingOptions(spill_directory=folder)),
            "given to StreamingOptions",
        ),
        (lambda _: SPMDEngine(), "environment variable RAPIDSMPF_SPILL_DIRECTORY"),
    ],
    ids=["rapidsmpf_options", "StreamingOptions", "environment"],
)
def test_spill_directory_that_cannot_be_used(monkeypatch, tmp_path, start, source):
    (tmp_path / "file").write_text("no folder")
    folder = str(tmp_path / "file" / "spill")
    if source.startswith("environment"):
        monkeypatch.setenv("RAPIDSMPF_SPILL_DIRECTORY", folder)
    with pytest.raises(ValueError, match=r"option spill_directory: .*file/spill.*may write to") as caught:
        start(folder)
    assert f"(spill_directory: {source})" in str(caught.value)


def test_what_the_library_refuses_when_it_starts_says_where_it_was_set():
    comm = single.new_communicator(Options(), ProgressThread())
    with pytest.raises(
        ValueError, match=r"spill_io_threads is 5000.*spill_io_threads: given in rapidsmpf_options"
    ):
        SPMDEngine(comm=comm, rapidsmpf_options={"spill_io_threads": 5000})


def test_ranks_of_a_job():
    run_ranks(
        2,
        """
import warnings
from cudf_polars import OptionWithoutEffectWarning, SPMDEngine, StreamingOptions

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    options = StreamingOptions(memory_limit="400 MB", peer_memory="off", kvikio_task_size=5)
with SPMDEngine.from_options(options) as engine:
    assert [info.device_memory for info in engine.gather_cluster_info()] == [400_000_000] * 2
    assert engine.context.num_streaming_threads == engine.options.get("num_streaming_threads") == 4
    ours = [w for w in caught if issubclass(w.category, OptionWithoutEffectWarning)]
    assert len(ours) == (engine.rank == 0), caught  # once in the job
""",
    ).check()
