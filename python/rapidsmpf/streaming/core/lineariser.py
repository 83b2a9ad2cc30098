"""One ordered stream from several producers."""

from rapidsmpf.streaming.core.network import Lineariser

__all__ = ["Lineariser"]
