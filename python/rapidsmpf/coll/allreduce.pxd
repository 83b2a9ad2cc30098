from libcpp cimport bool as cpp_bool
from libcpp.memory cimport shared_ptr

from rapidsmpf.communicator.communicator cimport Communicator
from rapidsmpf.error cimport translate_exception


cdef extern from "<rapidsmpf/coll/allreduce.hpp>" namespace "rapidsmpf" nogil:
    cdef cppclass cpp_AllReduce "rapidsmpf::coll::AllReduce":
        cpp_bool finished() except +translate_exception


cdef class AllReduce:
    cdef shared_ptr[cpp_AllReduce] _handle
    cdef Communicator _comm
    cdef object _form
