"""All-to-all exchange of partitioned data between ranks."""

from enum import IntEnum
from time import monotonic

from libc.stdint cimport int64_t
from libcpp.utility cimport move

from rapidsmpf.config cimport Options
from rapidsmpf.memory.buffer_resource cimport BufferResource
from rapidsmpf.memory.packed_data cimport PackedData

from rapidsmpf.signatures import STUB_SIGNATURE


cdef extern from "<rapidsmpf_python/collectives.hpp>" namespace "rapidsmpf::python" nogil:
    shared_ptr[cpp_Shuffler] make_shuffler(
        shared_ptr[cpp_Communicator], int32_t, uint32_t, shared_ptr[cpp_BufferResource], cpp_bool,
        const cpp_ExchangeSettings&
    ) except +translate_exception
    void cpp_insert_chunks "rapidsmpf::python::insert_chunks"(
        cpp_Shuffler&, vector[uint32_t], vector[unique_ptr[cpp_PackedData]]
    ) except +translate_exception
    uint32_t cpp_wait_any "rapidsmpf::python::wait_any"(cpp_Shuffler&, double) except +translate_exception
    void cpp_wait_on "rapidsmpf::python::wait_on"(
        cpp_Shuffler&, uint32_t, double
    ) except +translate_exception
    size_t cpp_spill "rapidsmpf::python::spill"(cpp_Shuffler&, int64_t) except +translate_exception
    void shut_down(cpp_Shuffler&, double) except +translate_exception
    vector[unique_ptr[cpp_PackedData]] cpp_extract "rapidsmpf::python::extract"(
        cpp_Shuffler&, uint32_t
    ) except +translate_exception

cdef extern from "<rapidsmpf/communicator/communicator.hpp>" namespace "rapidsmpf" nogil:
    int32_t max_op_id "rapidsmpf::Tag::max_op_id"

__all__ = ["PartitionAssignment", "Shuffler"]


class PartitionAssignment(IntEnum):
    """Which rank owns partition p of n on r ranks."""

    ROUND_ROBIN = 0
    """``p % r``: for balance."""
    CONTIGUOUS = 1
    """``p * r // n``: rank order is partition order, as after a sort."""


cdef class Shuffler:
    """Exchanges chunks of partitions, so that each partition is whole on the rank that owns it.

    Every rank makes a shuffler with the same operation id and number of partitions, inserts chunks into any
    partition, says when it is finished, and takes out the partitions that it owns. All methods may be called by any
    thread. Once a rank has failed, every call raises RankFailedError.

    Parameters
    ----------
    comm
        The ranks.
    op_id
        The operation's id, ``0 <= op_id < max_concurrent_shuffles``, the same on all ranks and used by no other
        operation that is in progress. It may be used again when this object is gone or shut down.
    total_num_partitions
        Number of partitions over all ranks.
    br
        Where the memory comes from.
    partition_assignment
        Which rank owns which partition.
    options
        Options of the exchange (``exchange_frame_bytes`` and so on); None: the defaults.

    Raises
    ------
    ValueError
        If the id is in use or out of range, or there are no partitions.
    """

    __signature__ = STUB_SIGNATURE

    max_concurrent_shuffles = max_op_id  # the largest id is the exchange's own

    def __init__(
        self,
        Communicator comm not None,
        int32_t op_id,
        uint32_t total_num_partitions,
        BufferResource br not None,
        partition_assignment=PartitionAssignment.ROUND_ROBIN,
        *,
        Options options=None,
    ):
        cdef cpp_bool contiguous = PartitionAssignment(partition_assignment) == PartitionAssignment.CONTIGUOUS
        cdef cpp_ExchangeSettings settings
        cdef cpp_Options opts
        if options is not None:
            opts = options._handle
        with nogil:
            settings = exchange_settings(opts)
        with nogil:
            self._handle = make_shuffler(
                comm._handle, op_id, total_num_partitions, br._handle, contiguous, settings
            )
        self._comm = comm

    def __dealloc__(self):
        with nogil:
            self._handle.reset()

    cdef shared_ptr[cpp_Shuffler] open(self) except *:
        # Each call shares the handle, so that shutdown() by another thread does not pull it away.
        if self._handle.get() == NULL:
            raise RuntimeError("this shuffler has been shut down")
        return self._handle

    @property
    def comm(self):
        """The ranks."""
        return self._comm

    @property
    def total_num_partitions(self):
        """Number of partitions over all ranks."""
        cdef shared_ptr[cpp_Shuffler] handle = self.open()
        return handle.get().total_partitions()

    def insert_chunks(self, chunks):
        """Insert chunks; they are taken, and left empty.

        Parameters
        ----------
        chunks
            Packed data by partition. Empty ones are skipped. All or nothing is inserted.

        Raises
        ------
        IndexError
            If a partition does not exist.
        RuntimeError
            If this rank has finished a partition.
        ValueError
            If a chunk's data has been taken already.
        TypeError
            If a chunk is not PackedData.
        """
        cdef shared_ptr[cpp_Shuffler] handle = self.open()
        cdef vector[uint32_t] partitions
        cdef vector[unique_ptr[cpp_PackedData]] taken
        cdef uint32_t total = handle.get().total_partitions()
        # Checked first, so that nothing is taken when something is wrong.
        for pid, chunk in chunks.items():
            if not isinstance(chunk, PackedData):
                raise TypeError(f"chunk of partition {pid} must be PackedData, got {type(chunk).__name__}")
            if not 0 <= pid < total:
                raise IndexError(f"partition {pid} does not exist: there are {total}")
            if (<PackedData> chunk)._handle.get() == NULL:
                raise ValueError(f"the data of the chunk of partition {pid} has been taken already")
            partitions.push_back(pid)
        for chunk in chunks.values():
            taken.push_back(move((<PackedData> chunk).take()))
        with nogil:
            cpp_insert_chunks(handle.get()[0], partitions, move(taken))

    def insert_finished(self, pids=None):
        """Say that this rank inserts nothing more into some partitions.

        Parameters
        ----------
        pids
            A partition or several; None: all that are not finished yet.

        Raises
        ------
        IndexError
            If a partition does not exist.
        RuntimeError
            If a partition is finished already, or the list is empty.
        """
        cdef shared_ptr[cpp_Shuffler] handle = self.open()
        cdef vector[uint32_t] partitions
        if pids is None:
            with nogil:
                handle.get().insert_finished()
            return
        if isinstance(pids, int):
            pids = (pids,)
        cdef uint32_t total = handle.get().total_partitions()
        for pid in pids:
            if not 0 <= pid < total:
                raise IndexError(f"partition {pid} does not exist: there are {total}")
            partitions.push_back(pid)
        with nogil:
            handle.get().insert_finished(partitions)

    def extract(self, uint32_t pid):
        """Take out the chunks of a partition that this rank owns.

        Parameters
        ----------
        pid
            The partition.

        Returns
        -------
        The chunks that have arrived and were not taken before, by source rank and order of insertion there. After
        a wait for the partition: all of them.

        Raises
        ------
        IndexError
            If the partition does not exist.
        ValueError
            If another rank owns it.
        """
        cdef shared_ptr[cpp_Shuffler] handle = self.open()
        cdef vector[unique_ptr[cpp_PackedData]] chunks
        with nogil:
            chunks = cpp_extract(handle.get()[0], pid)
        return [PackedData.from_handle(move(chunks[i])) for i in range(chunks.size())]

    def finished(self):
        """Whether every partition of this rank is complete and was extracted."""
        cdef shared_ptr[cpp_Shuffler] handle = self.open()
        cdef cpp_bool result
        with nogil:
            result = handle.get().finished()
        return result

    def wait_any(self, *, timeout=None):
        """Wait for a partition of this rank to be complete.

        Parameters
        ----------
        timeout
            Seconds; None: the option ``collective_timeout`` (30 min), ``math.inf``: no limit.

        Returns
        -------
        The partition; each is returned once.

        Raises
        ------
        IndexError
            If all were waited for.
        TimeoutError
            If the time is up; the message names the ranks and partitions that are missing.
        RankFailedError
            If a rank failed.
        """
        cdef shared_ptr[cpp_Shuffler] handle = self.open()
        cdef double seconds = -1 if timeout is None else max(0.0, timeout)
        cdef uint32_t pid
        with nogil:
            pid = cpp_wait_any(handle.get()[0], seconds)
        return pid

    def wait_on(self, uint32_t pid, *, timeout=None):
        """Wait for a partition of this rank to be complete.

        Parameters
        ----------
        pid
            The partition.
        timeout
            Seconds; None: the option ``collective_timeout`` (30 min), ``math.inf``: no limit.

        Raises
        ------
        IndexError
            If it does not exist or was waited for.
        ValueError
            If another rank owns it.
        TimeoutError
            If the time is up; the message names the ranks that are missing.
        RankFailedError
            If a rank failed.
        """
        cdef shared_ptr[cpp_Shuffler] handle = self.open()
        cdef double seconds = -1 if timeout is None else max(0.0, timeout)
        with nogil:
            cpp_wait_on(handle.get()[0], pid, seconds)

    def wait(self, *, timeout=None):
        """Wait for all partitions of this rank to be complete. Those that were waited for count as complete.

        Parameters
        ----------
        timeout
            Seconds for all of them; None: the option ``collective_timeout`` (30 min), ``math.inf``: no limit.

        Raises
        ------
        TimeoutError
            If the time is up; the message names the ranks and partitions that are missing.
        RankFailedError
            If a rank failed.
        """
        end = None if timeout is None else monotonic() + timeout
        while True:
            try:
                self.wait_any(timeout=None if end is None else max(0.0, end - monotonic()))
            except IndexError:
                return

    def local_partitions(self):
        """Return the partitions that this rank owns, ascending."""
        cdef shared_ptr[cpp_Shuffler] handle = self.open()
        return list(handle.get().local_partitions())

    def spill(self, amount=None):
        """Move chunks that wait to be sent or extracted out of device memory.

        The memory manager does so by itself when memory is short (see ``BufferResource``).

        Parameters
        ----------
        amount
            Bytes to free; None: all that can be.

        Returns
        -------
        How many bytes of device memory were freed: less than asked for if there was no more, more if the last chunk
        was larger.

        Raises
        ------
        ValueError
            If the amount is negative.
        SpillError
            If there is no room for them elsewhere.
        """
        cdef shared_ptr[cpp_Shuffler] handle = self.open()
        if amount is not None and amount < 0:
            raise ValueError(f"the amount to spill must not be negative, got {amount}")
        cdef int64_t wanted = -1 if amount is None else amount
        cdef size_t freed
        with nogil:
            freed = cpp_spill(handle.get()[0], wanted)
        return freed

    def shutdown(self, *, timeout=None):
        """End the use of this object; nothing happens the second time.

        Waits until what this rank inserted has been sent if all insertions are finished, and abandons the operation
        if not. Chunks that were not extracted are dropped.

        Parameters
        ----------
        timeout
            Seconds; None: the option ``collective_timeout`` (30 min), ``math.inf``: no limit.

        Raises
        ------
        TimeoutError
            If the time is up.
        RankFailedError
            If a rank failed.
        """
        cdef double seconds = -1 if timeout is None else max(0.0, timeout)
        cdef shared_ptr[cpp_Shuffler] handle = self._handle
        if handle.get() == NULL:
            return
        with nogil:
            shut_down(handle.get()[0], seconds)
        self._handle.reset()  # its id is free as soon as no call of another thread is under way
        with nogil:
            handle.reset()

    def __repr__(self):
        cdef shared_ptr[cpp_Shuffler] handle = self._handle
        cdef string text
        if handle.get() == NULL:
            return "Shuffler(shut down)"
        with nogil:
            text = handle.get().str()
        return text.decode()
