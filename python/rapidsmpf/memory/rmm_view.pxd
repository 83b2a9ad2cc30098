from libcpp.memory cimport shared_ptr
from libcpp.optional cimport optional
from rmm.librmm.memory_resource cimport device_async_resource_ref

from rapidsmpf.error cimport translate_exception
from rapidsmpf.memory.memory_resource cimport cpp_MemoryResource


cdef extern from "<rapidsmpf/memory/rmm_resource.hpp>" namespace "rapidsmpf" nogil:
    cdef cppclass cpp_RmmView "rapidsmpf::RmmView":
        cpp_RmmView(shared_ptr[cpp_MemoryResource]) except +translate_exception

# Defined by the declarations of RMM, for any resource.
cdef extern from * nogil:
    optional[device_async_resource_ref] make_device_async_resource_ref(
        cpp_RmmView&
    ) except +translate_exception
