"""Whom to ask when memory is short: functions that free device memory."""

from libc.stdint cimport int64_t

from rapidsmpf.memory.buffer_resource cimport BufferResource, cpp_BufferResource

from rapidsmpf.signatures import STUB_SIGNATURE


cdef extern from "<rapidsmpf_python/memory.hpp>" namespace "rapidsmpf::python" nogil:
    size_t cpp_headroom "rapidsmpf::python::spill_to_make_headroom"(
        cpp_BufferResource&, int64_t
    ) except +translate_exception

cdef extern from "<rapidsmpf_python/callbacks.hpp>" namespace "rapidsmpf::python":
    function[size_t(size_t)] spill_function(object) except +translate_exception

__all__ = ["SpillManager"]


cdef class SpillManager:
    """The spill functions of a buffer resource. Comes from :attr:`BufferResource.spill_manager`.

    Parameters
    ----------
    br
        The buffer resource.
    """

    __signature__ = STUB_SIGNATURE

    cdef BufferResource _br

    def __init__(self, BufferResource br not None):
        self._br = br

    def add_spill_function(self, func, int priority):
        """Register a function.

        Parameters
        ----------
        func
            ``func(amount)`` tries to free ``amount`` bytes of device memory and returns how many it freed. It is
            called in any thread, never twice at a time, and must not call back into this object.
        priority
            Functions of high priority are asked first.

        Returns
        -------
        The number by which to remove it.
        """
        if not callable(func):
            raise TypeError(f"a spill function must be callable, got {type(func).__name__}")
        cdef function[size_t(size_t)] wrapped = spill_function(func)
        cdef uint64_t number
        with nogil:
            number = self._br._handle.get().spill_manager().add_spill_function(wrapped, priority)
        return number

    def remove_spill_function(self, uint64_t function_id):
        """Remove a function; waits until it is not running. Nothing happens when it is gone already."""
        with nogil:
            self._br._handle.get().spill_manager().remove_spill_function(function_id)

    def spill(self, size_t amount):
        """Free ``amount`` bytes of device memory; returns how many were freed."""
        cdef size_t freed
        with nogil:
            freed = self._br._handle.get().spill_manager().spill(amount)
        return freed

    def spill_to_make_headroom(self, int64_t headroom=0):
        """Free device memory until ``headroom`` bytes of it are available; returns how many bytes were freed."""
        cdef size_t freed
        with nogil:
            freed = cpp_headroom(self._br._handle.get()[0], headroom)
        return freed
