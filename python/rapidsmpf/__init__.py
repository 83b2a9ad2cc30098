"""RapidsMPF: collectives, spillable memory and task networks between processes.

The package is a thin binding of the C++ library ``librapidsmpf``, which it carries in ``lib64``. Importing it
loads the libraries of the wheels that ``librapidsmpf`` rests on (RMM and UCXX).
"""

from __future__ import annotations

import atexit
import ctypes
import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    __version__: str


def _load_dependencies() -> None:
    """Load librmm and libucxx, so that the extension modules find them wherever they are installed.

    The loaders honour ``RAPIDS_LIBUCX_PREFER_SYSTEM_LIBRARY=true`` and its siblings: then the system's library
    goes before the wheel's. Without the wheels the libraries are looked for by their run path.

    A process has one UCX. When another package has loaded its own before, as the Open MPI of PyPI does that
    ``mpi4py.MPI`` imports, the UCX of the wheel cannot be loaded beside it, and libucxx goes with the
    one that is there.
    """
    for name in ("librmm", "libucxx"):
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError:
            continue
        try:
            module.load_library()
        except OSError:
            library = Path(module.__file__ or "").parent / "lib64" / f"{name}.so"
            try:
                ctypes.CDLL(str(library))
            except OSError as error:
                raise ImportError(
                    f"{name} cannot be loaded ({error}). If something imported before brings a UCX of its own "
                    "(mpi4py.MPI does, with the Open MPI of PyPI), import rapidsmpf first"
                ) from error


_load_dependencies()

# Threads of the library must not wait for an interpreter that ends.
atexit.register(importlib.import_module("rapidsmpf._callbacks").end_callbacks)

__all__ = ["__version__"]


def __getattr__(name: str) -> Any:
    # Reading the metadata of what is installed takes a tenth of a second, which few need.
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    metadata = importlib.import_module("importlib.metadata")
    try:
        version = metadata.version("riverrun")
    except metadata.PackageNotFoundError:  # an unpacked source tree
        version = "0+unknown"
    globals()[name] = version
    return version
