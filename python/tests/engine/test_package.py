"""The installed package cudf_polars as a whole: what can be imported from it, and how."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import pkgutil
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

import cudf_polars

FOLDER = Path(cudf_polars.__file__).parent


def test_importing_the_package_imports_little():
    code = """
import sys
import cudf_polars
from cudf_polars import FallbackWarning, SPMDEngine, StreamingOptions, allgather_polars_dataframe, reserve_op_id
assert cudf_polars.SPMDEngine is SPMDEngine
unwanted = {"dask", "distributed", "ray", "mpi4py", "pyarrow", "asyncio", "argparse", "difflib"}
loaded = {name.partition(".")[0] for name in sys.modules} & unwanted
assert not loaded, loaded
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize("name", cudf_polars.__all__)
def test_what_is_exported_is_there(name):
    home = cudf_polars._HOMES.get(name, "cudf_polars")
    value = getattr(cudf_polars, name)
    assert value is getattr(importlib.import_module(home), name)
    assert name in dir(cudf_polars)


def test_other_names_are_not_there():
    assert cudf_polars.__version__ == importlib.metadata.version("riverrun")
    with pytest.raises(AttributeError, match="no_such_name"):
        cudf_polars.no_such_name  # noqa: B018
    with pytest.raises(ImportError, match="no_such_name"):
        from cudf_polars import no_such_name  # noqa: F401


def test_both_packages_are_typed():
    for package in ("cudf_polars", "rapidsmpf"):
        spec = importlib.util.find_spec(package)
        assert spec is not None
        assert (Path(str(spec.origin)).parent / "py.typed").is_file()


def test_all_modules_can_be_imported():
    # As whoever makes documentation does. Dask and Ray are there in tests.
    names = [module.name for module in pkgutil.walk_packages([str(FOLDER)], "cudf_polars.")]
    assert "cudf_polars.plan.placeholder" in names
    for name in names:
        importlib.import_module(name)


def test_report_of_what_is_installed():
    done = subprocess.run(
        [sys.executable, "-m", "cudf_polars"], capture_output=True, text=True, timeout=60, check=True
    )
    assert f"  polars {pl.__version__}\n" in done.stdout


def test_outcomes_are_shown_without_their_plan():
    with cudf_polars.SPMDEngine() as engine:
        pl.LazyFrame({"a": [1]}).select(pl.sum("a")).collect(engine=engine)
        assert "physical" not in repr(engine.last_query)
