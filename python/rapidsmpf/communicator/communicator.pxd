from libc.stdint cimport int32_t
from libcpp.memory cimport shared_ptr
from libcpp.string cimport string

from rapidsmpf.error cimport translate_exception
from rapidsmpf.progress_thread cimport cpp_ProgressThread

ctypedef int32_t Rank


cdef extern from "<rapidsmpf/communicator/communicator.hpp>" namespace "rapidsmpf" nogil:
    cdef enum class cpp_LogLevel "rapidsmpf::LogLevel"(unsigned char):
        pass

    cdef cppclass cpp_Logger "rapidsmpf::Logger":
        cpp_LogLevel verbosity_level()
        void log(cpp_LogLevel, string) except +translate_exception

    cdef cppclass cpp_Communicator "rapidsmpf::Communicator":
        Rank rank()
        Rank nranks()
        string str() except +translate_exception
        const cpp_Logger& logger()
        shared_ptr[cpp_ProgressThread] progress_thread()
        void abort(string) except +translate_exception
        void check() except +translate_exception
        void check_process() except +translate_exception


cdef class Logger:
    cdef shared_ptr[cpp_Communicator] _comm

    cdef _log(self, unsigned char level, str message)


cdef class Communicator:
    cdef shared_ptr[cpp_Communicator] _handle
    # What belongs to a communicator and is kept elsewhere (the numbering of operations) ends with it.
    cdef object __weakref__

    @staticmethod
    cdef Communicator from_handle(shared_ptr[cpp_Communicator] handle)
