"""Several ranks in one process, for tests: messages pass through memory, with injected delay and death."""

from libc.stdint cimport uint32_t, uint64_t
from libcpp.memory cimport shared_ptr
from libcpp.vector cimport vector

from rapidsmpf.communicator.communicator cimport Communicator, Rank, cpp_Communicator
from rapidsmpf.config cimport Options, cpp_Options
from rapidsmpf.error cimport translate_exception


cdef extern from "<rapidsmpf_python/communicators.hpp>" namespace "rapidsmpf::python" nogil:
    vector[shared_ptr[cpp_Communicator]] make_loopback(
        Rank, uint64_t, double, uint32_t, Rank, uint64_t, cpp_Options
    ) except +translate_exception

__all__ = ["new_cluster"]


def new_cluster(
    Rank nranks,
    uint64_t seed=0,
    *,
    double delay_probability=0.0,
    uint32_t longest_delay=20,
    dying_rank=None,
    uint64_t dies_after=0,
    Options options=None,
):
    """Return the communicators of a cluster of ranks in this process, by rank.

    Each rank is to be used by a thread of its own: collectives block.

    Parameters
    ----------
    nranks
        Number of ranks, at least 1.
    seed
        Which messages are held back depends on it and on nothing else.
    delay_probability
        The chance that a message is held back.
    longest_delay
        For how many turns of the receiver's progress thread it may be.
    dying_rank
        A rank that dies; None: none does.
    dies_after
        How many messages it sends before.
    options
        Options of all ranks.

    Raises
    ------
    ValueError
        If ``nranks`` is less than 1 or ``dying_rank`` is not a rank.
    """
    cdef Rank dying = -1
    if dying_rank is not None:
        if not 0 <= dying_rank < nranks:
            raise ValueError(f"dying_rank must be a rank in [0, {nranks}), got {dying_rank}")
        dying = dying_rank
    cdef cpp_Options opts
    if options is not None:
        opts = options._handle
    cdef vector[shared_ptr[cpp_Communicator]] handles
    with nogil:
        handles = make_loopback(
            nranks, seed, delay_probability, longest_delay, dying, dies_after, opts
        )
    return [Communicator.from_handle(handles[i]) for i in range(handles.size())]
