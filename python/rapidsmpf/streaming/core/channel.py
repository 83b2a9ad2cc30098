"""Channels between actors."""

from rapidsmpf.streaming.core.network import Channel

__all__ = ["Channel"]
