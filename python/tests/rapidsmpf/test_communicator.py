"""Communicators in one process."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from rapidsmpf.coll.allgather import allgather_bytes
from rapidsmpf.communicator import COMMUNICATORS, loopback, single
from rapidsmpf.communicator.communicator import LOG_LEVEL, Communicator, Logger
from rapidsmpf.config import Options
from rapidsmpf.error import RankFailedError
from rapidsmpf.progress_thread import ProgressThread
from rapidsmpf.statistics import Statistics


def test_usable_backends():
    assert {"single", "ucxx"} <= set(COMMUNICATORS)


def test_single():
    comm = single.new_communicator(Options(), ProgressThread())
    assert (comm.rank, comm.nranks) == (0, 1)
    assert comm.progress_thread.is_running
    assert "Single" in comm.get_str()


def test_single_without_a_progress_thread_has_its_own():
    assert single.new_communicator(Options()).progress_thread.is_running


@pytest.mark.parametrize("nranks", [1, 3])
def test_loopback_ranks(nranks):
    comms = loopback.new_cluster(nranks)
    assert [comm.rank for comm in comms] == list(range(nranks))
    assert {comm.nranks for comm in comms} == {nranks}


def test_loopback_needs_a_rank():
    with pytest.raises(ValueError, match="rank"):
        loopback.new_cluster(0)
    with pytest.raises(ValueError, match="dying_rank"):
        loopback.new_cluster(2, dying_rank=2)


@pytest.mark.parametrize("abstract", [Communicator, Logger])
def test_abstract_classes(abstract):
    with pytest.raises(TypeError):
        abstract()


def test_abort_reaches_every_rank():
    comms = loopback.new_cluster(2)
    comms[1].abort("no more")
    with pytest.raises(RankFailedError, match="no more") as error:
        comms[1].check()
    assert error.value.rank == 1


def on_every_rank(comms, work):
    """Call ``work(comm)`` for each rank in a thread of its own; return the results by rank."""
    with ThreadPoolExecutor(len(comms)) as pool:
        return list(pool.map(work, comms))


def test_split_by_colour_and_key():
    comms = loopback.new_cluster(5)
    parts = on_every_rank(comms, lambda comm: comm.split(comm.rank % 2, -comm.rank, timeout=60))
    assert [(part.rank, part.nranks) for part in parts] == [(2, 3), (1, 2), (1, 3), (0, 2), (0, 3)]
    gathered = on_every_rank(
        list(zip(comms, parts, strict=True)),
        lambda both: allgather_bytes(both[1], 1, b"%d" % both[0].rank, timeout=60),
    )
    assert gathered == [[b"4", b"2", b"0"], [b"3", b"1"]] * 2 + [[b"4", b"2", b"0"]]


def test_split_without_a_colour():
    comms = loopback.new_cluster(3)
    parts = on_every_rank(comms, lambda comm: comm.split([0, None, -7][comm.rank], timeout=60))
    assert parts[0].nranks == 1
    assert parts[1:] == [None, None]


def test_split_of_one_rank_needs_nobody():
    part = single.new_communicator(Options()).split(3).split(0)
    assert (part.rank, part.nranks) == (0, 1)
    assert "Sub" in part.get_str()


def test_split_names_the_missing():
    comms = loopback.new_cluster(3)
    with pytest.raises(TimeoutError, match="1, 2"):
        comms[0].split(0, timeout=0.01)


@pytest.mark.parametrize("arguments", [(2**31,), (0, 2**31)])
def test_split_takes_32_bits(arguments):
    with pytest.raises(OverflowError):
        single.new_communicator(Options()).split(*arguments)


def test_split_fails_with_its_parent():
    comms = loopback.new_cluster(3)
    parts = on_every_rank(comms, lambda comm: comm.split(comm.rank // 2, -comm.rank, timeout=60))
    comms[0].abort("no more")
    for comm in comms:
        with pytest.raises(RankFailedError):
            allgather_bytes(comm, 1, b"", timeout=60)
    errors = []
    for part in parts:
        with pytest.raises(RankFailedError, match="no more") as error:
            part.check()
        errors.append(error.value.rank)
    assert errors == [1, 1, -1]


@pytest.mark.parametrize("level", list(LOG_LEVEL))
def test_log_level(level):
    comm = single.new_communicator(Options({"log": level.name.lower()}))
    assert comm.logger.verbosity_level is level


def test_unknown_log_level():
    with pytest.raises(ValueError, match="loud"):
        single.new_communicator(Options({"log": "loud"}))


def test_logger_writes_up_to_its_level(capfd):
    logger = single.new_communicator(Options({"log": "INFO"})).logger
    for level in ("print", "warn", "info", "debug", "trace"):
        getattr(logger, level)(f"message of {level}")
    lines = capfd.readouterr().err.splitlines()
    assert [line.rsplit(" ", 1)[1] for line in lines] == ["print", "warn", "info"]
    assert all(":0:" in line for line in lines)


def test_logger_outlives_its_communicator(capfd):
    logger = single.new_communicator(Options()).logger
    logger.warn("still here")
    assert "still here" in capfd.readouterr().err


def test_progress_thread_stops():
    thread = ProgressThread(Statistics(True))
    assert thread.is_running
    thread.stop()
    thread.stop()
    assert not thread.is_running


ENDINGS = {
    "communicators in a cycle": """
kept = [loopback.new_cluster(3), single.new_communicator(Options())]
kept.append(kept)
""",
    "a daemon thread in a wait": """
shuffler = Shuffler(single.new_communicator(Options()), 0, 1, BufferResource())
threading.Thread(target=shuffler.wait_any, daemon=True).start()
""",
    "a stream that nobody reads": """
comm = single.new_communicator(Options())
context = Context.from_options(comm, Options({"num_streaming_threads": "2"}))
shuffler = Shuffler(comm, 0, 1, context.br())
frame = pl.DataFrame({"a": range(100_000)})
drained = drain_into_shuffle(frame, RowRouting.by_hash(["a"]), shuffler, context)
scan = pl.scan_arrow_c_stream(shuffle_output_stream(shuffler, drained, context))
""",
    "callables that C++ keeps": """
br = BufferResource(memory_available={MemoryType.DEVICE: lambda: 1})
br.spill_manager.add_spill_function(lambda amount: br and 0, 0)
options = Options()
options.get("a", return_type=object, factory=lambda text: options)
""",
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_process_ends_cleanly_with(ending):
    code = """
import threading
import polars as pl
from rapidsmpf.communicator import loopback, single
from rapidsmpf.config import Options
from rapidsmpf.memory.buffer import MemoryType
from rapidsmpf.memory.buffer_resource import BufferResource
from rapidsmpf.shuffler import Shuffler
from rapidsmpf.streaming.core.context import Context
from rapidsmpf.streaming.exchange import RowRouting, drain_into_shuffle, shuffle_output_stream
"""
    result = subprocess.run(
        [sys.executable, "-c", code + ENDINGS[ending]],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, "")


def test_the_environment_sets_the_log_level_where_options_do_not(monkeypatch):
    monkeypatch.setenv("RAPIDSMPF_LOG", "DEBUG")
    assert single.new_communicator(Options()).logger.verbosity_level is LOG_LEVEL.DEBUG
    assert single.new_communicator(Options({"log": "INFO"})).logger.verbosity_level is LOG_LEVEL.INFO
