"""Sinks by the ranks of one process."""

from __future__ import annotations

from execute import local_transport

from cudf_polars.engine.sinks import SinkTarget
from support.tables import ROWS

__all__ = ["opened_on_ranks", "write_and_commit"]


def opened_on_ranks(nranks, work, target, extension="parquet", **options):
    """Run ``work`` with each rank's sink; ``target`` may depend on the rank."""

    def run(transport):
        where = target(transport.rank) if callable(target) else target
        sink = SinkTarget.open(where, extension, transport, "silent", options)
        return work(sink, transport, options)

    return local_transport.run_ranks(nranks, run)


def write_and_commit(sink, transport, options):
    """Write this rank's share of ``ROWS``."""
    try:
        sink.write(ROWS[transport.rank :: transport.nranks].lazy(), **options)
        return sink.commit(b"")
    except BaseException:
        sink.discard()
        raise
