"""Partitions as payloads: chunks by partition, on their way into a shuffle, and the chunks of one, which it gave.

    message = Message(0, PartitionMapChunk(partition_and_pack(frame, ["k"], 8, br)))
    shuffler.insert(PartitionMapChunk.from_message(message).release())

Where they wait and memory is short, their chunks are moved to lower tiers; who takes them out gets them where they are then.
"""

from libc.stdint cimport uint32_t, uint64_t
from libcpp.memory cimport unique_ptr
from libcpp.utility cimport move
from libcpp.vector cimport vector

from rapidsmpf.error cimport translate_exception
from rapidsmpf.memory.packed_data cimport PackedData, cpp_PackedData
from rapidsmpf.streaming.core.message cimport Message, cpp_Message

from rapidsmpf.signatures import STUB_SIGNATURE


cdef extern from "<rapidsmpf_python/chunks.hpp>" namespace "rapidsmpf::python" nogil:
    cdef cppclass cpp_PartitionMap "rapidsmpf::python::PartitionMap":
        vector[uint32_t] partitions
        vector[unique_ptr[cpp_PackedData]] chunks

    cpp_Message partition_map_message(
        uint64_t, const vector[uint32_t]&, vector[unique_ptr[cpp_PackedData]]
    ) except +translate_exception
    cpp_PartitionMap release_partition_map(cpp_Message&) except +translate_exception
    cpp_Message partition_vector_message(
        uint64_t, vector[unique_ptr[cpp_PackedData]]
    ) except +translate_exception
    vector[unique_ptr[cpp_PackedData]] release_partition_vector(cpp_Message&) except +translate_exception

__all__ = ["PartitionMapChunk", "PartitionVectorChunk"]


cdef object _taken_over(PackedData chunk):
    return PackedData.from_handle(move(chunk.take()))


cdef vector[unique_ptr[cpp_PackedData]] _handles(chunks) except *:
    cdef vector[unique_ptr[cpp_PackedData]] handles
    for chunk in chunks:
        handles.push_back(move((<PackedData> chunk).take()))
    return move(handles)


def _check(chunks):
    """Refuse what is no packed data, was taken, or is there twice: before anything is taken.

    Parameters
    ----------
    chunks
        The chunks.
    """
    seen = set()
    for chunk in chunks:
        if not isinstance(chunk, PackedData):
            raise TypeError(f"a chunk of a partition must be PackedData, got {type(chunk).__name__}")
        if (<PackedData> chunk)._handle.get() == NULL:
            raise ValueError("the data of a chunk has been taken already")
        if id(chunk) in seen:
            raise ValueError("the same chunk was given twice")
        seen.add(id(chunk))


cdef class PartitionMapChunk:
    """A chunk of packed data for each of some partitions, as :func:`rapidsmpf.table.partition_and_pack` gives them.

    Parameters
    ----------
    data
        Packed data by partition. They are taken, and left empty; all or none.

    Raises
    ------
    TypeError
        If a chunk is not PackedData.
    ValueError
        If a chunk's data has been taken already, or a chunk is given twice.
    OverflowError
        If a partition is negative or too large.
    """

    __signature__ = STUB_SIGNATURE

    cdef dict _chunks

    def __init__(self, data):
        cdef uint32_t partition
        for pid in data:
            partition = pid
        _check(data.values())
        self._chunks = {pid: _taken_over(chunk) for pid, chunk in data.items()}

    @classmethod
    def from_message(cls, Message message not None, br=None):
        """Take the chunks out of a message.

        Parameters
        ----------
        message
            It is left empty.
        br
            Not used.

        Raises
        ------
        ValueError
            If the message is empty or holds something else.
        """
        cdef PartitionMapChunk self = PartitionMapChunk.__new__(PartitionMapChunk)
        cdef cpp_PartitionMap found = release_partition_map(message._handle)
        self._chunks = {
            found.partitions[i]: PackedData.from_handle(move(found.chunks[i]))
            for i in range(found.partitions.size())
        }
        return self

    def into_message(self, uint64_t sequence_number, Message message not None):
        """Put the chunks into a message; see :class:`Message`.

        Parameters
        ----------
        sequence_number
            The message's place.
        message
            The message, which is empty.

        Raises
        ------
        ValueError
            If this is empty.
        """
        chunks = self.release()
        cdef vector[uint32_t] partitions = list(chunks)
        message._handle = partition_map_message(sequence_number, partitions, move(_handles(chunks.values())))

    def release(self):
        """Return the packed data by partition and leave this empty; ValueError the second time."""
        if self._chunks is None:
            raise ValueError("this chunk is empty: its partitions have been taken already")
        chunks = self._chunks
        self._chunks = None
        return chunks


cdef class PartitionVectorChunk:
    """Chunks of one partition in their order, as a shuffle gives them.

    Parameters
    ----------
    data
        Packed data. They are taken, and left empty; all or none.

    Raises
    ------
    TypeError
        If a chunk is not PackedData.
    ValueError
        If a chunk's data has been taken already, or a chunk is given twice.
    """

    __signature__ = STUB_SIGNATURE

    cdef list _chunks

    def __init__(self, data):
        chunks = list(data)
        _check(chunks)
        self._chunks = [_taken_over(chunk) for chunk in chunks]

    @classmethod
    def from_message(cls, Message message not None, br=None):
        """Take the chunks out of a message.

        Parameters
        ----------
        message
            It is left empty.
        br
            Not used.

        Raises
        ------
        ValueError
            If the message is empty or holds something else.
        """
        cdef PartitionVectorChunk self = PartitionVectorChunk.__new__(PartitionVectorChunk)
        cdef vector[unique_ptr[cpp_PackedData]] found = release_partition_vector(message._handle)
        self._chunks = [PackedData.from_handle(move(found[i])) for i in range(found.size())]
        return self

    def into_message(self, uint64_t sequence_number, Message message not None):
        """Put the chunks into a message; see :class:`Message`.

        Parameters
        ----------
        sequence_number
            The message's place.
        message
            The message, which is empty.

        Raises
        ------
        ValueError
            If this is empty.
        """
        message._handle = partition_vector_message(sequence_number, move(_handles(self.release())))

    def release(self):
        """Return the packed data, in order, and leave this empty; ValueError the second time."""
        if self._chunks is None:
            raise ValueError("this chunk is empty: its chunks have been taken already")
        chunks = self._chunks
        self._chunks = None
        return chunks
