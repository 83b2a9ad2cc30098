"""The communicator of one rank, which has no other to send to."""

from libcpp.memory cimport shared_ptr

from rapidsmpf.communicator.communicator cimport Communicator, cpp_Communicator
from rapidsmpf.config cimport Options, cpp_Options
from rapidsmpf.error cimport translate_exception
from rapidsmpf.progress_thread cimport ProgressThread, cpp_ProgressThread


cdef extern from "<rapidsmpf_python/communicators.hpp>" namespace "rapidsmpf::python" nogil:
    shared_ptr[cpp_Communicator] make_single(
        cpp_Options, shared_ptr[cpp_ProgressThread]
    ) except +translate_exception

__all__ = ["new_communicator"]


def new_communicator(Options options not None, ProgressThread progress_thread=None):
    """Return a communicator of one rank.

    Parameters
    ----------
    options
        The options; ``log`` sets the level of the logger.
    progress_thread
        The thread that drives it; None: one of its own.
    """
    cdef cpp_Options opts = options._handle
    cdef shared_ptr[cpp_ProgressThread] thread
    cdef shared_ptr[cpp_Communicator] handle
    if progress_thread is not None:
        thread = progress_thread._handle
    with nogil:
        handle = make_single(opts, thread)
    return Communicator.from_handle(handle)
