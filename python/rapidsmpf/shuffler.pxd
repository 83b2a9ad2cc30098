from libc.stddef cimport size_t
from libc.stdint cimport int32_t, uint32_t
from libcpp cimport bool as cpp_bool
from libcpp.memory cimport shared_ptr, unique_ptr
from libcpp.string cimport string
from libcpp.vector cimport vector

from rapidsmpf.communicator.communicator cimport Communicator, cpp_Communicator
from rapidsmpf.config cimport cpp_Options
from rapidsmpf.error cimport translate_exception
from rapidsmpf.memory.buffer_resource cimport cpp_BufferResource
from rapidsmpf.memory.packed_data cimport cpp_PackedData


cdef extern from "<rapidsmpf/coll/shuffler.hpp>" namespace "rapidsmpf" nogil:
    cdef cppclass cpp_ExchangeSettings "rapidsmpf::exchange::Settings":
        cpp_ExchangeSettings() except +translate_exception

    cpp_ExchangeSettings exchange_settings "rapidsmpf::exchange::Settings::from_options"(
        cpp_Options
    ) except +translate_exception

    cdef cppclass cpp_Shuffler "rapidsmpf::coll::Shuffler":
        void insert_finished() except +translate_exception
        void insert_finished(vector[uint32_t]) except +translate_exception
        cpp_bool finished() except +translate_exception
        const vector[uint32_t]& local_partitions()
        uint32_t total_partitions()
        string str() except +translate_exception


cdef class Shuffler:
    cdef shared_ptr[cpp_Shuffler] _handle
    cdef Communicator _comm

    cdef shared_ptr[cpp_Shuffler] open(self) except *
