"""What the tests of Dask's and of Ray's engine share: a table, a query of it, and what explain says of two ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

__all__ = ["ANSWER", "FRAME", "ROWS", "check_explain_of_two_ranks", "totals"]

ROWS = 1000
FRAME = pl.DataFrame(
    {
        "k": [i % 7 for i in range(ROWS)],
        "v": [float(i) for i in range(ROWS)],
        "s": [f"text {i % 31}" if i % 5 else None for i in range(ROWS)],
    }
)


def totals(lf: pl.LazyFrame) -> pl.LazyFrame:
    """Return a query that has to exchange rows."""
    return lf.group_by("k").agg(pl.col("v").sum(), pl.col("s").n_unique()).sort("k")


ANSWER = totals(FRAME.lazy()).collect()


def check_explain_of_two_ranks(engine: Any, table: Path, folder: Path) -> None:
    """Check that a query is explained before it runs, and then with the least, mean and most rows of both ranks.

    ``table`` is a Parquet file with the rows of ``FRAME``, half of its row groups for each rank.
    """

    def result() -> str:
        text = engine.last_query.explain()
        return next(line for line in text.splitlines() if line.startswith("RESULT"))

    query = pl.scan_parquet(table).filter(pl.col("k") > 0)
    before = engine.explain(totals(pl.scan_parquet(table)))
    assert before.startswith("On 2 ranks, by Polars"), before
    assert "GATHER to rank 0" in before, before
    assert engine.last_query is None or engine.last_query.explain() != before
    assert f"about {FRAME.height} rows" in engine.explain(FRAME.lazy().select("k"))
    assert engine.explain(query, physical=False) == query.explain()
    query.collect(engine=engine)
    halves = [FRAME[:500].filter(pl.col("k") > 0).height, FRAME[500:].filter(pl.col("k") > 0).height]
    least, most = sorted(halves)
    rows = f"; a rank {least} / {sum(halves) / 2:.0f} / {most} rows, "
    assert rows in result()
    totals(pl.scan_parquet(table)).collect(engine=engine)
    assert "GATHER" in engine.last_query.explain()
    query.sink_parquet(folder / "out", engine=engine)
    assert rows in result()
    list(totals(pl.scan_parquet(table)).collect_batches(engine=engine))
    assert "GATHER" in engine.last_query.explain()
