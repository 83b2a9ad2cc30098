"""Queries of clusters that the client gives up while a function of the user's, which nothing can stop, holds a rank."""

from __future__ import annotations

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import polars as pl
import pytest

SECONDS = 60
"""Guards against hangs only."""


def dask_engine():
    from cudf_polars.engine.dask import DaskEngine

    return DaskEngine(n_workers=2)


def ray_engine():
    pytest.importorskip("ray")
    from cudf_polars.engine.ray import RayEngine

    return RayEngine(num_ranks=2, ray_init_options={"include_dashboard": False, "log_to_driver": False})


def total(engine):
    return pl.LazyFrame({"v": range(100)}).select(pl.sum("v")).collect(engine=engine).item()


class HeldRank:
    """A query whose function says that it runs, and then waits for this process."""

    def __init__(self, folder):
        self._here, self._go = (folder / name for name in ("here", "go"))
        for path in (self._here, self._go):
            os.mkfifo(path)
        here, go = str(self._here), str(self._go)

        def hold_the_rank(column):
            with open(here, "wb"), open(go, "rb") as gate:
                gate.read()
            return column

        self.query = pl.LazyFrame({"v": range(100)}).select(
            pl.col("v").map_batches(hold_the_rank, return_dtype=pl.Int64, is_elementwise=True).sum()
        )

    def wait(self):
        """Return when the function runs on some rank."""
        self._here.open("rb").close()

    def release(self):
        """Let it end where it runs."""
        # Whoever has not come so far yet must not wait for a reader, either.
        os.close(os.open(self._here, os.O_RDWR))
        os.close(os.open(self._go, os.O_RDWR))


def wait_until_free(engine, held):
    deadline = time.monotonic() + SECONDS
    while True:
        held.release()
        try:
            assert total(engine) == 4950
            return
        except RuntimeError:
            assert time.monotonic() < deadline


@pytest.mark.parametrize("make", [dask_engine, ray_engine])
def test_what_holds_a_rank_is_named_and_ends_with_the_engine(make, tmp_path):
    third = HeldRank(new_folder(tmp_path, "3"))
    first, second = HeldRank(new_folder(tmp_path, "1")), HeldRank(new_folder(tmp_path, "2"))
    main = threading.main_thread().ident

    def interrupt():
        first.wait()
        signal.pthread_kill(main, signal.SIGINT)

    with make() as engine, ThreadPoolExecutor(1) as pool:
        done = pool.submit(interrupt)
        with pytest.raises(KeyboardInterrupt):
            first.query.collect(engine=engine)
        done.result(SECONDS)
        named = (
            r"rank [01] \(process \d+ on .*\) is not free: it is held by query \d+, collected at .*test_inter"
        )
        with pytest.raises(RuntimeError, match=named) as caught:
            total(engine)
        assert "hold_the_rank" in str(caught.value)
        assert any("worker" in note or "actor" in note for note in caught.value.__notes__)
        wait_until_free(engine, first)

        cancelled = third.query.collect(engine=engine, background=True)
        third.wait()
        cancelled.cancel()
        with pytest.raises(RuntimeError, match="was cancelled"):
            cancelled.fetch_blocking()
        wait_until_free(engine, third)

        # Another thread than that which has made the engine ends it, and does not wait for the function.
        def shut_down():
            second.wait()
            engine.shutdown()

        ended = pool.submit(shut_down)
        with pytest.raises(RuntimeError, match="was shut down, by another thread"):
            second.query.collect(engine=engine)
        ended.result(SECONDS)
        with pytest.raises(RuntimeError, match="shutdown"):
            total(engine)


def new_folder(folder, name):
    path = folder / name
    path.mkdir()
    return path
