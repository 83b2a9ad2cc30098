from libc.stdint cimport uint8_t, uint64_t
from libcpp cimport bool as cpp_bool
from libcpp.memory cimport shared_ptr
from libcpp.string cimport string
from libcpp.vector cimport vector

from rapidsmpf.error cimport translate_exception


cdef extern from "<rapidsmpf/core/statistics.hpp>" namespace "rapidsmpf" nogil:
    cdef enum class cpp_Enabled "rapidsmpf::Statistics::Enabled"(bint):
        no
        yes

    cdef cppclass cpp_Stat "rapidsmpf::Statistics::Stat":
        uint64_t count
        double value
        double max

    cdef cppclass cpp_Snapshot "rapidsmpf::StatisticsSnapshot":
        cpp_Snapshot()
        void merge(cpp_Snapshot) except +translate_exception
        vector[uint8_t] serialize() except +translate_exception
        string report(string) except +translate_exception
        string to_json(string) except +translate_exception

    cdef cppclass cpp_Statistics "rapidsmpf::Statistics":
        cpp_bool enabled()
        void add(string, double) except +translate_exception
        cpp_Stat get(string) except +translate_exception
        vector[string] names() except +translate_exception
        void clear() except +translate_exception
        cpp_Snapshot snapshot() except +translate_exception
        void merge(cpp_Snapshot) except +translate_exception
        string report() except +translate_exception


cdef class Statistics:
    cdef shared_ptr[cpp_Statistics] _handle
    cdef object _mr

    @staticmethod
    cdef Statistics from_handle(shared_ptr[cpp_Statistics] handle)
