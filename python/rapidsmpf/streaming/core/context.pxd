from libcpp.memory cimport shared_ptr

from rapidsmpf.communicator.communicator cimport Communicator, cpp_Communicator
from rapidsmpf.config cimport Options, cpp_Options
from rapidsmpf.error cimport translate_exception
from rapidsmpf.memory.buffer_resource cimport BufferResource, cpp_BufferResource


cdef extern from "<rapidsmpf/streaming/context.hpp>" namespace "rapidsmpf::streaming" nogil:
    cdef cppclass cpp_Executor "rapidsmpf::streaming::Executor":
        size_t num_threads()

    cdef cppclass cpp_Context "rapidsmpf::streaming::Context":
        shared_ptr[cpp_Executor] executor()
        void shutdown()


cdef class Context:
    cdef shared_ptr[cpp_Context] _handle
    cdef Communicator _comm
    cdef BufferResource _br
    cdef Options _options
