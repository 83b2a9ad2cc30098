"""Queries that were once answered wrongly, on real ranks, on Dask and on Ray: each in one job for all of them."""

from __future__ import annotations

import warnings
from pathlib import Path

import polars as pl
import pytest
import ray
from execute.compare import compare_answers

from cudf_polars.engine.dask import DaskEngine
from cudf_polars.engine.options import StreamingOptions
from cudf_polars.engine.ray import RayEngine
from support.ranks import run_ranks
from support.wrong_answers import ORDERED, frames, from_files, queries

OPTIONS = StreamingOptions(fallback_mode="silent", broadcast_limit=1)

RANKS = """
import sys, warnings
sys.path.insert(0, sys.argv[2])
warnings.simplefilter("ignore")
from pathlib import Path
import polars as pl
from execute.compare import compare_answers
from support.wrong_answers import ORDERED, frames, queries
from cudf_polars.engine.options import StreamingOptions
from cudf_polars.engine.spmd import SPMDEngine, allgather_polars_dataframe
from cudf_polars.streaming.actor_graph.collectives.common import reserve_op_id

whole = [frame.lazy() for frame in frames()]
files = [pl.scan_parquet(Path(sys.argv[1]) / f"{name}.parquet") for name in ("table", "small")]
failed = []
with SPMDEngine.from_options(StreamingOptions(fallback_mode="silent", broadcast_limit=1)) as engine:
    def part(frame):
        low, high = (frame.height * r // engine.nranks for r in (engine.rank, engine.rank + 1))
        return frame.slice(low, high - low).lazy()
    mine = [part(frame) for frame in frames()]
    for name, make in queries().items():
        for source, ours, theirs in (("files", files, files), ("frames", mine, whole)):
            local = make(*ours).collect(engine=engine)
            with reserve_op_id() as op_id:
                answer = allgather_polars_dataframe(engine=engine, local_df=local, op_id=op_id)
            try:
                compare_answers(answer, make(*theirs).collect(engine="streaming"), ordered=name in ORDERED)
            except AssertionError as error:
                failed.append(f"{name} over {source}: {error}")
if engine.nranks and failed:
    raise SystemExit("\\n".join(failed))
"""


@pytest.mark.parametrize("nranks", [2, 3])
def test_ranks(nranks: int, tmp_path: Path) -> None:
    from_files(tmp_path)
    run_ranks(nranks, RANKS, str(tmp_path), str(Path(__file__).parents[1]), timeout=240).check()


def _wrong_on(engine: pl.Engine, folder: Path) -> list[str]:
    failed = []
    for tables in (from_files(folder), tuple(frame.lazy() for frame in frames())):
        for name, make in queries().items():
            answer = make(*tables).collect(engine=engine)
            try:
                compare_answers(answer, make(*tables).collect(engine="streaming"), ordered=name in ORDERED)
            except AssertionError as error:
                failed.append(f"{name}: {error}")
    return failed


@pytest.mark.filterwarnings("ignore")
def test_dask(tmp_path: Path) -> None:
    with DaskEngine.from_options(OPTIONS, n_workers=2) as engine:
        assert _wrong_on(engine, tmp_path) == []


@pytest.mark.filterwarnings("ignore")
def test_ray(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Ray about itself
        ray.init(num_cpus=4, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    try:
        with RayEngine.from_options(OPTIONS, num_ranks=2) as engine:
            assert _wrong_on(engine, tmp_path) == []
    finally:
        ray.shutdown()
