from cpython.object cimport PyObject
from libcpp cimport bool as cpp_bool
from libcpp.memory cimport shared_ptr
from libcpp.vector cimport vector

from rapidsmpf.error cimport translate_exception


cdef extern from "<rapidsmpf_python/networks.hpp>" namespace "rapidsmpf::python" nogil:
    cdef cppclass cpp_End "rapidsmpf::python::OutsideEnd":
        void succeed() except +translate_exception

    cdef cppclass cpp_Mailbox "rapidsmpf::python::Mailbox":
        int descriptor()
        void enter()
        @staticmethod
        void leave()
        cpp_bool has_any()
        vector[PyObject*] take() except +translate_exception
        void clear_signal()

    cdef cppclass cpp_Activity "rapidsmpf::streaming::Activity":
        pass

    cdef cppclass cpp_Source "rapidsmpf::streaming::CancellationSource":
        cpp_Source() except +translate_exception
        cpp_bool cancel() except +translate_exception
        cpp_bool is_cancelled()


cdef class CancellationSource:
    cdef cpp_Source _handle


cdef class LoopBox:
    cdef shared_ptr[cpp_Mailbox] _handle
    cdef int deliver(self) except -1


cdef class ActorEnd:
    cdef shared_ptr[cpp_End] _end
    cdef shared_ptr[cpp_Activity] _activity
    cdef CancellationSource _source  # of the network, once it runs
    cdef dict _unsent  # by channel: the end of its part as a producer
    cdef dict _unreceived  # and as a consumer
    cdef list _channels
    cdef list _parts
    cdef object _loop  # that it was last seen in
    cdef LoopBox _box  # of that loop
    cdef unsigned long _thread  # of that loop

    cdef int sends(self, channel) except -1
    cdef int receives(self, channel) except -1
