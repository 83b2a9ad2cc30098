from libcpp cimport bool as cpp_bool
from libcpp.memory cimport shared_ptr

from rapidsmpf.error cimport translate_exception
from rapidsmpf.streaming.core.channel cimport ActorAccount, LoopBox


cdef extern from "<rapidsmpf_python/networks.hpp>" namespace "rapidsmpf::python" nogil:
    cdef cppclass cpp_End "rapidsmpf::python::OutsideEnd":
        void succeed() except +translate_exception

    cdef cppclass cpp_Source "rapidsmpf::streaming::CancellationSource":
        cpp_Source() except +translate_exception
        cpp_bool cancel() except +translate_exception
        cpp_bool is_cancelled()


cdef class CancellationSource:
    cdef cpp_Source _handle


cdef class ActorEnd(ActorAccount):
    cdef shared_ptr[cpp_End] _end
    cdef CancellationSource _source  # of the network, once it runs
    cdef dict _unsent  # by channel: the end of its part as a producer
    cdef dict _unreceived  # and as a consumer
    cdef list _channels
    cdef list _parts
