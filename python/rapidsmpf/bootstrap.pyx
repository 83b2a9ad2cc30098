"""How the processes of a job find each other: the launcher ``rrun`` and the communicator of its ranks."""

import sys
from enum import IntEnum

from libc.stdint cimport int32_t
from libcpp cimport bool as cpp_bool
from libcpp.memory cimport shared_ptr
from libcpp.optional cimport optional
from libcpp.string cimport string

from rapidsmpf.communicator.communicator cimport Communicator, cpp_Communicator
from rapidsmpf.config cimport Options, cpp_Options
from rapidsmpf.error import RankFailedError
from rapidsmpf.error cimport translate_exception
from rapidsmpf.progress_thread cimport ProgressThread, cpp_ProgressThread


cdef extern from * nogil:
    """
    #include <rapidsmpf/bootstrap/bootstrap.hpp>
    static std::shared_ptr<rapidsmpf::Communicator> make_job_communicator(
        rapidsmpf::config::Options options, std::shared_ptr<rapidsmpf::ProgressThread> progress_thread) {
        return rapidsmpf::bootstrap::create_ucxx_comm(std::move(options), std::move(progress_thread));
    }
    """
    shared_ptr[cpp_Communicator] make_job_communicator(
        cpp_Options, shared_ptr[cpp_ProgressThread]
    ) except +translate_exception

cdef extern from "<rapidsmpf/bootstrap/bootstrap.hpp>" namespace "rapidsmpf::bootstrap" nogil:
    cpp_bool cpp_is_running "rapidsmpf::bootstrap::is_running_with_rrun"()
    cpp_bool cpp_is_slurm "rapidsmpf::bootstrap::is_running_with_slurm"()
    int32_t cpp_get_rank "rapidsmpf::bootstrap::get_rank"() except +translate_exception
    int32_t cpp_get_nranks "rapidsmpf::bootstrap::get_nranks"() except +translate_exception
    void cpp_report_abort "rapidsmpf::bootstrap::report_abort"(string, optional[int32_t])

__all__ = [
    "BackendType",
    "create_ucxx_comm",
    "get_nranks",
    "get_rank",
    "is_running_with_rrun",
    "is_running_with_slurm",
    "report_abort",
]


class BackendType(IntEnum):
    """Where the ranks meet."""

    AUTO = 0
    """At whatever the launcher offers."""
    SOCKET = 1
    """At the coordinator inside ``rrun``, or inside rank 0 of a batch system's step."""


def is_running_with_rrun():
    """Whether this process was started by ``rrun``."""
    return cpp_is_running()


def is_running_with_slurm():
    """Whether this process is a task of Slurm that was started without ``rrun``."""
    return cpp_is_slurm()


def get_rank():
    """Return this process's rank: ``RRUN_RANK``, ``PMIX_RANK`` or ``SLURM_PROCID``, whichever is set first.

    Raises
    ------
    RuntimeError
        If this process was not started by a launcher.
    """
    cdef int32_t rank
    with nogil:
        rank = cpp_get_rank()
    return rank


def get_nranks():
    """Return the number of ranks.

    Raises
    ------
    RuntimeError
        If this process was not started by a launcher.
    """
    cdef int32_t nranks
    with nogil:
        nranks = cpp_get_nranks()
    return nranks


def report_abort(str reason not None, *, culprit=None):
    """Tell the other ranks of the job that this one gives up.

    Their pending and later waits raise RankFailedError with the reason. Needs no communicator, never raises, and does
    nothing when this process was not started by a launcher.

    Parameters
    ----------
    reason
        Why, such as "ValueError: no such column".
    culprit
        The rank that is to blame, if it is another: its error is the job's then.
    """
    cdef string text = reason.encode("utf-8", "replace")
    cdef optional[int32_t] rank
    if culprit is not None:
        rank = <int32_t> culprit
    with nogil:
        cpp_report_abort(text, rank)


def _report_uncaught(previous):
    """Return an excepthook that reports the exception to the other ranks, then calls ``previous``."""

    def hook(exception_type, exception, traceback):
        try:
            message = str(exception)
        except Exception:
            message = "<its text cannot be read>"
        name = exception_type.__name__
        if isinstance(exception, RankFailedError) and exception.rank >= 0:
            report_abort(exception.reason, culprit=exception.rank)
        else:
            report_abort(f"{name}: {message}" if message else name)
        previous(exception_type, exception, traceback)

    hook.reports_to_rrun = True
    return hook


def create_ucxx_comm(
    ProgressThread progress_thread=None, type=BackendType.AUTO, Options options=None
):
    """Return a communicator of all ranks of the job: rank k of the launcher is rank k of the communicator.

    Under ``rrun`` the ranks meet at its coordinator. Without it, the processes of a batch system's step (``srun``,
    ``mpirun``) meet at one in rank 0, which they find through PMIx, or through Slurm's variables with a secret in
    ``RRUN_TOKEN``. Every rank has to call this; the n-th call on each rank makes one communicator. From then on an exception that
    ends this process is reported to the other ranks, so that their errors say the reason.

    Parameters
    ----------
    progress_thread
        The thread that drives the communicator; None: one of its own.
    type
        Where the ranks meet.
    options
        ``bootstrap_timeout`` (default 120 s) limits the wait for the other ranks; None: the environment's.

    Raises
    ------
    RuntimeError
        If this process was not started by a launcher, or its ranks cannot find each other; the message says what is
        missing.
    TimeoutError
        If some ranks did not come in time; the message names them.
    RankFailedError
        If a rank failed.
    """
    from rapidsmpf.config import get_environment_variables

    BackendType(type)
    if options is None:
        options = Options(get_environment_variables())
    cdef cpp_Options opts = options._handle
    cdef shared_ptr[cpp_ProgressThread] thread
    cdef shared_ptr[cpp_Communicator] handle
    if progress_thread is not None:
        thread = progress_thread._handle
    if (cpp_is_running() or cpp_is_slurm()) and not getattr(sys.excepthook, "reports_to_rrun", False):
        sys.excepthook = _report_uncaught(sys.excepthook)
    with nogil:
        handle = make_job_communicator(opts, thread)
    return Communicator.from_handle(handle)
