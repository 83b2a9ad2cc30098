from libc.stdint cimport int64_t
from libcpp.memory cimport shared_ptr

from rapidsmpf.config cimport cpp_Options
from rapidsmpf.error cimport translate_exception
from rapidsmpf.memory.memory_resource cimport cpp_RmmResourceAdaptor


cdef extern from "<rapidsmpf/memory/available_memory.hpp>" namespace "rapidsmpf" nogil:
    cdef cppclass cpp_LimitAvailableMemory "rapidsmpf::LimitAvailableMemory":
        cpp_LimitAvailableMemory(shared_ptr[cpp_RmmResourceAdaptor], int64_t) except +translate_exception
        int64_t call "operator()"()
        int64_t limit()

    cdef cppclass cpp_AvailableMemoryMap "rapidsmpf::AvailableMemoryMap":
        pass

    cpp_AvailableMemoryMap available_memory_from_options(
        shared_ptr[cpp_RmmResourceAdaptor], cpp_Options
    ) except +translate_exception
