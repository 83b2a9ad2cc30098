"""The communicator between processes, over UCX: shared memory, TCP, InfiniBand, cuda_ipc."""

import sys

from libc.stdint cimport uint8_t, uintptr_t
from libcpp cimport bool as cpp_bool
from libcpp.memory cimport shared_ptr
from libcpp.utility cimport move
from libcpp.vector cimport vector

from rapidsmpf.communicator.communicator cimport Communicator, Rank, cpp_Communicator
from rapidsmpf.config cimport Options, cpp_Options
from rapidsmpf.error cimport translate_exception
from rapidsmpf.progress_thread cimport ProgressThread, cpp_ProgressThread


cdef extern from "<rapidsmpf_python/ucxx.hpp>" namespace "rapidsmpf::python" nogil:
    shared_ptr[cpp_Communicator] join_ucxx(
        Rank, uintptr_t, cpp_bool, cpp_bool, vector[uint8_t], cpp_Options, shared_ptr[cpp_ProgressThread]
    ) except +translate_exception
    vector[uint8_t] ucxx_address(shared_ptr[cpp_Communicator]) except +translate_exception
    void ucxx_barrier(shared_ptr[cpp_Communicator], double) except +translate_exception

__all__ = ["barrier", "get_root_ucxx_address", "new_communicator"]


def _ucxx_class(name):
    """Return a class of the ucxx package if that has been imported: without it there is no instance."""
    module = sys.modules.get("ucxx._lib.libucxx")
    return getattr(module, name, None)


def new_communicator(
    Rank nranks,
    ucx_worker,
    root_ucxx_address,
    Options options not None,
    ProgressThread progress_thread=None,
):
    """Return a communicator of several processes.

    The first process makes the root (rank 0) and hands its address (:func:`get_root_ucxx_address`) to the others by
    other means; they get their ranks in order of arrival. Then all call :func:`barrier`.

    Parameters
    ----------
    nranks
        Number of ranks.
    ucx_worker
        A ``ucxx`` worker to use (``ucxx._lib.libucxx.UCXWorker``); None: a new one.
    root_ucxx_address
        Address of the root: the bytes of :func:`get_root_ucxx_address`, or a ``ucxx`` address made of them; None on the
        root itself. The bytes hold the token that lets a process in, which the address of the root's worker alone
        lacks. Damaged ones are refused.
    options
        The options: ``ucxx_join_timeout`` (default 120 s) limits the wait for the root; ``ucxx_reach`` is ``anywhere``
        (default), or ``one-host`` for ranks that can share memory, which then open no port; ``ucxx_progress_mode`` is
        ``thread-blocking`` (default) or ``thread-polling``; ``coordinator_host`` is the IPv4 address of the interface
        on which the root listens for the ends of ranks (default 127.0.0.1; needed for ranks on several hosts).
    progress_thread
        The thread that drives it; None: one of its own.

    Raises
    ------
    TimeoutError
        If the root does not answer.
    ValueError
        If ``nranks`` is less than 1, the root has all its ranks, the address is damaged, or an option is wrong.
    TypeError
        If the worker or the address is of another type.
    """
    cdef uintptr_t worker = 0
    if ucx_worker is not None:
        worker_class = _ucxx_class("UCXWorker")
        if worker_class is None or not isinstance(ucx_worker, worker_class):
            raise TypeError(f"ucx_worker must be a ucxx UCXWorker or None, got {type(ucx_worker).__name__}")
        worker = ucx_worker.ucxx_ptr
    cdef vector[uint8_t] root
    cdef const uint8_t* begin
    cdef cpp_bool is_ours = isinstance(root_ucxx_address, bytes)
    if root_ucxx_address is not None:
        address_class = _ucxx_class("UCXAddress")
        if address_class is not None and isinstance(root_ucxx_address, address_class):
            root_ucxx_address = root_ucxx_address.tobytes()
        if not isinstance(root_ucxx_address, bytes):
            raise TypeError(
                "root_ucxx_address must be a ucxx UCXAddress, bytes or None, "
                f"got {type(root_ucxx_address).__name__}"
            )
        begin = <const uint8_t*> <const char*> root_ucxx_address
        root.assign(begin, begin + len(root_ucxx_address))
    cdef cpp_bool has_root = root_ucxx_address is not None
    cdef cpp_Options opts = options._handle
    cdef shared_ptr[cpp_ProgressThread] thread
    cdef shared_ptr[cpp_Communicator] handle
    if progress_thread is not None:
        thread = progress_thread._handle
    with nogil:
        handle = join_ucxx(nranks, worker, has_root, is_ours, move(root), opts, thread)
    return Communicator.from_handle(handle)


def get_root_ucxx_address(Communicator comm not None):
    """Return the bytes by which other processes reach a rank's UCXX worker (the root's, on the root).

    They are an address for UCX, too: what follows UCX's own bytes, the token that lets a process in and what shows
    damage, UCX does not look at. Who has the bytes may join: keep them as you would a password.

    Parameters
    ----------
    comm
        A UCXX communicator, not one of a split.

    Raises
    ------
    ValueError
        If it is not a UCXX communicator.
    """
    cdef vector[uint8_t] address
    with nogil:
        address = ucxx_address(comm._handle)
    return (<char*> address.data())[:address.size()]


def barrier(Communicator comm not None, *, timeout=None):
    """Return when every rank has called this.

    Needed once after :func:`new_communicator`: it makes sure that all ranks are connected.

    Parameters
    ----------
    comm
        A UCXX communicator.
    timeout
        Seconds; None: no limit.

    Raises
    ------
    TimeoutError
        If some ranks did not come in time; the message names them.
    RankFailedError
        If a rank failed.
    ValueError
        If it is not a UCXX communicator.
    """
    cdef double seconds = -1 if timeout is None else max(0.0, timeout)
    with nogil:
        ucxx_barrier(comm._handle, seconds)
