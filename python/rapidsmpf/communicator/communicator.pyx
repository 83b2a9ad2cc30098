"""What all communicators have in common."""

from enum import IntEnum

from libc.stdint cimport int32_t
from libcpp.utility cimport move

from rapidsmpf.progress_thread cimport ProgressThread


cdef extern from "<rapidsmpf_python/communicators.hpp>" namespace "rapidsmpf::python" nogil:
    shared_ptr[cpp_Communicator] split_interruptibly(
        shared_ptr[cpp_Communicator], int32_t, int32_t, double
    ) except +translate_exception

__all__ = ["LOG_LEVEL", "Communicator", "Logger"]


class LOG_LEVEL(IntEnum):
    """How much a logger writes: everything up to its level."""

    NONE = 0
    PRINT = 1
    WARN = 2
    INFO = 3
    DEBUG = 4
    TRACE = 5


cdef class Logger:
    """Writes log lines of a rank to stderr. Comes from :attr:`Communicator.logger`.

    A line is ``[LEVEL:rank:thread:time] message``, written whole: those of threads, and of ranks that share a
    terminal, never mix. A message of several lines is written as several log lines.

    The option ``log`` (environment: ``RAPIDSMPF_LOG``) sets the level: NONE, PRINT, WARN (default), INFO, DEBUG or
    TRACE.
    """

    def __init__(self):
        raise TypeError("a logger comes from Communicator.logger")

    @property
    def verbosity_level(self):
        """The level."""
        return LOG_LEVEL(<int> self._comm.get().logger().verbosity_level())

    cdef _log(self, unsigned char level, str message):
        cdef string text = message.encode("utf-8", "replace")
        with nogil:
            self._comm.get().logger().log(<cpp_LogLevel> level, text)

    def print(self, str msg not None):
        """Write a message at level PRINT.

        Parameters
        ----------
        msg
            The message.
        """
        self._log(LOG_LEVEL.PRINT, msg)

    def warn(self, str msg not None):
        """Write a message at level WARN.

        Parameters
        ----------
        msg
            The message.
        """
        self._log(LOG_LEVEL.WARN, msg)

    def info(self, str msg not None):
        """Write a message at level INFO.

        Parameters
        ----------
        msg
            The message.
        """
        self._log(LOG_LEVEL.INFO, msg)

    def debug(self, str msg not None):
        """Write a message at level DEBUG.

        Parameters
        ----------
        msg
            The message.
        """
        self._log(LOG_LEVEL.DEBUG, msg)

    def trace(self, str msg not None):
        """Write a message at level TRACE.

        Parameters
        ----------
        msg
            The message.
        """
        self._log(LOG_LEVEL.TRACE, msg)


cdef class Communicator:
    """A set of ranks that can send each other bytes. Made by ``new_communicator`` of a backend."""

    def __init__(self):
        raise TypeError(
            "Communicator is abstract: use rapidsmpf.communicator.<backend>.new_communicator "
            "or rapidsmpf.bootstrap.create_ucxx_comm"
        )

    def __dealloc__(self):
        # Delivers what is still being sent, and may join the progress thread.
        with nogil:
            self._handle.reset()

    @staticmethod
    cdef Communicator from_handle(shared_ptr[cpp_Communicator] handle):
        cdef Communicator self = Communicator.__new__(Communicator)
        self._handle = move(handle)
        return self

    @property
    def rank(self):
        """This process's rank, ``0 <= rank < nranks``."""
        return self._handle.get().rank()

    @property
    def nranks(self):
        """Number of ranks."""
        return self._handle.get().nranks()

    @property
    def logger(self):
        """The logger of this rank."""
        cdef Logger result = Logger.__new__(Logger)
        result._comm = self._handle
        return result

    @property
    def progress_thread(self):
        """The thread that drives this communicator."""
        return ProgressThread.from_handle(self._handle.get().progress_thread())

    def get_str(self):
        """Return a description: backend, rank, number of ranks, transports."""
        cdef string text
        with nogil:
            text = self._handle.get().str()
        return text.decode()

    def check(self):
        """Raise RankFailedError if a rank has failed, so that this communicator is unusable."""
        with nogil:
            self._handle.get().check()

    def abort(self, str reason not None):
        """Tell the other ranks that this one gives up.

        Every pending and later wait of every rank, this one included, raises RankFailedError with the reason.

        Parameters
        ----------
        reason
            Why, for the other ranks' errors.
        """
        cdef string text = reason.encode("utf-8", "replace")
        with nogil:
            self._handle.get().check_process()
            self._handle.get().abort(text)

    def split(self, color, int32_t key=0, *, timeout=None):
        """Make communicators of some of the ranks.

        Every rank of this communicator has to call it, in the same order among its calls. Ranks with the same colour
        get a communicator together, in which they are numbered by key, then by rank here. Its messages meet none of
        this one's, and it keeps this one alive. When this communicator fails, it fails as well: a member by its rank
        there, any other rank as -1.

        Parameters
        ----------
        color
            Which communicator this rank wants to be in, at least 0; None or a negative number: in none.
        key
            Where in it.
        timeout
            Seconds to wait for the other ranks; None: no limit. After a timeout this communicator cannot be split
            any more.

        Returns
        -------
        The new communicator; None without a colour.

        Raises
        ------
        TimeoutError
            If some ranks did not come in time; the message names them.
        RankFailedError
            If a rank failed or has left.
        OverflowError
            If the colour or the key has more than 32 bits.
        """
        cdef int32_t wanted = -1
        if color is not None and color >= 0:
            wanted = color
        cdef double seconds = -1 if timeout is None else max(0.0, timeout)
        cdef shared_ptr[cpp_Communicator] handle
        with nogil:
            handle = split_interruptibly(self._handle, wanted, key, seconds)
        return Communicator.from_handle(handle) if handle else None

    def __repr__(self):
        return self.get_str()
