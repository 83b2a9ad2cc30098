"""The failure of another rank, while Polars reads what that rank was to send: it stays what it is."""

from __future__ import annotations

import threading

import polars as pl
import pytest
from rapidsmpf.config import Options
from rapidsmpf.error import RankFailedError
from rapidsmpf.shuffler import Shuffler
from rapidsmpf.streaming.core.context import Context
from rapidsmpf.streaming.exchange import RowRouting, drain_into_shuffle, shuffle_output_stream

from cudf_polars.execute.errors import failure_of_rank
from support.cluster import on_ranks

FRAME = pl.DataFrame({"k": range(100)})


@pytest.mark.parametrize("reader", ["query", "exchange"])
def test_failure_behind_a_stream(reader):
    pulling = threading.Event()

    def read(comm, context, stream):
        frame = pl.scan_arrow_c_stream(stream)
        if reader == "query":
            frame.collect(engine="streaming")
            return
        batches = frame.collect_batches(engine="streaming", lazy=True)
        drain_into_shuffle(batches, RowRouting.by_hash(["k"]), Shuffler(comm, 8, 2, context.br()), context)

    def work(comm):
        with Context.from_options(comm, Options()) as context:
            if comm.rank == 1:
                pulling.wait()
                comm.abort("as planned")
                return None
            shuffler = Shuffler(comm, 7, 2, context.br())
            drained = drain_into_shuffle(FRAME, RowRouting.by_hash(["k"]), shuffler, context)
            stream = shuffle_output_stream(shuffler, drained, context)
            pulling.set()
            with pytest.raises((pl.exceptions.ComputeError, RuntimeError)) as caught:
                read(comm, context, stream)
            return failure_of_rank(caught.value)

    failure, _ = on_ranks(2, work)
    assert isinstance(failure, RankFailedError)
    assert (failure.rank, failure.reason) == (1, "as planned")


def test_other_errors_are_their_own():
    assert failure_of_rank(pl.exceptions.ComputeError("rank 1 of a window failed")) is None
    assert failure_of_rank(ValueError("rank 1 failed: no")) is None
    host = RankFailedError(2, "node7", 4711, "killed by signal 9")
    wrapped = failure_of_rank(pl.exceptions.ComputeError(f"got external error: {host}"))
    assert wrapped is not None
    assert str(wrapped) == str(host)
    assert (wrapped.rank, wrapped.host, wrapped.pid) == (2, "node7", 4711)
    assert failure_of_rank(host) is host
