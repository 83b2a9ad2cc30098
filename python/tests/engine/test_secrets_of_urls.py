"""Users and queries of URLs, which may be secret, are in no plan, error, warning or log that an engine shows."""

from __future__ import annotations

import functools
import json
import logging
import pickle
import traceback
import warnings
from pathlib import Path

import polars as pl
import pytest

from cudf_polars.engine.dask import DaskEngine
from cudf_polars.engine.spmd import SPMDEngine
from cudf_polars.execute.errors import hide_secrets
from cudf_polars.execute.explain import explain_query
from cudf_polars.plan.cloud import without_secrets
from cudf_polars.plan.fingerprint import dump, fingerprint
from cudf_polars.plan.read import read_plan
from support.dask_cluster import start_dask_cluster
from support.ranks import run_ranks
from support.tables import ROWS
from support.web_server import web_server

SECONDS = 60
SECRETS = ["top-secret", "c2lnbmVk", "another%20one"]
SCHEMA = {"id": pl.Int64(), "region": pl.String(), "v": pl.Float64()}


@pytest.fixture(scope="module")
def urls(tmp_path_factory):
    """Return a function from a file's name to its URL."""
    folder = tmp_path_factory.mktemp("files")
    for kind in ("parquet", "csv", "ndjson", "ipc"):
        getattr(ROWS, f"write_{kind}")(folder / f"rows.{kind}")
    files = {f"/{path.name}": path.read_bytes() for path in folder.iterdir()}
    with web_server(files, query="sig=c2lnbmVk") as address:
        base = f"http://me:top-secret@{address}"
        yield lambda name: f"{base}/{name}?sig=c2lnbmVk&more=another%20one"


def scans(urls, name):
    """Return scans of a file of each kind."""
    given = {"schema": SCHEMA}
    return {
        "parquet": pl.scan_parquet(urls(f"{name}.parquet"), **given),
        "csv": pl.scan_csv(urls(f"{name}.csv"), **given),
        "ndjson": pl.scan_ndjson(urls(f"{name}.ndjson"), **given),
        "ipc": pl.scan_ipc(urls(f"{name}.ipc")),
    }


def check(text):
    assert [secret for secret in SECRETS if secret in text] == [], text


def test_texts():
    url = "https://me:top-secret@host:1/a/b.csv?sig=c2lnbmVk&more=another%20one"
    assert without_secrets(f"cannot read {url}.") == "cannot read https://host:1/a/b.csv?..."
    assert without_secrets(f"(path: '{url}') and more?") == "(path: 'https://host:1/a/b.csv?...') and more?"
    of_store = "object-store error: at location a.csv?sig=c2lnbmVk not found"
    assert without_secrets(of_store) == "object-store error: at location a.csv?... not found"
    for text in ("what?a=1 is me@host", "s3://bucket/a@b.csv was?", "is it x?"):
        assert without_secrets(text) == text


def test_errors_keep_what_they_are():
    url = "http://me:top-secret@host/a"
    error = pl.exceptions.ComputeError(f"at {url}?sig=c2lnbmVk")
    error.__cause__ = FileNotFoundError(2, "no file", url)
    error.__context__ = KeyError(url, 3)
    hide_secrets(error)
    assert str(error) == "at http://host/a?..."
    assert str(error.__cause__) == "[Errno 2] no file: 'http://host/a'"
    assert error.__context__.args == ("http://host/a", 3)


@pytest.mark.timeout(SECONDS)
def test_plans(urls):
    for kind, query in scans(urls, "rows").items():
        if kind == "ipc":
            continue  # which is read for its columns
        plan = read_plan(query)
        shown = [dump(plan), repr(plan.root), explain_query(query, 2), repr(fingerprint(plan))]
        check("\n".join(shown))


@pytest.mark.timeout(SECONDS)
@pytest.mark.parametrize("name", ["rows", "missing"])
def test_one_rank(name, urls, caplog):
    caplog.set_level(logging.DEBUG)
    with SPMDEngine() as engine:
        for kind, query in scans(urls, name).items():
            if name == "rows":
                assert query.collect(engine=engine).height == ROWS.height, kind
                check(repr(engine.last_query))
                continue
            for call in (query.collect, functools.partial(query.sink_csv, "none.csv")):
                with pytest.raises((OSError, pl.exceptions.PolarsError)) as raised:
                    call(engine=engine)
                check("".join(traceback.format_exception(raised.value)))
    check(caplog.text)


SCRIPT = """
import json, sys, traceback, warnings
sys.path.insert(0, sys.argv[1])
import polars as pl
from cudf_polars.engine.spmd import SPMDEngine

warnings.simplefilter("always")
schema = {"id": pl.Int64(), "region": pl.String(), "v": pl.Float64()}
with SPMDEngine() as engine:
    for kind, url, missing in json.loads(sys.argv[2]):
        scan = getattr(pl, f"scan_{kind}")
        given = {} if kind == "ipc" else {"schema": schema}
        total = scan(url, **given).select(pl.len()).collect(engine=engine)
        print(kind, total.height and total.item(), repr(engine.last_query))
        # One rank fails, and the other hears of it.
        wrong = missing if engine.rank == 1 else url
        for path in (missing, wrong):
            try:
                scan(path, **given).collect(engine=engine)
            except Exception:
                traceback.print_exc()
            else:
                raise AssertionError("no error")
"""


@pytest.mark.timeout(SECONDS)
def test_two_ranks(urls):
    kinds = ["parquet", "csv", "ndjson", "ipc"]
    calls = [(kind, urls(f"rows.{kind}"), urls(f"missing.{kind}")) for kind in kinds]
    here = str(Path(__file__).parents[1])
    job = run_ranks(2, SCRIPT, here, json.dumps(calls), timeout=SECONDS).check()
    check(job.stdout + job.stderr)
    assert "Error" in job.stdout + job.stderr


def names_of_tasks(dask_scheduler):
    return [*dask_scheduler.tasks, *dask_scheduler.task_prefixes]


@pytest.mark.timeout(SECONDS)
def test_dask(urls, caplog, capfd):
    caplog.set_level(logging.DEBUG)
    with start_dask_cluster() as client, DaskEngine(dask_client=client) as engine, warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("always", category=UserWarning)
        for kind, query in scans(urls, "rows").items():
            assert query.collect(engine=engine).height == ROWS.height, kind
            check(repr(engine.last_query))
        for query in scans(urls, "missing").values():
            with pytest.raises((OSError, pl.exceptions.PolarsError)) as raised:
                query.collect(engine=engine)
            check("".join(traceback.format_exception(raised.value)))
            assert pickle.loads(pickle.dumps(raised.value)).args == raised.value.args
        logs = [client.get_scheduler_logs(), client.get_worker_logs(), client.get_events()]
        check(repr(logs))
        check(
            repr(
                client.run_on_scheduler(
                    lambda dask_scheduler: [*dask_scheduler.tasks, *dask_scheduler.task_prefixes]
                )
            )
        )
    check(caplog.text + "".join(capfd.readouterr()))
