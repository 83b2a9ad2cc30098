"""Any Python object as a payload."""

from rapidsmpf.streaming.core.message import ArbitraryChunk

__all__ = ["ArbitraryChunk"]
