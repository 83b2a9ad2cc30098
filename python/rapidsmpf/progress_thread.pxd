from libcpp cimport bool as cpp_bool
from libcpp.memory cimport shared_ptr

from rapidsmpf.error cimport translate_exception
from rapidsmpf.statistics cimport cpp_Statistics


cdef extern from "<rapidsmpf/core/progress_thread.hpp>" namespace "rapidsmpf" nogil:
    cdef cppclass cpp_ProgressThread "rapidsmpf::ProgressThread":
        shared_ptr[cpp_Statistics] statistics()
        void stop() except +translate_exception
        cpp_bool is_running()


cdef class ProgressThread:
    cdef shared_ptr[cpp_ProgressThread] _handle

    @staticmethod
    cdef ProgressThread from_handle(shared_ptr[cpp_ProgressThread] handle)
