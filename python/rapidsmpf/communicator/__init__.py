"""Communicators: how the processes (ranks) of a job send each other bytes.

Each backend is a submodule with a function ``new_communicator``.
"""

from __future__ import annotations

import importlib.util

COMMUNICATORS: tuple[str, ...] = tuple(
    name
    for name, needs in (("single", None), ("ucxx", "libucxx"))
    if not needs or importlib.util.find_spec(needs)
)
"""The backends that can be used here."""

__all__ = ["COMMUNICATORS"]
