from libc.stddef cimport size_t
from libc.stdint cimport int64_t
from libcpp cimport bool as cpp_bool
from libcpp.memory cimport shared_ptr

from rapidsmpf.error cimport translate_exception
from rapidsmpf.memory.scoped_memory_record cimport cpp_ScopedMemoryRecord


cdef extern from "<rapidsmpf/device/device.hpp>" namespace "rapidsmpf" nogil:
    cdef cppclass cpp_Stream "rapidsmpf::Stream":
        cpp_Stream()
        cpp_Stream(void*)

cdef extern from "<rapidsmpf/memory/memory_resource.hpp>" namespace "rapidsmpf" nogil:
    cdef cppclass cpp_MemoryResource "rapidsmpf::MemoryResource":
        void* allocate(size_t, cpp_Stream) except +translate_exception
        void deallocate(void*, size_t, cpp_Stream) noexcept

    cdef cppclass cpp_HostMemoryResource "rapidsmpf::HostMemoryResource"(cpp_MemoryResource):
        cpp_HostMemoryResource()

cdef extern from "<rapidsmpf/memory/resource_adaptor.hpp>" namespace "rapidsmpf" nogil:
    cdef cppclass cpp_ScopeMeasurement "rapidsmpf::ScopeMeasurement":
        cpp_ScopedMemoryRecord record
        int64_t global_peak

    cdef cppclass cpp_RmmResourceAdaptor "rapidsmpf::RmmResourceAdaptor"(cpp_MemoryResource):
        int64_t current_allocated()
        cpp_ScopedMemoryRecord get_main_record()
        void begin_scoped_memory_record() except +translate_exception
        cpp_ScopedMemoryRecord end_scoped_memory_record() except +translate_exception
        cpp_ScopeMeasurement end_scope() except +translate_exception


cdef class MemoryResourceHandle:
    cdef shared_ptr[cpp_MemoryResource] _handle

    @staticmethod
    cdef MemoryResourceHandle from_handle(shared_ptr[cpp_MemoryResource] handle)


# The C++ resource behind a Python one: of ours, or of RMM.
cdef shared_ptr[cpp_MemoryResource] resource_of(object mr) except *
# The same, which must be an RmmResourceAdaptor.
cdef shared_ptr[cpp_RmmResourceAdaptor] adaptor_of(object mr) except *
# The stream behind a Python one (anything with __cuda_stream__); the default stream for None.
cdef cpp_Stream stream_of(object stream) except *
