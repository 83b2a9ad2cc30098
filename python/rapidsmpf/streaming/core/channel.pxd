from cpython.object cimport PyObject
from libc.stddef cimport size_t
from libc.stdint cimport uint64_t
from libcpp cimport bool as cpp_bool
from libcpp.memory cimport shared_ptr
from libcpp.optional cimport optional
from libcpp.string cimport string
from libcpp.vector cimport vector

from rapidsmpf.error cimport translate_exception
from rapidsmpf.streaming.core.message cimport Message, cpp_Message


cdef extern from "<rapidsmpf_python/channels.hpp>" namespace "rapidsmpf::python" nogil:
    cdef cppclass cpp_Trace "rapidsmpf::streaming::NetworkTrace":
        string json() except +translate_exception
        size_t num_events()
        size_t num_dropped()

    cdef cppclass cpp_Channel "rapidsmpf::streaming::Channel":
        cpp_Channel& metadata() except +translate_exception
        void finish() except +translate_exception
        void shutdown() except +translate_exception
        size_t size()
        size_t bytes()
        cpp_bool is_finished()
        cpp_bool is_closed()
        void set_outside_producer() except +translate_exception
        void set_outside_consumer() except +translate_exception
        void set_trace(shared_ptr[cpp_Trace])

    cdef cppclass cpp_Mailbox "rapidsmpf::python::Mailbox":
        int descriptor()
        void enter()
        @staticmethod
        void leave()
        cpp_bool has_any()
        vector[PyObject*] take() except +translate_exception
        void close()
        void clear_signal()
        cpp_bool look()
        cpp_bool fall_asleep()
        void wake_up()

    cdef cppclass cpp_Activity "rapidsmpf::streaming::Activity":
        pass

    cdef cppclass cpp_Progress "rapidsmpf::streaming::detail::OutsideProgress":
        void set_in_loop()
        void found_waiting(uint64_t)

    cdef cppclass cpp_Operation "rapidsmpf::python::ChannelOperation":
        void set_actor(cpp_Activity*, cpp_Progress*, cpp_bool)
        cpp_bool start_on_loop(cpp_Mailbox&, PyObject*) except +translate_exception
        cpp_bool withdraw() except +translate_exception
        void run_blocking(cpp_bool) except +translate_exception
        cpp_bool succeeded() except +translate_exception
        cpp_bool take(cpp_Message&) except +translate_exception
        void put_back() except +translate_exception

cdef enum Kind:
    SEND
    RECEIVE
    DRAIN


cdef class LoopBox:
    cdef shared_ptr[cpp_Mailbox] _handle
    cdef Operation _first  # of those that wait

    cdef int add(self, Operation operation) except -1
    cdef int remove(self, Operation operation) except -1
    cdef int deliver(self) except -1


cdef LoopBox box_of(object loop)


cdef class ActorAccount:
    cdef shared_ptr[cpp_Activity] _activity
    cdef shared_ptr[cpp_Progress] _progress
    cdef object _loop  # that its coroutine runs in
    cdef LoopBox _box  # of that loop
    cdef unsigned long _thread  # of that loop; zero: not known yet
    cdef Channel _last_sent  # to which it has sent the last time
    cdef Channel _last_received

    cdef int sends(self, channel) except -1
    cdef int receives(self, channel) except -1


cdef class Operation:
    cdef optional[cpp_Operation] _handle
    cdef Channel _channel
    cdef ActorAccount _actor
    cdef Kind _kind
    cdef object _future
    cdef LoopBox _box  # of the loop that it waits in
    cdef Operation _next  # in it
    cdef Operation _before
    cdef cpp_bool _started
    cdef cpp_bool _done
    cdef cpp_bool _abandoned

    cdef cpp_bool must_wait(self) except? True
    cdef int abandon(self) except -1
    cdef int completed(self) except -1
    cdef object _result(self)
    cdef object block(self)


cdef class Channel:
    cdef shared_ptr[cpp_Channel] _handle
    cdef object _id

    @staticmethod
    cdef Channel from_handle(shared_ptr[cpp_Channel] handle)

    cdef Operation _operation(self, Kind kind, cpp_bool on_metadata, Message message=*)
    cdef int _end(self, cpp_bool shut, cpp_bool on_metadata) except -1
