"""Each rank sends chunks to the ranks it names and gets those of the ranks it names as sources."""

from libcpp.memory cimport unique_ptr
from libcpp.utility cimport move

from rapidsmpf.communicator.communicator cimport cpp_Communicator
from rapidsmpf.config cimport Options, cpp_Options
from rapidsmpf.memory.buffer_resource cimport BufferResource, cpp_BufferResource
from rapidsmpf.memory.packed_data cimport PackedData, cpp_PackedData
from rapidsmpf.shuffler cimport cpp_ExchangeSettings, exchange_settings

from rapidsmpf.signatures import STUB_SIGNATURE


cdef extern from "<rapidsmpf_python/collectives.hpp>" namespace "rapidsmpf::python" nogil:
    shared_ptr[cpp_SparseAlltoall] make_sparse_alltoall(
        shared_ptr[cpp_Communicator], int32_t, shared_ptr[cpp_BufferResource], vector[int32_t],
        vector[int32_t], const cpp_ExchangeSettings&
    ) except +translate_exception
    void insert_for_rank(
        cpp_SparseAlltoall&, int32_t, unique_ptr[cpp_PackedData]
    ) except +translate_exception
    void wait_for_sources(cpp_SparseAlltoall&, double) except +translate_exception
    vector[unique_ptr[cpp_PackedData]] extract_from(
        cpp_SparseAlltoall&, int32_t
    ) except +translate_exception

__all__ = ["SparseAlltoall"]


cdef class SparseAlltoall:
    """Exchanges chunks between the pairs of ranks that have something to say to each other.

    Rank ``b`` is among the ``dsts`` of rank ``a`` exactly if ``a`` is among the ``srcs`` of ``b``; lists that do not
    agree are an error. All methods may be called by any thread. Once a rank has failed, every call raises
    RankFailedError.

    Parameters
    ----------
    comm
        The ranks. All of them make this object, those with empty lists, too.
    op_id
        The operation's id, the same on all ranks and used by no other operation that is in progress. It may be used
        again when this object is gone.
    br
        Where the memory comes from.
    srcs
        The ranks from which this one gets chunks, in any order.
    dsts
        The ranks to which this one sends chunks, in any order.
    options
        Options of the exchange (``exchange_frame_bytes`` and so on); None: the defaults.

    Raises
    ------
    ValueError
        If a list names a rank twice or one that does not exist, or the id is in use or out of range.
    """

    __signature__ = STUB_SIGNATURE

    def __init__(
        self,
        Communicator comm not None,
        int32_t op_id,
        BufferResource br not None,
        srcs,
        dsts,
        *,
        Options options=None,
    ):
        cdef cpp_ExchangeSettings settings
        cdef cpp_Options opts
        cdef vector[int32_t] sources = list(srcs)
        cdef vector[int32_t] destinations = list(dsts)
        if options is not None:
            opts = options._handle
        with nogil:
            settings = exchange_settings(opts)
        with nogil:
            self._handle = make_sparse_alltoall(
                comm._handle, op_id, br._handle, sources, destinations, settings
            )
        self._comm = comm

    def __dealloc__(self):
        with nogil:
            self._handle.reset()

    @property
    def comm(self):
        """The ranks."""
        return self._comm

    @property
    def srcs(self):
        """The ranks from which this one gets chunks."""
        return list(self._handle.get().sources())

    @property
    def dsts(self):
        """The ranks to which this one sends chunks."""
        return list(self._handle.get().destinations())

    def insert(self, int32_t dst, PackedData packed_data not None):
        """Send a chunk to a rank; it is taken, and left empty.

        Parameters
        ----------
        dst
            One of the destinations.
        packed_data
            The chunk.

        Raises
        ------
        RuntimeError
            After :meth:`insert_finished`.
        ValueError
            If the rank is not among the destinations, or the chunk's data has been taken already.
        """
        cdef unique_ptr[cpp_PackedData] chunk
        if dst not in self.dsts:
            raise ValueError(f"rank {dst} is not among the destinations {self.dsts}")
        chunk = packed_data.take()
        with nogil:
            insert_for_rank(self._handle.get()[0], dst, move(chunk))

    def insert_finished(self):
        """Say that this rank sends nothing more; RuntimeError the second time."""
        with nogil:
            self._handle.get().insert_finished()

    def finished(self):
        """Whether everything of every source has arrived."""
        cdef cpp_bool result
        with nogil:
            result = self._handle.get().finished()
        return result

    def wait(self, *, timeout=None):
        """Wait for all chunks of all sources.

        Parameters
        ----------
        timeout
            Seconds; None: the option ``collective_timeout`` (30 min), ``math.inf``: no limit.

        Raises
        ------
        ValueError
            If the ranks' lists do not agree.
        TimeoutError
            If the time is up; the message names the ranks that are missing.
        RankFailedError
            If a rank failed.
        """
        cdef double seconds = -1 if timeout is None else max(0.0, timeout)
        with nogil:
            wait_for_sources(self._handle.get()[0], seconds)

    def extract(self, int32_t src):
        """Take out the chunks of a source.

        Parameters
        ----------
        src
            One of the sources.

        Returns
        -------
        Its chunks in the order in which it inserted them; none the second time.

        Raises
        ------
        RuntimeError
            Before :meth:`wait` has returned.
        ValueError
            If the rank is not among the sources.
        """
        cdef vector[unique_ptr[cpp_PackedData]] chunks
        with nogil:
            chunks = extract_from(self._handle.get()[0], src)
        return [PackedData.from_handle(move(chunks[i])) for i in range(chunks.size())]
