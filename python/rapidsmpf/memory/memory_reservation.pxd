from libc.stddef cimport size_t
from libcpp.memory cimport unique_ptr

from rapidsmpf.error cimport translate_exception


cdef extern from "<rapidsmpf/memory/memory_type.hpp>" namespace "rapidsmpf" nogil:
    cdef enum class cpp_MemoryType "rapidsmpf::MemoryType"(unsigned char):
        DEVICE
        PINNED_HOST
        HOST
        DISK

cdef extern from "<rapidsmpf/memory/memory_reservation.hpp>" namespace "rapidsmpf" nogil:
    cdef cppclass cpp_MemoryReservation "rapidsmpf::MemoryReservation":
        size_t size()
        cpp_MemoryType mem_type()
        void clear()


cdef class MemoryReservation:
    cdef unique_ptr[cpp_MemoryReservation] _handle
    cdef object _br

    @staticmethod
    cdef MemoryReservation from_handle(unique_ptr[cpp_MemoryReservation] handle, object br)
