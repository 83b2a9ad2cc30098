"""Bytes of a tier set aside for allocations to come."""

from contextlib import contextmanager

from libcpp.utility cimport move

from rapidsmpf.memory.buffer import MemoryType

__all__ = ["MemoryReservation", "opaque_memory_usage"]


cdef class MemoryReservation:
    """A reservation of memory, made by :meth:`BufferResource.reserve`.

    What is not consumed goes back when the reservation is cleared or dropped.
    """

    def __init__(self):
        raise TypeError("a reservation comes from BufferResource.reserve")

    def __dealloc__(self):
        with nogil:
            self._handle.reset()

    @staticmethod
    cdef MemoryReservation from_handle(unique_ptr[cpp_MemoryReservation] handle, object br):
        cdef MemoryReservation self = MemoryReservation.__new__(MemoryReservation)
        self._handle = move(handle)
        self._br = br
        return self

    @property
    def size(self):
        """Bytes that are not consumed yet."""
        return self._handle.get().size()

    @property
    def mem_type(self):
        """The tier."""
        return MemoryType(<int> self._handle.get().mem_type())

    @property
    def br(self):
        """The buffer resource that the reservation is of."""
        return self._br

    def clear(self):
        """Release the remaining bytes; the size is zero afterwards."""
        with nogil:
            self._handle.get().clear()

    def __repr__(self):
        return f"MemoryReservation(mem_type={self.mem_type.name}, size={self.size})"


@contextmanager
def opaque_memory_usage(MemoryReservation reservation not None):
    """Account for memory that other libraries allocate while a block runs.

    The reservation counts as used by the block and is cleared at its end.

    Parameters
    ----------
    reservation
        What the block may use.

    Yields
    ------
    The reservation.
    """
    try:
        yield reservation
    finally:
        reservation.clear()
