"""Every script under examples/ does what its text says, on one rank and on several."""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from support.ranks import find_rrun

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
SECONDS = 120


@pytest.fixture(scope="module")
def sales(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the directory of the examples' data."""
    spec = importlib.util.spec_from_file_location("_data", EXAMPLES / "_data.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    directory: Path = tmp_path_factory.mktemp("examples") / "sales"
    module.sales(directory)
    return directory


def run(name: str, *arguments: object, nranks: int | None = None) -> str:
    """Run one example, under rrun if ``nranks`` is given; return what rank 0 prints, then rank 1, and so on."""
    rrun = find_rrun()  # skips where the package is not installed
    command = [sys.executable, str(EXAMPLES / name), *map(str, arguments)]
    if nranks is not None:
        command = [rrun, "-n", str(nranks), "--tag-output", *command]
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    try:
        out, err = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=30)
        pytest.fail(f"{name} did not end within {SECONDS} s\n{out}\n{err}")
    assert process.returncode == 0, f"{out}\n{err}"
    if nranks is None:
        return out
    tagged = [re.fullmatch(r"\[(\d+)\] (.*)", line) for line in out.splitlines()]
    assert all(tagged), out
    by_rank = sorted(((int(match[1]), match[2]) for match in tagged if match), key=lambda line: line[0])
    return "\n".join(line for _, line in by_rank)


def customers(sales: Path) -> int:
    frame = pl.scan_parquet(sales / "*.parquet").filter(pl.col("amount") > 100)
    return int(frame.select(pl.col("customer_id").n_unique()).collect().item())


def rows(sales: Path) -> int:
    return int(pl.scan_parquet(sales / "*.parquet").select(pl.len()).collect().item())


def test_every_script_has_a_test() -> None:
    tested = set(re.findall(r'run\("(\w+\.py)"', Path(__file__).read_text()))
    assert {path.name for path in EXAMPLES.glob("[!_]*.py")} == tested


def test_readme_shows_the_quickstart() -> None:
    (shown,) = re.findall(r"```python\n(.*?)```", (EXAMPLES.parent / "README.md").read_text(), re.DOTALL)
    script = (EXAMPLES / "quickstart.py").read_text()
    script = script.split('"""\n\n', 1)[1].replace("from _data import sales\n\n", "")
    assert shown == script.replace("sales()", '"sales/*.parquet"')


def quickstart_answer(sales: Path) -> pl.DataFrame:
    return (
        pl.scan_parquet(sales / "*.parquet")
        .filter(pl.col("amount") > 100)
        .group_by("region")
        .agg(pl.col("amount").sum(), customers=pl.col("customer_id").n_unique())
        .sort("region")
        .collect(engine="streaming")
    )


@pytest.mark.parametrize("nranks", [None, 2, 3])
def test_quickstart_prints_the_answer_of_polars(sales: Path, nranks: int | None) -> None:
    out = run("quickstart.py", sales, nranks=nranks)
    assert str(quickstart_answer(sales)) in out
    held = re.findall(r"rank \d of (\d) holds (\d+) of 4 rows", out)
    assert [int(n) for n, _ in held] == [nranks or 1] * (nranks or 1)
    assert sum(int(part) for _, part in held) == 4


@pytest.mark.parametrize("nranks", [None, 4])
def test_group_by_gives_each_customer_to_one_rank(sales: Path, nranks: int | None) -> None:
    parts = re.findall(r"rank \d of \d: (\d+) customers", run("spmd_group_by.py", sales, nranks=nranks))
    assert len(parts) == (nranks or 1)
    assert sum(map(int, parts)) == customers(sales)


def test_an_engine_with_options_reads_every_row_once(sales: Path) -> None:
    parts = re.findall(r"rank \d of 2: (\d+) rows", run("spmd_options.py", sales, nranks=2))
    assert len(parts) == 2
    assert sum(map(int, parts)) == rows(sales)


def test_allgather_gives_all_rows_to_every_rank(sales: Path) -> None:
    found = re.findall(r"rank \d of 2: (\d+) of (\d+) rows", run("spmd_allgather.py", sales, nranks=2))
    assert [int(full) for _, full in found] == [rows(sales)] * 2
    assert sum(int(part) for part, _ in found) == rows(sales)


def test_queries_that_differ_end_with_an_error_on_all_ranks(sales: Path) -> None:
    out = run("spmd_symmetry.py", sales, nranks=2)
    assert set(re.findall(r"rank (\d): QueryMismatchError", out)) == {"0", "1"}


def test_a_communicator_serves_several_engines() -> None:
    out = run("spmd_reuse_communicator.py", nranks=2)
    found = re.findall(r"rank (\d) of 2: (\d) rows, then (\d)", out)
    # The frames are the ranks' own parts; the sum over all of them is one row, on rank 0.
    assert sorted(found) == [("0", "3", "1"), ("1", "3", "0")]


def test_cluster_info_names_every_process() -> None:
    found = re.findall(r"rank (\d): hostname=(\S+), pid=(\d+)", run("spmd_cluster_info.py", nranks=2))
    assert [rank for rank, _, _ in found] == ["0", "1"]
    assert len({pid for _, _, pid in found}) == 2


@pytest.mark.parametrize("nranks", [None, 2, 3])
def test_shuffle_by_hand_brings_each_customer_to_one_partition(sales: Path, nranks: int | None) -> None:
    out = run("shuffle_by_hand.py", sales, nranks=nranks)
    unique = pl.read_parquet(sales / "*.parquet")["customer_id"].n_unique()
    for library in ("polars", "pyarrow", "pandas"):
        found = re.findall(rf"{library}: partition (\d+) has (\d+) rows of (\d+) customers", out)
        assert sorted(int(partition) for partition, _, _ in found) == list(range(8))
        assert sum(int(count) for _, count, _ in found) == rows(sales)
        assert sum(int(count) for _, _, count in found) == unique


def test_dask_engine_prints_the_answer_of_polars(sales: Path) -> None:
    out = run("dask_engine.py", sales)
    assert out.startswith("cluster has 2 workers")
    assert str(quickstart_answer(sales)) in out


def test_dask_dataframes_are_shuffled_and_joined() -> None:
    out = run("dask_shuffle.py")
    found = re.findall(r"partition (\d) has (\d+) orders of (\d+) customers", out)
    assert [number for number, _, _ in found] == ["0", "1", "2", "3"]
    assert sum(int(count) for _, count, _ in found) == 12_000
    assert sum(int(count) for _, _, count in found) == 50
    assert len(re.findall(r"customer \d+ +\d+\.", out)) == 3


@pytest.mark.parametrize("nranks", [None, 2])
def test_a_network_of_actors_gives_the_answer_of_polars(nranks: int | None) -> None:
    found = re.findall(r"rank (\d) of (\d): 100 groups", run("streaming_network.py", nranks=nranks))
    count = nranks or 1
    assert sorted(found) == [(str(rank), str(count)) for rank in range(count)]
