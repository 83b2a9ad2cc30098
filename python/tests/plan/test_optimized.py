"""A look at an optimised plan: nothing runs, errors keep their types, and nobody looks in another way.

That it does not hold Python's lock shows in ``engine/test_catalog_scans.py``: tables would hang.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from polars.io.plugins import register_io_source

import cudf_polars
from cudf_polars.plan.optimized import look

FLAGS = pl.QueryOptFlags()._pyoptflags


def root_of(plan):
    return type(plan.view_current_node()).__name__


def test_it_gives_what_the_work_gives():
    assert look(pl.LazyFrame({"a": [1]}).filter(pl.col("a") > 0), FLAGS, root_of) == "Filter"
    assert look(pl.LazyFrame({"a": [1]}), FLAGS, lambda plan: None) is None


def test_nothing_runs(tmp_path):
    def read(*_):
        raise AssertionError("it was run")

    source = register_io_source(read, schema={"a": pl.Int64})
    assert look(source.sink_parquet(tmp_path / "out.parquet", lazy=True), FLAGS, root_of) == "Sink"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("error", [KeyError("x"), pl.exceptions.ComputeError("x"), KeyboardInterrupt("x")])
def test_errors_of_the_work_are_raised_as_they_are(error):
    def fail(plan):
        raise error

    with pytest.raises(type(error)) as caught:
        look(pl.LazyFrame({"a": [1]}), FLAGS, fail)
    assert caught.value is error


def test_a_wrong_query_is_polars_to_tell():
    with pytest.raises(pl.exceptions.ColumnNotFoundError):
        look(pl.LazyFrame({"a": [1]}).select("b"), FLAGS, root_of)


def test_nobody_looks_in_another_way():
    for path in Path(cudf_polars.__file__).parent.rglob("*.py"):
        assert not re.search(r"\.visit\(", path.read_text()), path


_THREADS = """
import threading
import polars as pl
from cudf_polars.plan.read import read_plan

part = pl.LazyFrame({"a": [1, 2], "b": [1.5, 2.5]}).map_batches(lambda frame: frame.with_columns(c=1))
part = part.with_columns(pl.col("a").map_elements(lambda x: x, return_dtype=pl.Int64).alias("d"))
query = part.join(part, on="a").group_by("a").agg(pl.col("b").map_batches(lambda s: s * 2), pl.len())

def work():
    for _ in range(40):
        read_plan(query)

threads = [threading.Thread(target=work) for _ in range(6)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print("read")
"""


def test_threads_may_read_one_lazy_frame() -> None:
    """Polars locks a lazy frame with Python's lock held, and takes Python's lock with a lazy frame locked."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _THREADS],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout == "read\n", done.stderr
