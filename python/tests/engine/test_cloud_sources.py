"""Files of object stores as sources: split over the ranks, and no secret is shown anywhere."""

from __future__ import annotations

import io
import json
import pickle
import warnings
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from execute.compare import ORDINARY, assert_like_polars

from cudf_polars.engine.dask import DaskEngine
from cudf_polars.execute.explain import explain_query
from cudf_polars.lower import FallbackWarning
from cudf_polars.plan.cloud import access_of_options, shown_path
from cudf_polars.plan.fingerprint import dump
from cudf_polars.plan.read import read_plan
from cudf_polars.plan.rebuild import to_lazyframe
from support.dask_cluster import start_dask_cluster
from support.object_store import object_store
from support.ranks import run_ranks
from support.store_queries import STORE_ROWS, cloud_queries, parquet_queries, put_tables
from support.tables import check_query
from support.web_server import web_server

pytest.importorskip("obstore")
pytest.importorskip("moto")

HERE = str(Path(__file__).parents[1])
SECONDS = 120


@pytest.fixture(scope="module")
def s3():
    from support.moto_store import moto_store

    with moto_store() as store:
        put_tables(store.storage_options)
        yield store


def test_parquet_on_two_ranks(s3):
    run_ranks(
        2,
        """
import json, sys, warnings
sys.path.insert(0, sys.argv[1])
import polars as pl
from cudf_polars.engine.spmd import SPMDEngine, allgather_polars_dataframe
from cudf_polars.streaming.actor_graph.collectives.common import reserve_op_id
from support.store_queries import parquet_queries
from support.tables import check_query

warnings.simplefilter("error")
with SPMDEngine() as engine:
    for name, (query, ordered) in parquet_queries(json.loads(sys.argv[2])).items():
        part = query.collect(engine=engine)
        with reserve_op_id() as op_id:
            answer = allgather_polars_dataframe(engine=engine, local_df=part, op_id=op_id)
        if name in ("one file", "files"):
            assert 0.3 < part.height / answer.height < 0.7, (name, part.height, answer.height)
        if engine.rank == 0:
            check_query(name, answer, query, ordered=ordered)
""",
        HERE,
        json.dumps(s3.storage_options),
        timeout=SECONDS,
    ).check()


@pytest.mark.timeout(SECONDS)
def test_files_of_a_web_server_are_split_over_the_ranks() -> None:
    """Footers of ``http`` URLs are read as those of stores: without them, one rank would read all."""
    file = io.BytesIO()
    STORE_ROWS.write_parquet(file, row_group_size=300)
    options = replace(ORDINARY, read_everywhere_limit=0, fallback_mode="raise")
    with web_server({"/one.parquet": file.getvalue()}) as address:
        rows = pl.scan_parquet(f"http://{address}/one.parquet").select("id", "v")
        outcomes = assert_like_polars(rows, 3, options)
    assert [outcome.frame.height for outcome in outcomes] == [300, 300, 300]


@pytest.mark.timeout(SECONDS)
def test_sorted_files_are_split_by_values(s3) -> None:
    """The footers that were read to split the files tell their order, too."""
    given = {"storage_options": s3.storage_options}
    facts = pl.scan_parquet("s3://bucket/many/*.parquet", **given).with_columns(even=pl.col("id") % 2 == 0)
    other = pl.scan_parquet("s3://bucket/many/*.parquet", **given).filter(pl.col("region") != "east")
    joined = facts.join(other.select("id", "region"), on="id").group_by("id").agg(pl.col("v").n_unique())
    options = replace(ORDINARY, read_everywhere_limit=0, broadcast_limit=0, fallback_mode="raise")
    for outcome in assert_like_polars(joined, 2, options, ordered=False):
        text = outcome.explain()
        assert text.count("by ranges of id") == 2
        assert "SHUFFLE" not in text


@pytest.mark.timeout(SECONDS)
@pytest.mark.parametrize("nranks", [2, 3])
@pytest.mark.parametrize("kind", ["ndjson", "ipc"])
def test_files_that_the_views_do_not_show(s3, kind: str, nranks: int) -> None:
    given, n = {"storage_options": s3.storage_options}, pl.col("n")
    paths = [f"s3://bucket/hidden/{kind}-{part}.{kind}" for part in range(2)]
    rows = pl.DataFrame({"n": range(300), "t": [f'a "{i}"\n' if i % 7 else None for i in range(300)]})
    for path, part in zip(paths, (rows[:180], rows[180:]), strict=True):
        getattr(part.lazy(), f"sink_{kind}")(path, **given)
    scan = getattr(pl, f"scan_{kind}")
    one, both = scan(paths[0], **given), scan(paths, **given)
    queries = [
        one,
        both,
        one.filter(n % 3 == 0).select("t"),
        both.group_by(n % 5).agg(pl.col("t").count()).sort("n"),
        scan(paths, row_index_name="i", row_index_offset=2, **given).filter(n > 170).select("i", "n"),
        both.tail(100),
        one.select(pl.len()),
        scan(paths, include_file_paths="p", **given).group_by("p").len().sort("p"),
    ]
    if kind == "ndjson":
        schema = {"n": pl.Float64(), "t": pl.String()}
        queries += [
            scan(paths, schema=schema, **given),
            scan(paths[0], schema_overrides={"n": pl.Float64()}, ignore_errors=True, **given),
        ]
    for place, query in enumerate(queries):
        outcomes = assert_like_polars(query, nranks, replace(ORDINARY, fallback_mode="raise"))
        assert s3.storage_options["aws_secret_access_key"] not in dump(read_plan(query))
        assert place > 0 or min(outcome.frame.height for outcome in outcomes) > 0


@pytest.mark.timeout(SECONDS)
def test_parquet_on_dask(s3):
    with start_dask_cluster(2) as client, DaskEngine(dask_client=client) as engine:
        queries = parquet_queries(s3.storage_options)
        for name in ("one file", "groups", "hive filter", "tail"):
            query, ordered = queries[name]
            with warnings.catch_warnings():
                warnings.simplefilter("error", FallbackWarning)
                answer = query.collect(engine=engine)
            check_query(name, answer, query, ordered=ordered)


@pytest.mark.timeout(SECONDS)
def test_no_secret_is_shown():
    with object_store() as store:
        STORE_ROWS.lazy().sink_csv("s3://bucket/rows.csv", storage_options=store.storage_options)
        STORE_ROWS.lazy().sink_parquet("s3://bucket/rows.parquet", storage_options=store.storage_options)
        for name, query in cloud_queries(*store.access).items():
            plan = read_plan(query)
            shown = "\n".join([dump(plan), repr(plan.root), explain_query(query, 2)])
            assert store.secret not in shown, name
            assert store.key not in shown, name
            check_query(name, to_lazyframe(plan.root).collect(), query)
        wrong = {**store.storage_options, "aws_access_key_id": "another"}
        with pytest.raises((pl.exceptions.PolarsError, OSError)) as raised:
            pl.scan_parquet("s3://bucket/rows.parquet", storage_options=wrong).select(pl.len()).collect()
        assert store.secret not in str(raised.value)


@pytest.mark.timeout(SECONDS)
def test_a_provider_is_one_object_of_a_process_and_is_asked_once(tmp_path):
    with object_store() as store:
        STORE_ROWS.lazy().sink_parquet("s3://bucket/rows.parquet", storage_options=store.storage_options)
        asked, options = tmp_path / "asked", store.storage_options

        def provider():
            with asked.open("a") as file:
                file.write(".")
            return {key: options[key] for key in ("aws_access_key_id", "aws_secret_access_key")}, None

        path = "s3://bucket/rows.parquet"
        query = pl.scan_parquet(path, storage_options=store.place, credential_provider=provider)
        (scan,) = read_plan(query).nodes
        assert dict(scan.cloud.credentials())["aws_secret_access_key"] == store.secret
        before = asked.read_text()
        again = pickle.loads(pickle.dumps(scan))
        assert again.cloud == scan.cloud
        for _ in range(3):
            again.cloud.credentials()
            assert to_lazyframe(again).collect().height == STORE_ROWS.height
        assert asked.read_text() == before


def provider_of_a_name():
    return {"aws_access_key_id": "first", "aws_secret_access_key": "secret"}, None


def test_a_provider_that_is_defined_again(monkeypatch):
    """In a notebook the new one has the old one's name, by which both are pickled."""

    def says():
        access = access_of_options("s3://bucket/rows", {"credential_provider": provider_of_a_name})
        return [dict(access.credentials())["aws_access_key_id"] for _ in range(2)]

    assert says() == ["first", "first"]

    def other():
        return {"aws_access_key_id": "second", "aws_secret_access_key": "secret"}, None

    other.__qualname__ = other.__name__ = "provider_of_a_name"
    monkeypatch.setitem(globals(), "provider_of_a_name", other)
    assert says() == ["second", "second"]


def test_urls_with_secrets():
    assert shown_path("https://me:pass@host/a/b.parquet?sig=1") == "https://host/a/b.parquet?..."
    assert shown_path("s3://bucket/a@b.parquet") == "s3://bucket/a@b.parquet"
    assert shown_path("/a@b?c") == "/a@b?c"
