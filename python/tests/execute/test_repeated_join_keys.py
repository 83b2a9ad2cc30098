"""Joins that have a key twice on one side, below other filters, over files of every format."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import polars as pl
import pytest
from differential.devices import open_device
from execute.compare import PARTITIONED, TINY, compare_answers, run
from execute.local_transport import run_ranks

from cudf_polars.execute.options import ExecutionOptions
from cudf_polars.execute.run import run_query

ROWS = pl.DataFrame(
    {"i": [9, 1, None, 3, 4, 5] * 9, "j": [0, 1, 2, None, 4, 6] * 9, "k": [n % 5 for n in range(54)]}
)
SCANS: Mapping[str, Callable[[Path], pl.LazyFrame]] = {
    "parquet": pl.scan_parquet,
    "ipc": pl.scan_ipc,
    "csv": pl.scan_csv,
    "ndjson": pl.scan_ndjson,
}
KEYS = {"right": (["j", "i"], ["j", "j"]), "left": (["j", "j"], ["j", "i"])}
USES: Mapping[str, Callable[[pl.LazyFrame], pl.LazyFrame]] = {
    "rows": lambda lf: lf,
    "filter": lambda lf: lf.filter(pl.col("k") > 1),
    "drop_nulls": lambda lf: lf.drop_nulls("j"),
    "joined": lambda lf: lf.drop_nulls("j").join(
        lf.drop_nulls("k").unique("k").select("k"), on="k", how="semi"
    ),
}


@pytest.mark.parametrize("use", list(USES))
@pytest.mark.parametrize("keys", list(KEYS))
@pytest.mark.parametrize("how", ["semi", "anti", "inner", "left", "right", "full"])
@pytest.mark.parametrize("kind", list(SCANS))
def test_repeated_keys(tmp_path: Path, kind: str, how: str, keys: str, use: str) -> None:
    if (kind, how, keys) == ("ipc", "right", "right"):
        pytest.skip(
            "Polars gives other values of the second key when it does not push filters down, as we cannot here"
        )
    path = tmp_path / f"rows.{kind}"
    getattr(ROWS, f"write_{kind}")(path)
    left_on, right_on = KEYS[keys]

    def query(rows: pl.LazyFrame) -> pl.LazyFrame:
        return USES[use](rows.join(rows, left_on=left_on, right_on=right_on, how=how))

    try:
        expected = query(SCANS[kind](path)).collect()
    except pl.exceptions.PanicException:
        pytest.skip("Polars panics when it plans a filter of a right join by a key twice")
    for options in (TINY, PARTITIONED, ExecutionOptions()):
        compare_answers(run(query(SCANS[kind](path)), 2, options)[0], expected, ordered=False)


def test_coalesced_keys_on_a_gpu(tmp_path: Path) -> None:
    """A column that is a key twice has the values of the first, as in Polars' streaming engine."""
    ROWS.write_parquet(tmp_path / "rows.parquet")
    rows = pl.scan_parquet(tmp_path / "rows.parquet")
    query = rows.filter(pl.col("k") > 3).join(
        rows, left_on=["k", "k"], right_on=["i", "j"], how="full", coalesce=True
    )
    device = open_device("emulated")
    try:
        (answer,) = run_ranks(1, lambda t: run_query(query, t, device=device).frame)
    finally:
        device.close()
    compare_answers(answer, query.collect(engine="streaming"), ordered=False)
