"""Tables of Delta and Iceberg, and files in an object store, as sources: right on one rank and several, no hang.

Planning such a source runs Python code on another of Polars' threads, so whoever holds Python's lock meanwhile waits
for ever; each job here has a time limit.
"""

from __future__ import annotations

import io
import json
import warnings
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from cudf_polars.engine.dask import DaskEngine
from cudf_polars.engine.spmd import SPMDEngine
from cudf_polars.lower import FallbackWarning
from cudf_polars.plan import nodes
from cudf_polars.plan.read import read_plan
from cudf_polars.plan.rebuild import to_lazyframe
from support.dask_cluster import start_dask_cluster
from support.object_store import object_store
from support.ranks import run_ranks
from support.store_queries import cloud_queries
from support.tables import ROWS, check_query, make_delta, make_iceberg, table_queries

pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")

HERE = str(Path(__file__).parents[1])
SECONDS = 60

PRELUDE = """
import json, sys, warnings
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import polars as pl
from cudf_polars.engine.spmd import SPMDEngine, allgather_polars_dataframe
from cudf_polars.lower import FallbackWarning
from cudf_polars.streaming.actor_graph.collectives.common import reserve_op_id
from support.tables import check_query, table_queries

def collect(query):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        part = query.collect(engine=engine)
    with reserve_op_id() as op_id:
        answer = allgather_polars_dataframe(engine=engine, local_df=part, op_id=op_id)
    return part, answer, [str(w.message) for w in caught if issubclass(w.category, FallbackWarning)]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    make_delta(folder)
    make_iceberg(folder / "iceberg")
    return folder


@pytest.fixture(scope="module")
def store():
    with object_store() as store:
        options = store.storage_options
        ROWS.lazy().sink_csv("s3://bucket/rows.csv", storage_options=options)
        ROWS.lazy().sink_parquet("s3://bucket/rows.parquet", storage_options=options)
        yield store


@pytest.fixture(scope="module", params=[1, 2])
def dask_engine(request):
    with start_dask_cluster(request.param) as client, DaskEngine(dask_client=client) as engine:
        yield engine


@pytest.mark.timeout(SECONDS)
def test_tables_on_one_rank(folder):
    with SPMDEngine() as engine:
        for name, query in table_queries(folder).items():
            check_query(name, query.collect(engine=engine), query)


def test_tables_on_ranks(folder):
    run_ranks(
        2,
        PRELUDE
        + """
with SPMDEngine() as engine:
    for name, query in table_queries(Path(sys.argv[2])).items():
        part, answer, said = collect(query)
        if engine.rank == 0:
            check_query(name, answer, query)
        if name.startswith(("renamed", "deleted")):
            assert len(said) == (engine.rank == 0), (name, said)  # once in the job
            assert all("only Polars itself reads this table" in text for text in said), (name, said)
        else:
            assert said == [], (name, said)
        if name in ("plain: rows", "iceberg: rows"):
            assert 0 < part.height < answer.height  # each rank reads its own files
""",
        HERE,
        str(folder),
        timeout=SECONDS,
    ).check()


@pytest.mark.timeout(SECONDS)
def test_tables_on_dask(dask_engine, folder):
    for name, query in table_queries(folder).items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FallbackWarning)
            answer = query.collect(engine=dask_engine)
        check_query(name, answer, query)


def test_frames_beside_a_table(dask_engine, folder):
    names = pl.LazyFrame({"region": ["north", "east"], "name": ["N", "E"]})
    query = pl.scan_delta(str(folder / "plain")).join(names, on="region").group_by("name").len()
    check_query("frames", query.collect(engine=dask_engine), query)


def test_files_that_need_credentials_on_ranks(store):
    pytest.importorskip("obstore")
    run_ranks(
        2,
        PRELUDE
        + """
from support.store_queries import cloud_queries
with SPMDEngine() as engine:
    for name, query in cloud_queries(*json.loads(sys.argv[2])).items():
        _, answer, said = collect(query)
        check_query(name, answer, query)
        assert said == [], said
""",
        HERE,
        json.dumps(store.access),
        timeout=SECONDS,
    ).check()


@pytest.mark.timeout(SECONDS)
def test_files_that_need_credentials_on_dask(dask_engine, store):
    for name, query in cloud_queries(*store.access).items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FallbackWarning)
            answer = query.collect(engine=dask_engine)
        check_query(name, answer, query)


def test_a_plain_table_becomes_the_scan_of_its_files(folder):
    plan = read_plan(pl.scan_delta(str(folder / "plain")).filter(pl.col("region") == "east"))
    (scan,) = (node for node in plan.nodes if not node.children)
    assert isinstance(scan, nodes.Scan)
    assert len(scan.paths) == 2  # of six: the others are of other regions
    assert all("region=east" in path for path in scan.paths)


def test_an_iceberg_table_becomes_the_scan_of_its_files(folder):
    plan = read_plan(table_queries(folder)["iceberg: groups"])
    (scan,) = (node for node in plan.nodes if not node.children)
    assert isinstance(scan, nodes.Scan)
    assert len(scan.paths) == 3


@pytest.mark.parametrize("name", ["deleted", "renamed"])
def test_a_table_that_is_more_than_its_files_is_left_to_polars(folder, name):
    plan = read_plan(table_queries(folder)[f"{name}: groups"])
    leaves = [node for node in plan.nodes if not node.children]
    assert [type(leaf) for leaf in leaves] == [nodes.OpaqueNode]
    assert leaves[0].name == ("scan_iceberg" if name == "renamed" else "scan_delta")


def test_tables_are_found_without_reading_frames(folder):
    from cudf_polars.plan.datasets import has_datasets

    plain = pl.LazyFrame({"region": ["PythonDataset SCAN"]})
    assert not has_datasets(plain)
    assert has_datasets(plain.join(pl.scan_delta(str(folder / "plain")), on="region"))


def test_large_frames_beside_a_table_need_no_serialising(folder):
    large = pl.LazyFrame({"id": range(3_000_000)})
    query = pl.scan_delta(str(folder / "plain")).join(large, on="id").select(pl.len())
    plan = read_plan(query)
    assert isinstance(plan.root, nodes.OpaqueNode)
    assert "22 MiB of data frames" in plan.root.reason
    built = plan.root.build([child.frame.lazy() for child in plan.root.children])
    assert_frame_equal(built.collect(), query.collect())


def test_a_table_with_a_row_index(folder):
    query = pl.scan_delta(str(folder / "plain")).with_row_index("n", 10).filter(pl.col("region") == "south")
    plan = read_plan(query)
    assert not any(isinstance(node, nodes.OpaqueNode) for node in plan.nodes)
    assert_frame_equal(to_lazyframe(plan.root).collect(), query.collect())


def test_hive_keys_that_a_query_does_not_use(tmp_path):
    rows = ROWS.with_columns(half=pl.col("id") // 150)
    rows.lazy().sink_parquet(pl.PartitionBy(tmp_path / "hive", key=["region", "half"]), mkdir=True)
    scan = pl.scan_parquet(tmp_path / "hive", hive_partitioning=True)
    for query in (scan.group_by("half").len(), scan.group_by("region").agg(pl.col("v").sum())):
        plan = read_plan(query)
        assert not any(isinstance(node, nodes.OpaqueNode) for node in plan.nodes)
        check_query("hive", to_lazyframe(plan.root).collect(), query)


def test_a_serialised_table_keeps_its_version(folder):
    import deltalake

    from cudf_polars.plan.datasets import versions_pinned

    query = pl.scan_delta(deltalake.DeltaTable(folder / "plain", version=0)).select(pl.len())
    with versions_pinned(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pinned = query.serialize()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        unpinned = query.serialize()
    assert pl.LazyFrame.deserialize(io.BytesIO(pinned)).collect().item() == 300
    # What Polars does by itself is left alone; when it keeps the version, pinning can go.
    assert pl.LazyFrame.deserialize(io.BytesIO(unpinned)).collect().item() == 600


def test_a_filter_that_leaves_no_file(tmp_path):
    ROWS.lazy().sink_parquet(pl.PartitionBy(tmp_path / "hive", key="region"), mkdir=True)
    scan = pl.scan_parquet(tmp_path / "hive", hive_partitioning=True)
    run_ranks(
        2,
        PRELUDE
        + """
scan = pl.scan_parquet(sys.argv[2], hive_partitioning=True)
none = scan.filter(pl.col("region") == "nowhere")
with SPMDEngine() as engine:
    for query in (
        none,
        none.group_by("region").agg(pl.col("v").sum()),
        none.select(pl.len()),
        none.select(pl.col("v").sum(), n=pl.len()),
        scan.join(none, on="id", how="left").select(pl.col("v_right").count(), n=pl.len()),
        pl.concat([scan, none]).group_by("region").len(),
    ):
        _, answer, said = collect(query)
        check_query(str(query), answer, query)
        assert said == [], said
""",
        HERE,
        str(tmp_path / "hive"),
        timeout=SECONDS,
    ).check()
    plan = read_plan(scan.filter(pl.col("region") == "nowhere").group_by("region").len())
    assert not any(isinstance(node, nodes.OpaqueNode) for node in plan.nodes)
