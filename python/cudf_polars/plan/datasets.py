"""Table formats (Delta, Iceberg) as sources of a query: Polars asks a Python object for the files when it plans.

The plan views show the files that the object named, but not by which rules they make up the table. So such sources are
found before the views are looked at; :mod:`~cudf_polars.plan.tables` says what becomes of them.
"""

from __future__ import annotations

import contextlib
import copyreg
import pickle
import sys
import threading
from collections.abc import Iterator
from typing import Any

import polars as pl

__all__ = ["dataset_of", "has_datasets", "is_dataset", "scan_name", "versions_pinned"]

_SHOWN = "PythonDataset SCAN"
_HEADER_BYTES = 3
"""Before the pickled object, Polars writes how it was pickled and by which Python."""
_DELTA = "polars.io.delta._dataset"


def has_datasets(lf: pl.LazyFrame) -> bool:
    """Whether a query reads a table format.

    Raises
    ------
    polars.exceptions.PolarsError
        When the query is wrong.
    """
    # Cheap: frames in memory are not looked at, and Polars keeps the schemas of files that it has read.
    return _SHOWN in lf.explain(optimized=False)


def is_dataset(form: Any) -> bool:
    """Whether a node of a query's JSON form is a source that a Python object names the files of."""
    if not isinstance(form, dict) or not isinstance(form.get("Scan"), dict):
        return False
    kind = form["Scan"].get("scan_type")
    return isinstance(kind, dict) and "PythonDataset" in kind


def _pickled(form: Any) -> bytes:
    return bytes(form["Scan"]["scan_type"]["PythonDataset"]["dataset_object"]["dataset_object"])


def dataset_of(form: Any) -> Any:
    """Return the Python object of a node for which :func:`is_dataset` holds."""
    return pickle.loads(_pickled(form)[_HEADER_BYTES:])


def scan_name(form: Any) -> str:
    """Return the function of Polars that made such a node."""
    pickled = _pickled(form)
    for name in ("delta", "iceberg"):
        if f"polars.io.{name}.".encode() in pickled:
            return f"scan_{name}"
    return "a Python dataset"


# --- versions ------------------------------------------------------------------------------------------------

_pins = threading.RLock()
_pinning = 0


@contextlib.contextmanager
def versions_pinned() -> Iterator[None]:
    """Let what is serialised meanwhile name the version of each Delta table that it has open.

    Polars leaves the open table out and opens the newest version at the other end: that of
    ``scan_delta(DeltaTable(path, version=3))`` would be forgotten, and the ranks of one query could see different
    ones. (An Iceberg table is serialised with its metadata file, which is one version.)
    """
    global _pinning
    module = sys.modules.get(_DELTA)
    if module is None:
        yield
        return
    with _pins:
        _pinning += 1
        copyreg.pickle(module.DeltaDataset, _reduce_delta)
    try:
        yield
    finally:
        with _pins:
            _pinning -= 1
            if _pinning == 0:
                copyreg.dispatch_table.pop(module.DeltaDataset, None)


def _reduce_delta(dataset: Any) -> tuple[Any, ...]:
    state = dict(dataset.__getstate__())
    table = dataset.table_.get()
    if state["version"] is None and table is not None:
        state["version"] = table.version()
    return copyreg.__newobj__, (type(dataset),), state  # type: ignore[attr-defined]
