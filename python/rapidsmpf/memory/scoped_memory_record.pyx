"""How much memory was allocated, by whom it was served, and the most that was in use at once."""

from enum import IntEnum

from libc.stdint cimport uint64_t

__all__ = ["AllocType", "ScopedMemoryRecord"]


class AllocType(IntEnum):
    """Which memory resource served an allocation.

    Attributes
    ----------
    PRIMARY
        The upstream resource, which is tried first.
    FALLBACK
        The one that serves what the first cannot.
    ALL
        Both together; only to ask for.
    """

    PRIMARY = 0
    FALLBACK = 1
    ALL = 2


cdef cpp_AllocType _type(object alloc_type) except *:
    return <cpp_AllocType> <int> AllocType(alloc_type)


cdef int64_t _bytes(uint64_t nbytes) except? -1:
    if nbytes > <uint64_t> 0x7FFFFFFFFFFFFFFF:
        raise OverflowError(f"{nbytes} bytes are more than any memory has")
    return <int64_t> nbytes


cdef class ScopedMemoryRecord:
    """Statistics of the allocations of a scope: a copy, which does not change when more is allocated."""

    @staticmethod
    cdef ScopedMemoryRecord from_record(cpp_ScopedMemoryRecord record):
        cdef ScopedMemoryRecord self = ScopedMemoryRecord.__new__(ScopedMemoryRecord)
        self._record = record
        return self

    def num_total_allocs(self, alloc_type=AllocType.ALL):
        """Return how many allocations were made.

        Parameters
        ----------
        alloc_type
            The resource that served them.
        """
        return self._record.num_total_allocs(_type(alloc_type))

    def num_current_allocs(self, alloc_type=AllocType.ALL):
        """Return how many allocations are still there.

        Parameters
        ----------
        alloc_type
            The resource that served them.
        """
        return self._record.num_current_allocs(_type(alloc_type))

    def current(self, alloc_type=AllocType.ALL):
        """Return the bytes in use.

        Parameters
        ----------
        alloc_type
            The resource that served them.
        """
        return self._record.current(_type(alloc_type))

    def total(self, alloc_type=AllocType.ALL):
        """Return the bytes that were allocated in all.

        Parameters
        ----------
        alloc_type
            The resource that served them.
        """
        return self._record.total(_type(alloc_type))

    def peak(self, alloc_type=AllocType.ALL):
        """Return the most bytes that were in use at once.

        Parameters
        ----------
        alloc_type
            The resource that served them. The peak of ALL need not be the sum of the others': they may have been
            reached at different times.
        """
        return self._record.peak(_type(alloc_type))

    def record_allocation(self, alloc_type, uint64_t nbytes):
        """Count an allocation.

        Parameters
        ----------
        alloc_type
            The resource that served it.
        nbytes
            Bytes.

        Raises
        ------
        ValueError
            If the type is ALL.
        """
        self._record.record_allocation(_type(alloc_type), _bytes(nbytes))

    def record_deallocation(self, alloc_type, uint64_t nbytes):
        """Count a deallocation.

        Parameters
        ----------
        alloc_type
            The resource that had served it.
        nbytes
            Bytes.

        Raises
        ------
        ValueError
            If the type is ALL.
        """
        self._record.record_deallocation(_type(alloc_type), _bytes(nbytes))

    def add_subscope(self, ScopedMemoryRecord subscope not None):
        """Add the record of a scope that was open within this one; its peak stood on what this one held.

        Parameters
        ----------
        subscope
            The inner scope's record.
        """
        self._record.add_subscope(subscope._record)

    def add_scope(self, ScopedMemoryRecord scope not None):
        """Add the record of another run of the same scope; the peak is the larger of the two.

        Parameters
        ----------
        scope
            The other run's record.
        """
        self._record.add_scope(scope._record)

    def __repr__(self):
        return (
            f"ScopedMemoryRecord(current={self.current()}, peak={self.peak()}, total={self.total()}, "
            f"num_total_allocs={self.num_total_allocs()}, num_current_allocs={self.num_current_allocs()})"
        )
