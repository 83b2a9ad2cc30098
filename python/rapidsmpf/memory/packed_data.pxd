from libc.stddef cimport size_t
from libc.stdint cimport uint8_t
from libcpp cimport bool as cpp_bool
from libcpp.memory cimport unique_ptr
from libcpp.vector cimport vector

from rapidsmpf.error cimport translate_exception
from rapidsmpf.memory.memory_reservation cimport cpp_MemoryType


cdef extern from "<rapidsmpf/memory/packed_data.hpp>" namespace "rapidsmpf" nogil:
    cdef cppclass cpp_Buffer "rapidsmpf::Buffer":
        size_t size()
        cpp_MemoryType mem_type()

    cdef cppclass cpp_PackedData "rapidsmpf::PackedData":
        vector[uint8_t] metadata
        unique_ptr[cpp_Buffer] data
        cpp_bool empty()


cdef class PackedData:
    cdef unique_ptr[cpp_PackedData] _handle

    cdef unique_ptr[cpp_PackedData] take(self) except *

    @staticmethod
    cdef PackedData from_handle(unique_ptr[cpp_PackedData] handle)
