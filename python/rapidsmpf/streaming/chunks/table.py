"""Rows as a payload: Arrow tables in host memory, and tables on a GPU."""

from rapidsmpf.streaming.core.message import TableChunk

__all__ = ["TableChunk"]
