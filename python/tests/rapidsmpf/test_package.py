"""The installed package as a whole."""

from __future__ import annotations

import importlib
import importlib.metadata
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import rapidsmpf
from rapidsmpf.communicator import COMMUNICATORS

SOURCES = Path(rapidsmpf.__file__).parent
STUBS = sorted(SOURCES.rglob("*.pyi"))


def test_version_is_that_of_the_distribution():
    assert rapidsmpf.__version__ == importlib.metadata.version("riverrun")


def test_cmake_prefix_has_the_package_files():
    prefix = subprocess.run(
        [sys.executable, "-m", "rapidsmpf", "--cmake-prefix"], capture_output=True, text=True, check=True
    ).stdout.strip()
    assert (Path(prefix) / "lib/cmake/rapidsmpf/rapidsmpf-config.cmake").is_file()
    assert (Path(prefix) / "include/rapidsmpf/coll/shuffler.hpp").is_file()


def run(*command, **environment):
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_report_of_what_is_installed():
    text = run(sys.executable, "-m", "rapidsmpf", RAPIDSMPF_NUM_STREAMS="3", RAPIDSMPF_DEVICE="cpu")
    version = importlib.metadata.version("riverrun")
    for line in (
        rf"riverrun {re.escape(version)} in /",
        rf"  polars {re.escape(importlib.metadata.version('polars'))}$",
        r"  /.*/librapidsmpf\.so$",
        r"  /.*/libucxx\.so",
        r"compute device: cpu, .* for this process$",
        r"operators over libcudf: (built, and not used: the compute device is the CPU|not built|.*not installed)",
        rf"communicators: {', '.join(COMMUNICATORS)}$",
        r"  RAPIDSMPF_NUM_STREAMS=3$",
    ):
        assert re.search(f"^{line}", text, re.MULTILINE), (line, text)
    # What is wrong with the environment is part of the report.
    assert "did you mean num_streams" in run(sys.executable, "-m", "rapidsmpf", RAPIDSMPF_NUM_STREAM="3")


def test_no_text_installs_riverrun_from_an_index():
    """It is in none: a text that says so would install what somebody else may put there."""
    root = Path(__file__).resolve().parents[3]
    pages = [root / "README.md", root / "CONTRIBUTING.md", *(root / "docs").glob("*.md")]
    sources = [path for path in (root / "python").rglob("*.py*") if path.suffix in (".py", ".pyx")]
    scripts = [path for folder in ("scripts", "examples") for path in (root / folder).rglob("*.py")]
    found = [
        (str(path.relative_to(root)), line)
        for path in (*pages, *sources, *scripts)
        if "tests" not in path.parts
        for line in path.read_text().splitlines()
        if re.search(r"install\s+(-\S+\s+)*['\"]?riverrun\b", line)
    ]
    assert not found


def test_launcher_says_its_version():
    rrun = Path(sys.executable).with_name("rrun")
    assert run(str(rrun), "--version") == f"rrun {importlib.metadata.version('riverrun')}\n"


def test_communicator_is_where_the_documents_say():
    communicator = importlib.import_module("rapidsmpf.communicator")
    assert communicator.Communicator is communicator.communicator.Communicator


def test_prefers_the_system_ucx_when_asked():
    # The loaders print nothing and fall back to the wheel when the system has none: importing must work either way.
    env = {**os.environ, "RAPIDS_LIBUCX_PREFER_SYSTEM_LIBRARY": "true"}
    code = "from rapidsmpf.communicator import COMMUNICATORS; print(COMMUNICATORS)"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=env, check=False
    )
    assert result.returncode == 0, result.stderr
    assert "ucxx" in result.stdout


def test_import_leaves_the_environment_of_ucx_alone():
    code = """
import os
before = dict(os.environ)
import rapidsmpf.bootstrap, rapidsmpf.communicator.ucxx, rapidsmpf.streaming.exchange
assert dict(os.environ) == before
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_what_needs_no_rmm_does_not_import_it():
    # It takes a good part of a second.
    code = """
import sys
import rapidsmpf.memory.buffer_resource, rapidsmpf.memory.packed_data, rapidsmpf.shuffler, rapidsmpf.statistics
from rapidsmpf.config import Options
br = rapidsmpf.memory.buffer_resource.BufferResource.from_options(None, Options())
assert not [name for name in sys.modules if name.split(".")[0] == "rmm"]
"""
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "RAPIDSMPF_DEVICE": "cpu"})


def module_of(stub):
    """Import the module of a stub; the one that stands on libcudf, after that, which loads the libraries it needs."""
    name = ".".join(stub.relative_to(SOURCES.parent).with_suffix("").parts)
    if name == "rapidsmpf.compute":
        pytest.importorskip("libcudf").load_library()
    return importlib.import_module(name)


def test_there_are_stubs():
    assert STUBS


@pytest.mark.parametrize("stub", STUBS, ids=lambda path: path.stem)
def test_stub_has_what_the_module_has(stub, monkeypatch):
    module = module_of(stub)
    # Stubs are Python with the bodies left out.
    monkeypatch.setitem(sys.modules, "stub", ModuleType("stub"))
    scope = vars(sys.modules["stub"])
    exec(compile("from __future__ import annotations\n" + stub.read_text(), stub, "exec"), scope)
    declared = {key for key, value in scope.items() if getattr(value, "__module__", None) == "stub"}
    assert {key for key in declared if not key.startswith("_")} == set(module.__all__)
    for key in module.__all__:
        want, have = scope[key], getattr(module, key)
        if inspect.isclass(want):
            missing = {
                member for member in vars(want) if not member.startswith("_") and not hasattr(have, member)
            }
            assert not missing, f"{module.__name__}.{key} lacks {missing}"
            undeclared = {
                member
                for member in vars(have)
                if not member.startswith("_")
                and not hasattr(want, member)
                and member not in want.__annotations__
            }
            assert not undeclared, f"the stub of {module.__name__}.{key} lacks {undeclared}"


@pytest.mark.parametrize("stub", STUBS, ids=lambda path: path.stem)
def test_everything_public_has_a_docstring(stub):
    module = module_of(stub)
    assert module.__doc__
    for key in module.__all__:
        value = getattr(module, key)
        assert value.__doc__, key
        if inspect.isclass(value):
            for member, function in vars(value).items():
                if not member.startswith("_") and callable(function):
                    assert function.__doc__, f"{key}.{member}"
