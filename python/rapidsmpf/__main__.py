"""``python -m rapidsmpf``: where the C++ library is.

``cmake -DCMAKE_PREFIX_PATH=$(python -m rapidsmpf --cmake-prefix)`` lets ``find_package(rapidsmpf)`` find it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import rapidsmpf
import rapidsmpf.config


def cmake_prefix() -> Path:
    """Return the folder that holds the C++ library's ``lib64`` and ``include``.

    It is where the extension modules are, which is not where the Python sources are in an editable install.
    """
    module = rapidsmpf.config.__file__
    assert module is not None
    return Path(module).resolve().parent


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m rapidsmpf", description="About the installed rapidsmpf.")
    parser.add_argument("--version", action="version", version=rapidsmpf.__version__)
    parser.add_argument(
        "--cmake-prefix",
        action="store_true",
        help="print the folder to put into CMAKE_PREFIX_PATH, so that find_package(rapidsmpf) works",
    )
    options = parser.parse_args(arguments)
    if options.cmake_prefix:
        print(cmake_prefix())
        return 0
    parser.print_help()
    return 2


if __name__ == "__main__":
    sys.exit(main())
