from libc.stdint cimport int64_t, uint8_t
from libcpp cimport bool as cpp_bool
from libcpp.functional cimport function
from libcpp.map cimport map as cpp_map
from libcpp.string cimport string
from libcpp.vector cimport vector

from rapidsmpf.error cimport translate_exception


cdef extern from "<rapidsmpf/core/config.hpp>" namespace "rapidsmpf::config" nogil:
    cdef cppclass cpp_Options "rapidsmpf::config::Options":
        cpp_Options() except +translate_exception
        cpp_Options(cpp_map[string, string]) except +translate_exception
        size_t insert_if_absent(cpp_map[string, string]) except +translate_exception
        cpp_map[string, string] get_strings() except +translate_exception
        vector[uint8_t] serialize() except +translate_exception


cdef class Options:
    cdef cpp_Options _handle
