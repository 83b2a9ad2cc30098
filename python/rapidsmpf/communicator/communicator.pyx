"""What all communicators have in common."""

from enum import IntEnum

from libcpp.utility cimport move

from rapidsmpf.progress_thread cimport ProgressThread

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
        """Write a message at level PRINT."""
        self._log(LOG_LEVEL.PRINT, msg)

    def warn(self, str msg not None):
        """Write a message at level WARN."""
        self._log(LOG_LEVEL.WARN, msg)

    def info(self, str msg not None):
        """Write a message at level INFO."""
        self._log(LOG_LEVEL.INFO, msg)

    def debug(self, str msg not None):
        """Write a message at level DEBUG."""
        self._log(LOG_LEVEL.DEBUG, msg)

    def trace(self, str msg not None):
        """Write a message at level TRACE."""
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
            self._handle.get().abort(text)

    def __repr__(self):
        return self.get_str()
