"""Small collectives in one call: a barrier, a broadcast of a few bytes, and giving up a range of collectives."""

from libc.stdint cimport int32_t, uint8_t
from libcpp.memory cimport shared_ptr
from libcpp.string cimport string
from libcpp.utility cimport move
from libcpp.vector cimport vector

from rapidsmpf.communicator.communicator cimport Communicator, cpp_Communicator
from rapidsmpf.error cimport translate_exception


cdef extern from "<rapidsmpf_python/collectives.hpp>" namespace "rapidsmpf::python" nogil:
    void cpp_barrier "rapidsmpf::python::barrier"(
        shared_ptr[cpp_Communicator], int32_t, double
    ) except +translate_exception
    vector[uint8_t] cpp_broadcast_bytes "rapidsmpf::python::broadcast_bytes"(
        shared_ptr[cpp_Communicator], int32_t, int32_t, vector[uint8_t], double
    ) except +translate_exception
    void cpp_abandon_operations "rapidsmpf::python::abandon_operations"(
        shared_ptr[cpp_Communicator], int32_t, int32_t, string, int32_t
    ) except +translate_exception

    void cpp_forget_operations "rapidsmpf::python::forget_operations"(
        shared_ptr[cpp_Communicator], int32_t, int32_t
    ) except +translate_exception

__all__ = ["abandon_operations", "barrier", "broadcast_bytes", "forget_operations"]


def abandon_operations(Communicator comm not None, int32_t first, int32_t last, str reason not None, *, origin=None):
    """End all collectives of a range of ids on every rank; the communicator stays usable.

    For work of several collectives that one rank cannot finish: the other ranks need not know which of them it would
    have come to. Pending and later calls of those that are not complete raise RankFailedError with the reason, on every
    rank, and their ids cannot be used from then on. One rank that calls this is enough. Returns at once.

    Parameters
    ----------
    comm
        The ranks.
    first, last
        The first and the last id.
    reason
        Why, such as "ValueError: no such column".
    origin
        The rank that is to blame; None: this one.

    Raises
    ------
    ValueError
        If there is no such range or rank.
    RankFailedError
        If the communicator is unusable already.
    """
    cdef string text = reason.encode("utf-8", "replace")
    cdef int32_t culprit = comm.rank if origin is None else origin
    with nogil:
        cpp_abandon_operations(comm._handle, first, last, text, culprit)


def forget_operations(Communicator comm not None, int32_t first, int32_t last):
    """Make the ids of a range free again that were given up by :func:`abandon_operations`.

    For who numbers operations round and round: on every rank, when the range was last used half a round ago.

    Parameters
    ----------
    comm
        The ranks.
    first, last
        The first and the last id.

    Raises
    ------
    RankFailedError
        If the communicator is unusable.
    """
    with nogil:
        cpp_forget_operations(comm._handle, first, last)


def barrier(Communicator comm not None, int32_t op_id, *, timeout=None):
    """Return when every rank has called this.

    Parameters
    ----------
    comm
        The ranks.
    op_id
        The operation's id, the same on all ranks and used by no other operation that is in progress.
    timeout
        Seconds; None: the option ``collective_timeout`` (30 min), ``math.inf``: no limit.

    Raises
    ------
    ValueError
        If the id is in use or out of range.
    TimeoutError
        If the time is up; the message names the ranks that are missing.
    RankFailedError
        If a rank failed, or left without having called this.
    """
    cdef double seconds = -1 if timeout is None else max(0.0, timeout)
    with nogil:
        cpp_barrier(comm._handle, op_id, seconds)


def broadcast_bytes(Communicator comm not None, int32_t op_id, value, int32_t root=0, *, timeout=None):
    """Give every rank the bytes of one of them.

    Parameters
    ----------
    comm
        The ranks.
    op_id
        The operation's id, the same on all ranks and used by no other operation that is in progress.
    value
        The root's bytes: something small. Those of the other ranks are not looked at, and may be None.
    root
        The rank whose bytes they are, the same on all ranks.
    timeout
        Seconds; None: the option ``collective_timeout`` (30 min), ``math.inf``: no limit.

    Returns
    -------
    The root's bytes.

    Raises
    ------
    TypeError
        If the root's value is not bytes.
    ValueError
        If the ranks disagree about the root, there is no such rank, or the id is in use or out of range.
    TimeoutError
        If the time is up; the message names the ranks that are missing: all ranks have to call this.
    RankFailedError
        If a rank failed, or left without having called this.
    """
    cdef double seconds = -1 if timeout is None else max(0.0, timeout)
    cdef vector[uint8_t] mine
    cdef vector[uint8_t] result
    cdef const uint8_t* begin
    if comm.rank == root:
        if not isinstance(value, bytes):
            raise TypeError(f"the root broadcasts bytes, not {type(value).__name__}")
        begin = <const uint8_t*> <const char*> (<bytes> value)
        mine.assign(begin, begin + len(value))
    with nogil:
        result = cpp_broadcast_bytes(comm._handle, op_id, root, move(mine), seconds)
    return (<char*> result.data())[:result.size()]
