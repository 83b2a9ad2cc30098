"""Every rank gives any number of chunks and gets those of all ranks."""

from libcpp.utility cimport move

from rapidsmpf.config cimport Options, cpp_Options
from rapidsmpf.memory.buffer_resource cimport BufferResource
from rapidsmpf.memory.packed_data cimport PackedData
from rapidsmpf.shuffler cimport cpp_ExchangeSettings, exchange_settings
from rapidsmpf.statistics cimport Statistics

from rapidsmpf.signatures import STUB_SIGNATURE


cdef extern from "<rapidsmpf_python/collectives.hpp>" namespace "rapidsmpf::python" nogil:
    shared_ptr[cpp_AllGather] make_allgather(
        shared_ptr[cpp_Communicator], int32_t, shared_ptr[cpp_BufferResource], const cpp_ExchangeSettings&
    ) except +translate_exception
    void insert_chunk(
        cpp_AllGather&, uint64_t, unique_ptr[cpp_PackedData]
    ) except +translate_exception
    vector[unique_ptr[cpp_PackedData]] cpp_wait_and_extract "rapidsmpf::python::wait_and_extract"(
        cpp_AllGather&, cpp_bool, double
    ) except +translate_exception
    vector[unique_ptr[cpp_PackedData]] cpp_extract_ready "rapidsmpf::python::extract_ready"(
        cpp_AllGather&
    ) except +translate_exception
    vector[vector[uint8_t]] cpp_allgather_bytes "rapidsmpf::python::allgather_bytes"(
        shared_ptr[cpp_Communicator], int32_t, vector[uint8_t], double
    ) except +translate_exception

__all__ = ["AllGather", "allgather_bytes"]


cdef class AllGather:
    """Gathers the chunks of all ranks on every rank.

    All methods may be called by any thread. Once a rank has failed, every call raises RankFailedError.

    Parameters
    ----------
    comm
        The ranks.
    op_id
        The operation's id, the same on all ranks and used by no other operation that is in progress. It may be used
        again when this object is gone.
    br
        Where the memory comes from.
    statistics
        Accepted for compatibility: what happens is recorded in the statistics of ``br``.
    options
        Options of the exchange (``exchange_frame_bytes`` and so on); None: the defaults.

    Raises
    ------
    ValueError
        If the id is in use or out of range.
    """

    __signature__ = STUB_SIGNATURE

    def __init__(
        self,
        Communicator comm not None,
        int32_t op_id,
        BufferResource br not None,
        Statistics statistics=None,
        *,
        Options options=None,
    ):
        cdef cpp_ExchangeSettings settings
        cdef cpp_Options opts
        if options is not None:
            opts = options._handle
        with nogil:
            settings = exchange_settings(opts)
        with nogil:
            self._handle = make_allgather(comm._handle, op_id, br._handle, settings)
        self._comm = comm

    def __dealloc__(self):
        with nogil:
            self._handle.reset()

    @property
    def comm(self):
        """The ranks."""
        return self._comm

    def insert(self, uint64_t sequence_number, PackedData packed_data not None):
        """Give a chunk; it is taken, and left empty.

        Parameters
        ----------
        sequence_number
            The chunk's place among those of this rank.
        packed_data
            The chunk.

        Raises
        ------
        RuntimeError
            After :meth:`insert_finished`.
        ValueError
            If the chunk's data has been taken already.
        """
        cdef unique_ptr[cpp_PackedData] chunk = packed_data.take()
        with nogil:
            insert_chunk(self._handle.get()[0], sequence_number, move(chunk))

    def insert_finished(self):
        """Say that this rank gives nothing more; RuntimeError the second time."""
        with nogil:
            self._handle.get().insert_finished()

    def finished(self):
        """Whether everything of every rank has arrived."""
        cdef cpp_bool result
        with nogil:
            result = self._handle.get().finished()
        return result

    def wait_and_extract(self, bint ordered=True, timeout_ms=-1):
        """Wait for the chunks of all ranks and take them out.

        Parameters
        ----------
        ordered
            Whether to order them by rank and sequence number.
        timeout_ms
            Milliseconds; negative: the option ``collective_timeout`` (30 min), ``math.inf``: no limit.

        Returns
        -------
        The chunks, but for those that :meth:`extract_ready` took.

        Raises
        ------
        TimeoutError
            If the time is up; the message names the ranks that are missing.
        RankFailedError
            If a rank failed.
        """
        cdef double seconds = timeout_ms / 1000
        cdef cpp_bool order = ordered
        cdef vector[unique_ptr[cpp_PackedData]] chunks
        with nogil:
            chunks = cpp_wait_and_extract(self._handle.get()[0], order, seconds)
        return [PackedData.from_handle(move(chunks[i])) for i in range(chunks.size())]

    def extract_ready(self):
        """Take out the chunks that have arrived, in no order, without waiting."""
        cdef vector[unique_ptr[cpp_PackedData]] chunks
        with nogil:
            chunks = cpp_extract_ready(self._handle.get()[0])
        return [PackedData.from_handle(move(chunks[i])) for i in range(chunks.size())]


def allgather_bytes(Communicator comm not None, int32_t op_id, bytes value not None, *, timeout=None):
    """Give every rank the bytes of each rank.

    Parameters
    ----------
    comm
        The ranks.
    op_id
        As for :class:`AllGather`.
    value
        This rank's bytes: something small.
    timeout
        Seconds; None: the option ``collective_timeout`` (30 min), ``math.inf``: no limit.

    Returns
    -------
    The bytes by rank.

    Raises
    ------
    TimeoutError
        If the time is up; the message names the ranks that are missing.
    RankFailedError
        If a rank failed.
    """
    cdef double seconds = -1 if timeout is None else max(0.0, timeout)
    cdef vector[uint8_t] mine
    cdef const uint8_t* begin = <const uint8_t*> <const char*> value
    cdef vector[vector[uint8_t]] all_bytes
    mine.assign(begin, begin + len(value))
    with nogil:
        all_bytes = cpp_allgather_bytes(comm._handle, op_id, move(mine), seconds)
    return [
        (<char*> all_bytes[i].data())[:all_bytes[i].size()] for i in range(all_bytes.size())
    ]
