"""What a query held of a rank is given back when it ends, not when Python looks for cycles."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import polars as pl
import pytest
from execute.local_transport import LocalTransport, run_ranks

from cudf_polars.execute.options import ExecutionOptions
from cudf_polars.execute.run import run_query


@pytest.fixture
def _no_collector() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("_no_collector")
@pytest.mark.parametrize("partitions", [1, 3])
def test_the_transport_is_released(partitions: int) -> None:
    options = ExecutionOptions(broadcast_limit=0, small_limit=0, partitions=partitions)
    transports: list[weakref.ref[LocalTransport]] = []

    def work(transport: LocalTransport) -> None:
        transports.append(weakref.ref(transport))
        rows = pl.LazyFrame({"k": [1, 2, 3, 4], "v": [4, 3, 2, 1]})
        query = rows.join(rows, on="k").group_by("k").agg(pl.sum("v")).sort("v").with_row_index().slice(1, 3)
        run_query(query.with_columns(c=pl.col("v").cum_sum()), transport, options=options)

    run_ranks(2, work)
    assert [ref() for ref in transports] == [None, None]
