"""Bloom filters: which keys a join's side may have, where these are too many to be sent to every rank."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import polars as pl

from cudf_polars.plan.plugin import find_library, plugin_expr

__all__ = ["BloomFilter"]

_BITS = 12
"""The fewest bits of a key. It has less than twice as many, because the number of blocks is a power of two."""
_BLOCK = 32
"""Bytes of a block."""
_SEED = 0
"""Of the hashes: the same on every rank."""


class BloomFilter:
    """A split block Bloom filter of the keys of a column; its functions are in ``cpp/src/polars_plugin``.

    It takes about 0.6 % of other keys for its own, at most.

    Parameters
    ----------
    bits
        Its blocks. They are changed in place.
    """

    def __init__(self, bits: bytearray) -> None:
        self.bits = bits

    @classmethod
    def sized(cls, keys: float) -> BloomFilter:
        """Return an empty filter for so many keys, of less than 3 bytes each and at least 32 bytes."""
        size = _BLOCK
        while 8 * size < _BITS * keys:
            size *= 2
        return cls(bytearray(size))

    def insert(self, keys: pl.Series) -> None:
        """Add keys, none of which is null."""
        for chunk in keys.hash(_SEED).get_chunks():
            hashes = chunk.to_numpy()
            _functions().bloom_filter_insert(*self._words(), hashes.ctypes.data, hashes.size)

    def shrink_to(self, keys: float) -> None:
        """Make the filter as small as :meth:`sized` makes one for so many keys; a smaller one stays."""
        while len(self.bits) > _BLOCK and 4 * len(self.bits) >= _BITS * keys:
            _functions().bloom_filter_halve(*self._words())
            del self.bits[len(self.bits) // 2 :]

    def count(self) -> int:
        """Return about how many different keys it has."""
        return round(float(_functions().bloom_filter_count(*self._words())))

    def may_contain(self, column: pl.Expr) -> pl.Expr:
        """Return whether the values of a column may be among the keys; what it is for null says nothing."""
        return plugin_expr(
            find_library(), "may_contain", [column.hash(_SEED)], bytes(self.bits), elementwise=True
        )

    def _words(self) -> tuple[Any, int]:
        size = len(self.bits)
        return (ctypes.c_char * size).from_buffer(self.bits), size // 4


@functools.cache
def _functions() -> ctypes.CDLL:
    library = ctypes.CDLL(str(find_library()))
    array = (ctypes.c_void_p, ctypes.c_size_t)
    library.bloom_filter_insert.argtypes = array * 2
    library.bloom_filter_halve.argtypes = array
    library.bloom_filter_count.argtypes = array
    library.bloom_filter_count.restype = ctypes.c_double
    return library
