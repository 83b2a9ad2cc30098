"""Exchanges between the fragments of a query: an Arrow stream goes in on every rank, and comes out on every rank.

    shuffler = Shuffler(comm, op_id, nranks, br)
    drained = drain_into_shuffle(source, RowRouting.by_hash(["key"]), shuffler, context)
    stream = shuffle_output_stream(shuffler, drained, context)

All work is done by C++ threads without the GIL.
"""

from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libcpp cimport bool as cpp_bool
from libcpp.memory cimport shared_ptr
from libcpp.string cimport string
from libcpp.utility cimport move
from libcpp.vector cimport vector

from rapidsmpf.coll.allgather cimport AllGather, cpp_AllGather
from rapidsmpf.error cimport translate_exception
from rapidsmpf.shuffler cimport Shuffler, cpp_Shuffler
from rapidsmpf.streaming.core.context cimport Context, cpp_Context
from rapidsmpf.table cimport (
    cpp_ArrowStream,
    cpp_Schema,
    open_table_stream,
    schema_to_capsule,
    stream_to_capsule,
)


cdef extern from "<rapidsmpf_python/exchange.hpp>" namespace "rapidsmpf::python" nogil:
    cdef cppclass cpp_RowRouting "rapidsmpf::streaming::RowRouting":
        pass

    cdef cppclass cpp_Drained "rapidsmpf::streaming::Drained":
        shared_ptr[const cpp_Schema] schema
        int64_t rows
        size_t bytes

    shared_ptr[const cpp_RowRouting] route_by_hash(vector[string], uint64_t, cpp_bool) except +translate_exception
    shared_ptr[const cpp_RowRouting] route_by_column(string, cpp_bool) except +translate_exception
    shared_ptr[const cpp_RowRouting] route_to_partition(uint32_t) except +translate_exception
    shared_ptr[const cpp_Drained] drain_shuffle(
        cpp_ArrowStream, const cpp_RowRouting&, shared_ptr[cpp_Shuffler], const cpp_Context&
    ) except +translate_exception
    shared_ptr[const cpp_Drained] drain_allgather(
        cpp_ArrowStream, shared_ptr[cpp_AllGather], const cpp_Context&
    ) except +translate_exception
    cpp_ArrowStream shuffle_stream(
        shared_ptr[cpp_Shuffler], shared_ptr[const cpp_Schema], const cpp_Context&, cpp_bool
    ) except +translate_exception
    cpp_ArrowStream partition_stream(
        shared_ptr[cpp_Shuffler], uint32_t, shared_ptr[const cpp_Schema], const cpp_Context&
    ) except +translate_exception
    cdef cppclass cpp_RowStore "rapidsmpf::streaming::RowStore":
        int64_t rows()
        size_t bytes()

    shared_ptr[cpp_RowStore] store_partition(
        const shared_ptr[cpp_Shuffler]&, uint32_t, shared_ptr[const cpp_Schema], const cpp_Context&
    ) except +translate_exception
    cpp_ArrowStream store_stream(shared_ptr[cpp_RowStore], cpp_bool) except +translate_exception
    cpp_ArrowStream allgather_stream(
        shared_ptr[cpp_AllGather], shared_ptr[const cpp_Schema], const cpp_Context&
    ) except +translate_exception

__all__ = [
    "Drained",
    "OutputStream",
    "RowRouting",
    "RowStore",
    "allgather_output_stream",
    "drain_into_allgather",
    "drain_into_shuffle",
    "partition_output_stream",
    "shuffle_output_stream",
]


cdef class RowRouting:
    """Which partition a row goes to. Made by the class methods."""

    cdef shared_ptr[const cpp_RowRouting] _handle

    def __init__(self):
        raise TypeError("use RowRouting.by_hash, by_column or to_partition")

    @classmethod
    def by_hash(cls, keys, *, uint64_t seed=0, cpp_bool narrow=False):
        """Return the rule that rows with equal keys meet, whichever rank they come from.

        Parameters
        ----------
        keys
            Names of the key columns, at least one.
        seed
            Another seed makes another partitioning; the same on all ranks.
        narrow
            Whether columns are packed in as few bytes as their values need, for rows that wait on disk. Rows come out
            with their own types; to read them takes a little longer. Rows on a GPU are always packed plain.

        Raises
        ------
        ValueError
            If there are no keys.
        """
        if isinstance(keys, str):
            raise TypeError("keys must be a list of column names, got a string")
        cdef vector[string] names
        for key in keys:
            names.push_back(key.encode())
        cdef RowRouting self = RowRouting.__new__(RowRouting)
        self._handle = route_by_hash(move(names), seed, narrow)
        return self

    @classmethod
    def by_column(cls, str column not None, *, cpp_bool narrow=False):
        """Return the rule that a column (UInt32, no nulls) holds the partition; it stays in the rows.

        Parameters
        ----------
        column
            Its name.
        narrow
            As :meth:`by_hash` has it.
        """
        cdef RowRouting self = RowRouting.__new__(RowRouting)
        self._handle = route_by_column(column.encode(), narrow)
        return self

    @classmethod
    def to_partition(cls, uint32_t partition):
        """Return the rule that all rows go to one partition.

        Parameters
        ----------
        partition
            The partition.
        """
        cdef RowRouting self = RowRouting.__new__(RowRouting)
        self._handle = route_to_partition(partition)
        return self


cdef class Drained:
    """What a source gave. Comes from the drain functions; exports the source's schema (``__arrow_c_schema__``)."""

    cdef shared_ptr[const cpp_Drained] _handle

    def __init__(self):
        raise TypeError("this comes from drain_into_shuffle or drain_into_allgather")

    @property
    def rows(self):
        """Rows of this rank's source."""
        return self._handle.get().rows

    @property
    def nbytes(self):
        """Approximate size of the rows in bytes once they are unpacked, including those that stayed on this rank."""
        return self._handle.get().bytes

    def __arrow_c_schema__(self):
        """Return the source's schema as a capsule ``arrow_schema`` of a struct."""
        return schema_to_capsule(self._handle.get().schema)


cdef class OutputStream:
    """Rows that come out of a collective, as an Arrow stream that can be read once.

    Pulling it blocks until rows are there, without the GIL, and fails with the error's text when a rank failed. A
    stream that is dropped unread releases its collective and blocks no rank.
    """

    cdef cpp_ArrowStream _stream
    cdef cpp_bool _taken
    cdef shared_ptr[const cpp_Schema] _schema

    def __init__(self):
        raise TypeError("this comes from shuffle_output_stream or allgather_output_stream")

    def __dealloc__(self):
        with nogil:
            self._stream.reset()

    @staticmethod
    cdef OutputStream from_handle(cpp_ArrowStream stream, shared_ptr[const cpp_Schema] schema):
        cdef OutputStream self = OutputStream.__new__(OutputStream)
        self._stream = move(stream)
        self._schema = move(schema)
        self._taken = False
        return self

    def __arrow_c_schema__(self):
        """Return the schema as a capsule ``arrow_schema`` of a struct."""
        return schema_to_capsule(self._schema)

    def __arrow_c_stream__(self, requested_schema=None):
        """Return the stream as a capsule ``arrow_array_stream``; RuntimeError the second time.

        Parameters
        ----------
        requested_schema
            Ignored: the rows have the types that they have.
        """
        if self._taken:
            raise RuntimeError("this stream was read already: collect it to read it twice")
        self._taken = True
        return stream_to_capsule(move(self._stream))


cdef class RowStore:
    """Rows that stay on this rank, where they may be spilled, and can be read several times.

    Made by :meth:`of_partition`.
    """

    cdef shared_ptr[cpp_RowStore] _handle
    cdef shared_ptr[const cpp_Schema] _schema
    cdef readonly int64_t rows
    cdef readonly size_t nbytes

    def __init__(self):
        raise TypeError("use RowStore.of_partition")

    def __dealloc__(self):
        with nogil:
            self._handle.reset()

    @classmethod
    def of_partition(
        cls, Shuffler shuffler not None, uint32_t partition, Drained drained not None, Context context not None
    ):
        """Take one of this rank's partitions out of a shuffle; waits until it is complete.

        Its rows come by source rank, and within one in the order of its source.

        Parameters
        ----------
        shuffler
            The shuffle.
        partition
            One of ``shuffler.local_partitions()``.
        drained
            What was drained into it, which has the schema.
        context
            Memory and threads.

        Raises
        ------
        ValueError
            If another rank owns the partition.
        RankFailedError
            If a rank failed.
        """
        cdef shared_ptr[cpp_Shuffler] handle = shuffler.open()
        cdef RowStore self = RowStore.__new__(RowStore)
        self._schema = drained._handle.get().schema
        with nogil:
            self._handle = store_partition(handle, partition, self._schema, context._handle.get()[0])
        self.rows = self._handle.get().rows()
        self.nbytes = self._handle.get().bytes()
        return self

    def stream(self, *, bint last=False):
        """Return the rows as a stream.

        Parameters
        ----------
        last
            Whether they are read by no one else, now or later: then memory is freed while they are read.
        """
        if self._handle.get() == NULL:
            raise RuntimeError("the rows of this store were taken out")
        cdef shared_ptr[cpp_RowStore] handle = self._handle
        cdef cpp_bool take = last
        cdef cpp_ArrowStream stream
        if last:
            self._handle.reset()
        with nogil:
            stream = store_stream(move(handle), take)
        return OutputStream.from_handle(move(stream), self._schema)


def drain_into_shuffle(
    source, RowRouting routing not None, Shuffler shuffler not None, Context context not None
):
    """Insert all rows of a source into a shuffle and finish it. Blocks until the source is exhausted.

    Parameters
    ----------
    source
        Rows with ``__arrow_c_stream__`` or ``__arrow_c_array__``.
    routing
        Which partition a row goes to. Rows keep their order within a partition.
    shuffler
        The shuffle, into which nothing else is inserted.
    context
        Memory and threads.

    Returns
    -------
    The source's schema and how much it gave.

    Raises
    ------
    ValueError
        If a column is not there or has a type that is not supported.
    IndexError
        If a row's partition does not exist.
    RuntimeError
        If the source fails. The other ranks wait for this one then: tell them by ``Communicator.abort``.
    RankFailedError
        If a rank failed.
    """
    cdef shared_ptr[cpp_Shuffler] handle = shuffler.open()
    cdef cpp_ArrowStream stream = open_table_stream(source)
    cdef Drained result = Drained.__new__(Drained)
    with nogil:
        result._handle = drain_shuffle(
            move(stream), routing._handle.get()[0], move(handle), context._handle.get()[0]
        )
    return result


def drain_into_allgather(source, AllGather allgather not None, Context context not None):
    """Give all rows of a source to an all-gather and finish it. Blocks until the source is exhausted.

    Parameters
    ----------
    source
        Rows with ``__arrow_c_stream__`` or ``__arrow_c_array__``.
    allgather
        The all-gather, to which nothing else is given.
    context
        Memory and threads.

    Returns
    -------
    The source's schema and how much it gave.

    Raises
    ------
    ValueError
        If a column has a type that is not supported.
    RuntimeError
        If the source fails. The other ranks wait for this one then: tell them by ``Communicator.abort``.
    RankFailedError
        If a rank failed.
    """
    cdef cpp_ArrowStream stream = open_table_stream(source)
    cdef Drained result = Drained.__new__(Drained)
    with nogil:
        result._handle = drain_allgather(move(stream), allgather._handle, context._handle.get()[0])
    return result


def shuffle_output_stream(
    Shuffler shuffler not None, Drained drained not None, Context context not None, *, bint ascending=False
):
    """Return the rows of this rank's partitions as a stream.

    Parameters
    ----------
    shuffler
        The shuffle. Do not extract from it: the stream does.
    drained
        What was drained into it, which has the schema.
    context
        Memory and threads.
    ascending
        Whether partitions come in the order of their numbers, and not as they become complete.
    """
    cdef shared_ptr[const cpp_Schema] schema = drained._handle.get().schema
    cdef shared_ptr[cpp_Shuffler] handle = shuffler.open()
    cdef cpp_bool in_order = ascending
    cdef cpp_ArrowStream stream
    with nogil:
        stream = shuffle_stream(move(handle), schema, context._handle.get()[0], in_order)
    return OutputStream.from_handle(move(stream), schema)


def partition_output_stream(
    Shuffler shuffler not None, uint32_t partition, Drained drained not None, Context context not None
):
    """Return the rows of one of this rank's partitions as a stream.

    They are taken out of the shuffle when the stream is pulled first: until then they may be spilled. The rows come by
    source rank, and within one in the order of its source.

    Parameters
    ----------
    shuffler
        The shuffle. Do not extract this partition from it: the stream does.
    partition
        One of ``shuffler.local_partitions()``.
    drained
        What was drained into it, which has the schema.
    context
        Memory and threads.

    Raises
    ------
    ValueError
        If another rank owns the partition.
    """
    cdef shared_ptr[const cpp_Schema] schema = drained._handle.get().schema
    cdef shared_ptr[cpp_Shuffler] handle = shuffler.open()
    cdef cpp_ArrowStream stream
    with nogil:
        stream = partition_stream(move(handle), partition, schema, context._handle.get()[0])
    return OutputStream.from_handle(move(stream), schema)


def allgather_output_stream(AllGather allgather not None, Drained drained not None, Context context not None):
    """Return the rows of all ranks as a stream, in rank order and within a rank in the order of its source.

    Parameters
    ----------
    allgather
        The all-gather. Do not extract from it: the stream does.
    drained
        What was drained into it, which has the schema.
    context
        Memory and threads.
    """
    cdef shared_ptr[const cpp_Schema] schema = drained._handle.get().schema
    cdef cpp_ArrowStream stream
    with nogil:
        stream = allgather_stream(allgather._handle, schema, context._handle.get()[0])
    return OutputStream.from_handle(move(stream), schema)
