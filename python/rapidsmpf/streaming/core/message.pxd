from libc.stddef cimport size_t
from libc.stdint cimport uint64_t
from libcpp cimport bool as cpp_bool

from rapidsmpf.error cimport translate_exception


cdef extern from "<rapidsmpf/streaming/message.hpp>" namespace "rapidsmpf::streaming" nogil:
    cdef cppclass cpp_Message "rapidsmpf::streaming::Message":
        cpp_Message() noexcept
        cpp_bool empty() noexcept
        uint64_t sequence() noexcept
        size_t copy_cost() except +translate_exception


cdef class Message:
    cdef cpp_Message _handle

    @staticmethod
    cdef Message from_handle(cpp_Message& handle)
