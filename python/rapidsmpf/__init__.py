"""RapidsMPF: collectives, spillable memory and task networks between processes.

The package is a thin binding of the C++ library ``librapidsmpf``, which it carries in ``lib64``. Importing it
loads the libraries of the wheels that ``librapidsmpf`` rests on (RMM and UCXX).
"""

from __future__ import annotations

import importlib.metadata


def _load_dependencies() -> None:
    """Load librmm and libucxx, so that the extension modules find them wherever they are installed.

    The loaders honour ``RAPIDS_LIBUCX_PREFER_SYSTEM_LIBRARY=true`` and its siblings: then the system's library
    goes before the wheel's. Without the wheels the libraries are looked for by their run path.
    """
    for name in ("librmm", "libucxx"):
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError:
            continue
        module.load_library()


_load_dependencies()

try:
    __version__ = importlib.metadata.version("riverrun")
except importlib.metadata.PackageNotFoundError:  # an unpacked source tree
    __version__ = "0+unknown"

__all__ = ["__version__"]
