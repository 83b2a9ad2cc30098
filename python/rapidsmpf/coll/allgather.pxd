from libc.stdint cimport int32_t, uint8_t, uint64_t
from libcpp cimport bool as cpp_bool
from libcpp.memory cimport shared_ptr, unique_ptr
from libcpp.vector cimport vector

from rapidsmpf.communicator.communicator cimport Communicator, cpp_Communicator
from rapidsmpf.error cimport translate_exception
from rapidsmpf.memory.buffer_resource cimport cpp_BufferResource
from rapidsmpf.memory.packed_data cimport cpp_PackedData


cdef extern from "<rapidsmpf/coll/allgather.hpp>" namespace "rapidsmpf" nogil:
    cdef cppclass cpp_AllGather "rapidsmpf::coll::AllGather":
        void insert_finished() except +translate_exception
        cpp_bool finished() except +translate_exception


cdef class AllGather:
    cdef shared_ptr[cpp_AllGather] _handle
    cdef Communicator _comm
