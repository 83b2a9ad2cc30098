from libc.stddef cimport size_t
from libcpp cimport bool as cpp_bool
from libcpp.memory cimport shared_ptr
from libcpp.optional cimport optional

from rapidsmpf.config cimport cpp_Options
from rapidsmpf.error cimport translate_exception
from rapidsmpf.memory.memory_resource cimport cpp_MemoryResource


cdef extern from "<rapidsmpf/memory/pinned_memory_resource.hpp>" namespace "rapidsmpf" nogil:
    cdef cppclass cpp_PinnedProperties "rapidsmpf::PinnedMemoryResource::Properties":
        cpp_PinnedProperties()
        optional[int] numa_node
        size_t initial_pool_size
        size_t max_pool_size

    cdef cppclass cpp_PinnedMemoryResource "rapidsmpf::PinnedMemoryResource"(cpp_MemoryResource):
        const cpp_PinnedProperties& properties()

    shared_ptr[cpp_PinnedMemoryResource] cpp_make "rapidsmpf::PinnedMemoryResource::make"(
        const cpp_PinnedProperties&
    ) except +translate_exception
    shared_ptr[cpp_PinnedMemoryResource] cpp_make_if_available "rapidsmpf::PinnedMemoryResource::make_if_available"(
        const cpp_PinnedProperties&
    ) except +translate_exception
    shared_ptr[cpp_PinnedMemoryResource] cpp_pinned_from_options "rapidsmpf::PinnedMemoryResource::from_options"(
        cpp_Options
    ) except +translate_exception
    cpp_bool cpp_pinned_is_available "rapidsmpf::PinnedMemoryResource::is_available"() except +translate_exception


cdef class PinnedMemoryResource:
    cdef shared_ptr[cpp_PinnedMemoryResource] _handle

    @staticmethod
    cdef PinnedMemoryResource from_handle(shared_ptr[cpp_PinnedMemoryResource] handle)
