"""Delta tables written by ranks of one process."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
from execute import local_transport

from cudf_polars.engine.delta_sinks import DeltaPlan, DeltaSink, DeltaWrite, agree_on_delta

__all__ = ["write_by_ranks"]


def write_by_ranks(write: DeltaWrite, parts: Sequence[pl.DataFrame | pl.LazyFrame]) -> None:
    """Let a rank for each of ``parts`` write it, and check that each is told what all ranks tell."""

    def work(transport):
        plan = agree_on_delta(write, transport, op=9)
        assert isinstance(plan, DeltaPlan), plan
        opened = DeltaSink(plan, transport, 10)
        try:
            assert opened.is_seen_by_all()
            opened.write(parts[transport.rank].lazy())
            return opened.commit(b"facts")
        except BaseException:
            opened.discard()
            raise

    assert local_transport.run_ranks(len(parts), work) == [[b"facts"] * len(parts)] * len(parts)
