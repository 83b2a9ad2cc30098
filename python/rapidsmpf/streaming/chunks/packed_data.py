"""Packed data as a payload."""

from rapidsmpf.streaming.core.message import PackedDataChunk

__all__ = ["PackedDataChunk"]
