from libc.stdint cimport int32_t
from libcpp cimport bool as cpp_bool
from libcpp.memory cimport shared_ptr
from libcpp.vector cimport vector

from rapidsmpf.communicator.communicator cimport Communicator
from rapidsmpf.error cimport translate_exception


cdef extern from "<rapidsmpf/coll/sparse_alltoall.hpp>" namespace "rapidsmpf" nogil:
    cdef cppclass cpp_SparseAlltoall "rapidsmpf::coll::SparseAlltoall":
        void insert_finished() except +translate_exception
        cpp_bool finished() except +translate_exception
        const vector[int32_t]& sources()
        const vector[int32_t]& destinations()


cdef class SparseAlltoall:
    cdef shared_ptr[cpp_SparseAlltoall] _handle
    cdef Communicator _comm
