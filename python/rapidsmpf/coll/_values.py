"""The values of an all-reduce: numbers, NumPy arrays and other buffers, and how they become bytes and back."""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["Form", "encode"]


@dataclass(frozen=True)
class Form:
    """What a value is besides its bytes.

    Attributes
    ----------
    format
        The format of its elements, as in the struct module.
    decode
        Makes a value of a buffer. It is a view of the buffer, or for numbers a copy.
    store
        Writes a value into a writable buffer.
    """

    format: str
    decode: Callable[[bytearray | bytes], Any]
    store: Callable[[bytearray, Any], None]

    def combiner(self, function: Callable[[Any, Any], Any]) -> Callable[[bytearray, bytes], None]:
        """Return what applies ``function`` to two values given as bytes, and leaves the result in the first."""

        def combine(accumulated: bytearray, contribution: bytes) -> None:
            result = function(self.decode(accumulated), self.decode(contribution))
            if result is not None:
                self.store(accumulated, result)

        return combine


def _number(format: str) -> Form:
    packing = struct.Struct(format)

    def store(buffer: bytearray, value: Any) -> None:
        buffer[:] = packing.pack(value)

    return Form(format, lambda buffer: packing.unpack(buffer)[0], store)


def _array(numpy: Any, value: Any) -> Form:
    dtype, shape = value.dtype, value.shape

    def decode(buffer: bytearray | bytes) -> Any:
        return numpy.frombuffer(buffer, dtype=dtype).reshape(shape)

    def store(buffer: bytearray, result: Any) -> None:
        result = numpy.asarray(result)
        if result.shape != shape:
            raise ValueError(f"the reduction of arrays of shape {shape} returned one of shape {result.shape}")
        decode(buffer)[...] = result

    def decode_value(buffer: bytearray | bytes) -> Any:
        array = decode(buffer)
        return array if isinstance(value, numpy.ndarray) else array[()]

    return Form(memoryview(value).format, decode_value, store)


def _buffer(view: memoryview) -> Form:
    format, shape, nbytes = view.format, list(view.shape or ()), view.nbytes

    def decode(buffer: bytearray | bytes) -> memoryview:
        flat = memoryview(buffer).cast("B")
        return flat.cast(format, shape) if nbytes > 0 else flat.cast(format)  # type: ignore[call-overload,no-any-return]

    def store(buffer: bytearray, result: Any) -> None:
        content = memoryview(result)
        if content.nbytes != nbytes:
            raise ValueError(f"the reduction of {nbytes} bytes returned {content.nbytes}")
        buffer[:] = content.tobytes()

    return Form(format, decode, store)


def encode(value: Any) -> tuple[bytes, Form]:
    """Return the bytes of a value and its form; TypeError or OverflowError when it has none."""
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.ndarray | numpy.generic):
        if value.dtype.hasobject:
            raise TypeError(f"an array of {value.dtype} cannot be reduced: its elements are Python objects")
        return value.tobytes(), _array(numpy, value)
    if isinstance(value, bool):
        raise TypeError("a bool cannot be reduced: give an int, and min for all, max for any")
    if isinstance(value, int):
        if not -(2**63) <= value < 2**63:
            raise OverflowError(f"{value} does not fit into 64 bits")
        return struct.pack("q", value), _number("q")
    if isinstance(value, float):
        return struct.pack("d", value), _number("d")
    try:
        view = memoryview(value)
    except TypeError:
        raise TypeError(
            f"an all-reduce takes an int, a float, a NumPy array or another buffer, not {type(value).__name__}"
        ) from None
    return view.tobytes(), _buffer(view)
