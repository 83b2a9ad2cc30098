from libc.stddef cimport size_t
from libc.stdint cimport int64_t
from libcpp cimport bool as cpp_bool
from libcpp.memory cimport shared_ptr, unique_ptr
from libcpp.pair cimport pair

from rapidsmpf.config cimport cpp_Options
from rapidsmpf.error cimport translate_exception
from rapidsmpf.memory.memory_reservation cimport cpp_MemoryReservation, cpp_MemoryType
from rapidsmpf.memory.spill_manager cimport cpp_SpillManager
from rapidsmpf.statistics cimport Statistics, cpp_Statistics


cdef extern from "<rapidsmpf/memory/buffer_resource.hpp>" namespace "rapidsmpf" nogil:
    cdef cppclass cpp_BufferResource "rapidsmpf::BufferResource":
        int64_t memory_available(cpp_MemoryType) except +translate_exception
        int64_t memory_reserved(cpp_MemoryType) except +translate_exception
        size_t release(cpp_MemoryReservation&, size_t) except +translate_exception
        cpp_SpillManager& spill_manager()


cdef class BufferResource:
    cdef shared_ptr[cpp_BufferResource] _handle
    cdef Statistics _statistics
