from libc.stdint cimport uint64_t
from libc.stddef cimport size_t
from libcpp.functional cimport function

from rapidsmpf.error cimport translate_exception


cdef extern from "<rapidsmpf/memory/spill_manager.hpp>" namespace "rapidsmpf" nogil:
    cdef cppclass cpp_SpillManager "rapidsmpf::SpillManager":
        uint64_t add_spill_function(function[size_t(size_t)], int) except +translate_exception
        void remove_spill_function(uint64_t) except +translate_exception
        size_t spill(size_t) except +translate_exception
