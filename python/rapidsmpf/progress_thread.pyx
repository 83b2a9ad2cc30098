"""The thread that drives a communicator's asynchronous operations."""

from libcpp.memory cimport make_shared
from libcpp.utility cimport move

from rapidsmpf.statistics cimport Statistics

from rapidsmpf.signatures import STUB_SIGNATURE


cdef extern from * nogil:
    """
    #include <rapidsmpf/core/progress_thread.hpp>
    static std::shared_ptr<rapidsmpf::ProgressThread> make_progress_thread(
        std::shared_ptr<rapidsmpf::Statistics> statistics) {
        return std::make_shared<rapidsmpf::ProgressThread>(std::move(statistics));
    }
    """
    shared_ptr[cpp_ProgressThread] make_progress_thread(
        shared_ptr[cpp_Statistics]
    ) except +translate_exception

__all__ = ["ProgressThread"]


cdef class ProgressThread:
    """Drives the operations of the communicators that share it, and parks while there are none.

    It runs until the last communicator that uses it is gone.

    Parameters
    ----------
    statistics
        Where to record what it does; None: nowhere.
    """

    __signature__ = STUB_SIGNATURE

    def __init__(self, Statistics statistics=None):
        cdef shared_ptr[cpp_Statistics] stats
        if statistics is not None:
            stats = statistics._handle
        with nogil:
            self._handle = make_progress_thread(move(stats))

    def __dealloc__(self):
        # May join the thread.
        with nogil:
            self._handle.reset()

    @staticmethod
    cdef ProgressThread from_handle(shared_ptr[cpp_ProgressThread] handle):
        cdef ProgressThread self = ProgressThread.__new__(ProgressThread)
        self._handle = move(handle)
        return self

    @property
    def is_running(self):
        """Whether the thread runs."""
        return self._handle.get().is_running()

    def stop(self):
        """Stop the thread for good, so that its communicators can no longer make progress; idempotent."""
        with nogil:
            self._handle.get().stop()
