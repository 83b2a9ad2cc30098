from libc.stddef cimport size_t
from libc.stdint cimport int64_t
from libcpp cimport bool as cpp_bool
from libcpp.memory cimport shared_ptr, unique_ptr
from libcpp.pair cimport pair

from rapidsmpf.config cimport cpp_Options
from rapidsmpf.error cimport translate_exception
from rapidsmpf.memory.available_memory cimport (
    cpp_AvailableMemoryMap,
    cpp_LimitAvailableMemory,
    available_memory_from_options,
)
from rapidsmpf.memory.memory_reservation cimport cpp_MemoryReservation, cpp_MemoryType
from rapidsmpf.memory.memory_resource cimport cpp_MemoryResource
from rapidsmpf.memory.pinned_memory_resource cimport PinnedMemoryResource, cpp_PinnedMemoryResource
from rapidsmpf.memory.spill_manager cimport cpp_SpillManager
from rapidsmpf.statistics cimport Statistics, cpp_Statistics


cdef extern from "<rapidsmpf/memory/buffer_resource.hpp>" namespace "rapidsmpf" nogil:
    cdef cppclass cpp_BufferResource "rapidsmpf::BufferResource":
        int64_t memory_available(cpp_MemoryType) except +translate_exception
        int64_t memory_reserved(cpp_MemoryType) except +translate_exception
        size_t release(cpp_MemoryReservation&, size_t) except +translate_exception
        cpp_SpillManager& spill_manager()
        size_t num_streams()


cdef extern from "<rapidsmpf/memory/buffer_resource.hpp>" namespace "rapidsmpf" nogil:
    cdef cppclass cpp_Settings "rapidsmpf::BufferResource::Settings":
        cpp_Settings() except +translate_exception
        shared_ptr[cpp_MemoryResource] device_mr
        shared_ptr[cpp_PinnedMemoryResource] pinned_mr
        shared_ptr[cpp_Statistics] statistics


cdef class LimitAvailableMemory:
    cdef unique_ptr[cpp_LimitAvailableMemory] _handle
    cdef object _mr


cdef class AvailableMemoryMap:
    cdef cpp_AvailableMemoryMap _map
    cdef object _mr


cdef class BufferResource:
    cdef shared_ptr[cpp_BufferResource] _handle
    cdef object _device_mr
    cdef PinnedMemoryResource _pinned_mr
    cdef object _stream_pool
    cdef Statistics _statistics

    cdef int _set_up(
        self,
        cpp_Settings settings,
        device_mr,
        PinnedMemoryResource pinned_mr,
        memory_available,
        periodic_spill_check,
        stream_pool,
        Statistics statistics,
    ) except -1
