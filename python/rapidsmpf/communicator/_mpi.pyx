"""The compiled part of :mod:`rapidsmpf.communicator.mpi`, built where an MPI is found."""

from libc.stdint cimport int64_t
from libcpp.memory cimport shared_ptr
from libcpp.string cimport string

from rapidsmpf.communicator.communicator cimport Communicator, cpp_Communicator
from rapidsmpf.config cimport Options, cpp_Options
from rapidsmpf.error cimport translate_exception
from rapidsmpf.progress_thread cimport ProgressThread, cpp_ProgressThread


cdef extern from "<rapidsmpf_python/mpi.hpp>" namespace "rapidsmpf::python" nogil:
    cdef cppclass LiveCommunicators:
        void add(shared_ptr[cpp_Communicator])
        void abort(string)

cdef extern from "<rapidsmpf/mpi/mpi.hpp>" namespace "rapidsmpf" nogil:
    shared_ptr[cpp_Communicator] make_mpi_communicator(
        int64_t, cpp_Options, shared_ptr[cpp_ProgressThread]
    ) except +translate_exception
    string mpi_library_version() except +translate_exception

__all__ = ["abort_all", "library_version", "new_communicator"]

cdef LiveCommunicators live


def library_version():
    """Return what the MPI library says of itself."""
    return mpi_library_version().decode("utf-8", "replace")


def new_communicator(int64_t handle, Options options not None, ProgressThread progress_thread=None):
    """Return a communicator of the MPI communicator with this Fortran handle."""
    cdef cpp_Options opts = options._handle
    cdef shared_ptr[cpp_ProgressThread] thread
    cdef shared_ptr[cpp_Communicator] made
    if progress_thread is not None:
        thread = progress_thread._handle
    with nogil:
        made = make_mpi_communicator(handle, opts, thread)
        live.add(made)
    return Communicator.from_handle(made)


def abort_all(str reason not None):
    """Tell the other ranks of every live MPI communicator that this one gives up."""
    cdef string text = reason.encode("utf-8", "replace")
    with nogil:
        live.abort(text)
