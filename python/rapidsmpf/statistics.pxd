from libc.stdint cimport int64_t, uint8_t, uint64_t
from libcpp cimport bool as cpp_bool
from libcpp.map cimport map as cpp_map
from libcpp.memory cimport shared_ptr
from libcpp.string cimport string
from libcpp.vector cimport vector

from rapidsmpf.error cimport translate_exception
from rapidsmpf.memory.memory_resource cimport cpp_ScopeMeasurement
from rapidsmpf.memory.scoped_memory_record cimport cpp_ScopedMemoryRecord


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


cdef extern from "<rapidsmpf/memory/memory_profile.hpp>" namespace "rapidsmpf" nogil:
    cdef cppclass cpp_MemoryProfileRecord "rapidsmpf::MemoryProfile::Record":
        cpp_ScopedMemoryRecord scoped
        int64_t global_peak
        uint64_t num_calls

    cdef cppclass cpp_MemoryProfile "rapidsmpf::MemoryProfile":
        void add(string, cpp_ScopeMeasurement) except +translate_exception
        cpp_map[string, cpp_MemoryProfileRecord] records "records"() except +translate_exception
        string report() except +translate_exception
        string json_member() except +translate_exception


cdef class Statistics:
    cdef shared_ptr[cpp_Statistics] _handle
    cdef shared_ptr[cpp_MemoryProfile] _profile  # null: no memory profiling
    cdef object _mr

    @staticmethod
    cdef Statistics from_handle(shared_ptr[cpp_Statistics] handle)
