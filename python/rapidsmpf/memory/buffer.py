"""The tiers that bytes can live in."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["MemoryType"]


class MemoryType(IntEnum):
    """A memory tier, best first.

    On a CPU the compute device's memory is this process's RAM, so ``DEVICE`` is its budget.
    """

    DEVICE = 0
    """Memory of the compute device."""
    PINNED_HOST = 1
    """Page-locked host memory; only with a GPU."""
    HOST = 2
    """Ordinary host memory."""
    DISK = 3
    """Spill files."""
