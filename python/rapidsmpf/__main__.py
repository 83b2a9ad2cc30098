"""``python -m rapidsmpf``: what is installed, for reports of faults; and where the C++ library is.

``cmake -DCMAKE_PREFIX_PATH=$(python -m rapidsmpf --cmake-prefix)`` lets ``find_package(rapidsmpf)`` find it.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import platform
import sys
from pathlib import Path

import rapidsmpf
import rapidsmpf.config
from rapidsmpf import given_options
from rapidsmpf.communicator import COMMUNICATORS
from rapidsmpf.utils.string import format_bytes
from rapidsmpf.utils.system_info import get_device_memory, get_device_name

_PACKAGES = (
    "polars",
    "numpy",
    "pyarrow",
    "dask",
    "distributed",
    "ray",
    "mpi4py",
    "libucx-cu13",
    "ucxx-cu13",
    "rmm-cu13",
    "libcudf-cu13",
    "obstore",
)
"""Distributions that we work with, where they are installed."""
_LIBRARIES = ("rapidsmpf", "ucxx", "ucp", "rmm", "mpi", "cudf")
"""Names of libraries that are listed when this process has loaded them."""


def cmake_prefix() -> Path:
    """Return the folder that holds the C++ library's ``lib64`` and ``include``.

    It is where the extension modules are, which is not where the Python sources are in an editable install.
    """
    module = rapidsmpf.config.__file__
    assert module is not None
    return Path(module).resolve().parent


def loaded_libraries() -> list[str]:
    """Return the paths of the libraries of ours, and of those that they rest on, which this process has loaded."""
    mapped = {line.split(maxsplit=5)[-1].strip() for line in Path("/proc/self/maps").read_text().splitlines()}
    names = tuple(f"lib{name}" for name in _LIBRARIES)
    paths = [Path(path) for path in mapped if path.startswith("/")]
    return sorted(str(path) for path in paths if path.name.startswith(names) and ".so" in path.name)


def operators() -> str:
    """Return whether the operators over libcudf, which run queries on GPUs, are there."""
    if importlib.util.find_spec("rapidsmpf.compute") is None:
        return "not built: the build found no libcudf"
    if importlib.util.find_spec("libcudf") is None:
        return "built, and libcudf is not installed"
    if get_device_name() == "cpu":
        return "built, and not used: the compute device is the CPU"
    try:
        importlib.import_module("libcudf").load_library()
        importlib.import_module("rapidsmpf.compute")
    except (ImportError, OSError) as error:
        return f"cannot be loaded: {error}"
    return "loaded"


def report() -> str:
    """Return versions, libraries, the compute device, the communicators, and the options that the environment sets."""
    lines = [
        f"riverrun {rapidsmpf.__version__} in {cmake_prefix()}",
        f"Python {platform.python_version()} ({sys.executable}) on {platform.platform()}",
        "",
        "packages:",
    ]
    for name in _PACKAGES:
        try:
            lines.append(f"  {name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            lines.append(f"  {name}: not installed")
    gpu = operators()  # before the libraries are listed, to which it may add some
    lines += ["libraries:", *(f"  {path}" for path in loaded_libraries())]
    lines.append(f"compute device: {get_device_name()}, {format_bytes(get_device_memory())} for this process")
    lines.append(f"operators over libcudf: {gpu}")
    lines.append(f"communicators: {', '.join(COMMUNICATORS)}")
    try:
        options = given_options.environment_texts()
        lines += ["options from the environment:" if options else "options from the environment: none"]
        lines += [f"  {given_options.variable_of(key)}={text}" for key, text in sorted(options.items())]
    except (TypeError, ValueError) as error:
        lines.append(f"options from the environment: {error}")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m rapidsmpf",
        description="Shows what is installed: versions, libraries, compute device, communicators.",
    )
    parser.add_argument("--version", action="version", version=rapidsmpf.__version__)
    parser.add_argument(
        "--cmake-prefix",
        action="store_true",
        help="print the folder to put into CMAKE_PREFIX_PATH, so that find_package(rapidsmpf) works",
    )
    options = parser.parse_args(arguments)
    print(cmake_prefix() if options.cmake_prefix else report())
    return 0


if __name__ == "__main__":
    sys.exit(main())
