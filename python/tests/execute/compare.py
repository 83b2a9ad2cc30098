"""Runs a query on in-process ranks and compares the answer with Polars' own."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
from execute.local_transport import run_ranks
from polars.testing import assert_frame_equal

from cudf_polars.execute.options import ExecutionOptions
from cudf_polars.execute.run import QueryOutcome, run_query

TINY = ExecutionOptions.tiny("silent")
"""Every exchange happens, on the smallest data."""
PARTITIONED = replace(TINY, partitions=3, memory=16 << 10, partition_limit=1 << 30)
"""Besides, each rank works on three partitions, one after the other, and where it can on chunks of 1 KiB."""
ORDINARY = ExecutionOptions(fallback_mode="silent")
"""As users run it: small sides are copied, small results gathered."""


def run(
    query: pl.LazyFrame, nranks: int, options: ExecutionOptions = TINY
) -> tuple[pl.DataFrame, list[QueryOutcome]]:
    """Return the answer, put together in rank order, and the ranks' outcomes."""
    outcomes = run_ranks(nranks, lambda transport: run_query(query, transport, options=options))
    schemas = {tuple(outcome.frame.schema.items()) for outcome in outcomes}
    assert len(schemas) == 1, schemas
    return pl.concat([outcome.frame for outcome in outcomes]), outcomes


def assert_like_polars(
    query: pl.LazyFrame, nranks: int, options: ExecutionOptions = TINY, *, ordered: bool = True
) -> list[QueryOutcome]:
    """Check schema, rows and, if Polars promises it, their order."""
    expected = query.collect(engine="streaming")
    actual, outcomes = run(query, nranks, options)
    compare_answers(actual, expected, ordered=ordered)
    return outcomes


def compare_answers(actual: pl.DataFrame, expected: pl.DataFrame, *, ordered: bool) -> None:
    """Check schema, rows and, if Polars promises it, their order."""
    assert actual.schema == expected.schema, (actual.schema, expected.schema)
    if not ordered:
        actual, expected = _canonical(actual), _canonical(expected)
    assert_frame_equal(actual, expected, rel_tol=1e-9, abs_tol=1e-12)


def _canonical(frame: pl.DataFrame) -> pl.DataFrame:
    """Sort rows by their text, which every type has; floats are rounded so that sums in any order compare."""
    if not frame.width:
        return frame
    keys = [
        (pl.col(name).round_sig_figs(9) if dtype.is_float() else pl.col(name).alias(name))
        for name, dtype in frame.schema.items()
    ]
    text = [repr(row) for row in frame.select(keys).iter_rows()]
    order = sorted(range(frame.height), key=text.__getitem__)
    return frame[order]
