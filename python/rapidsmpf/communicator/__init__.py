"""Communicators: how the processes (ranks) of a job send each other bytes.

Each backend is a submodule with a function ``new_communicator``.
"""

from __future__ import annotations

import importlib.util

from rapidsmpf.communicator.communicator import Communicator

COMMUNICATORS: tuple[str, ...] = tuple(
    name
    for name, needs in (
        ("single", ()),
        ("ucxx", ("libucxx",)),
        ("mpi", ("rapidsmpf.communicator._mpi", "mpi4py")),
    )
    if all(importlib.util.find_spec(module) for module in needs)
)
"""The backends that can be used here: ``mpi`` when Riverrun was built where an MPI is, and mpi4py is installed."""

__all__ = ["COMMUNICATORS", "Communicator"]
