"""Messages that are kept for later, and may be spilled meanwhile."""

from rapidsmpf.streaming.core.waits import SpillableMessages

__all__ = ["SpillableMessages"]
