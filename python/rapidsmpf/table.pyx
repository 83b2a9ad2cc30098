"""Tables: in and out through the Arrow C interface, into packed partitions and back.

A table comes from anything that speaks the Arrow PyCapsule interface (Polars, pyarrow, pandas, pylibcudf and others). No
function here needs a GPU, and none holds the GIL while it works. What is on a GPU stays there: tables come in through the
device interface, and their partitions lie in the memory of the GPU.
"""

from libcpp.utility cimport move

from rapidsmpf.memory.buffer_resource cimport BufferResource, cpp_BufferResource
from rapidsmpf.memory.memory_resource cimport cpp_Stream, stream_of as native_stream
from rapidsmpf.memory.packed_data cimport PackedData, cpp_PackedData

from rapidsmpf.signatures import STUB_SIGNATURE


cdef extern from "<rapidsmpf_python/tables.hpp>" namespace "rapidsmpf::python" nogil:
    cdef cppclass cpp_ColumnReference "rapidsmpf::python::ColumnReference":
        string name
        int64_t index
        cpp_bool by_name

    cpp_ArrowStream stream_of(cpp_ArrowSchema, cpp_ArrowArray) except +translate_exception
    shared_ptr[const cpp_Table] read_all(cpp_ArrowStream, cpp_BufferResource&) except +translate_exception
    vector[unique_ptr[cpp_PackedData]] partition_stream(
        cpp_ArrowStream, vector[cpp_ColumnReference], int, cpp_BufferResource&, uint64_t
    ) except +translate_exception
    vector[unique_ptr[cpp_PackedData]] split_table(
        const cpp_Table&, vector[int64_t], cpp_BufferResource&
    ) except +translate_exception
    unique_ptr[cpp_PackedData] pack_table(const cpp_Table&, cpp_BufferResource&) except +translate_exception
    shared_ptr[const cpp_Table] unpack_table(unique_ptr[cpp_PackedData]) except +translate_exception
    shared_ptr[const cpp_Table] concat_packed(
        vector[unique_ptr[cpp_PackedData]], cpp_BufferResource&
    ) except +translate_exception
    cpp_ArrowStream table_stream(const cpp_Table&) except +translate_exception
    cpp_ArrowSchema export_schema(const cpp_Schema&) except +translate_exception
    cpp_ArrowArray table_array(const cpp_Table&) except +translate_exception
    vector[string] cpp_column_names "rapidsmpf::python::column_names"(
        const cpp_Schema&
    ) except +translate_exception
    vector[string] cpp_column_types "rapidsmpf::python::column_types"(
        const cpp_Schema&
    ) except +translate_exception

cdef extern from "<rapidsmpf_python/arrow.hpp>" namespace "rapidsmpf::python":
    object stream_capsule(cpp_ArrowStream) except +translate_exception
    object schema_capsule(cpp_ArrowSchema) except +translate_exception
    object array_capsule(cpp_ArrowArray) except +translate_exception
    cpp_ArrowStream open_stream(object) except +translate_exception
    cpp_ArrowSchema open_schema(object) except +translate_exception
    cpp_ArrowArray open_array(object) except +translate_exception

cdef extern from "<rapidsmpf_python/device_tables.hpp>" namespace "rapidsmpf::python" nogil:
    cpp_bool device_is_gpu() except +translate_exception
    cpp_bool is_on_gpu(const cpp_Table&)
    shared_ptr[const cpp_Table] copy_to_host(const cpp_Table&) except +translate_exception
    vector[unique_ptr[cpp_PackedData]] partition_table(
        const cpp_Table&, vector[cpp_ColumnReference], int, cpp_BufferResource&, uint64_t
    ) except +translate_exception

cdef extern from "<rapidsmpf_python/device_tables.hpp>" namespace "rapidsmpf::python":
    shared_ptr[const cpp_Table] import_device_table(object, object, cpp_Stream) except +translate_exception
    object device_array_capsule(const cpp_Table&) except +translate_exception

__all__ = ["Table", "pack", "partition_and_pack", "split_and_pack", "unpack", "unpack_and_concat"]


cdef cpp_ArrowStream open_table_stream(object source) except *:
    cdef cpp_ArrowSchema schema
    cdef cpp_ArrowArray array
    cdef cpp_ArrowStream stream
    # A class has the methods of its instances, but is no table.
    if not isinstance(source, type) and hasattr(source, "__arrow_c_stream__"):
        stream = open_stream(source.__arrow_c_stream__())
        return move(stream)
    if not isinstance(source, type) and hasattr(source, "__arrow_c_array__"):
        schema_object, array_object = source.__arrow_c_array__()
        schema = open_schema(schema_object)
        array = open_array(array_object)
        with nogil:
            stream = stream_of(move(schema), move(array))
        return move(stream)
    raise TypeError(
        f"a table must have __arrow_c_stream__ or __arrow_c_array__ (Polars, pyarrow, pandas >= 2.2), "
        f"got {type(source).__name__}"
    )


cdef object stream_to_capsule(cpp_ArrowStream stream):
    return stream_capsule(move(stream))


cdef object schema_to_capsule(shared_ptr[const cpp_Schema] schema):
    return schema_capsule(export_schema(schema.get()[0]))


cdef bint _comes_by_device_interface(object source) except -1:
    # Most that have it have another too, which copies to the host: a GPU's memory is left where it is.
    if isinstance(source, type) or not hasattr(source, "__arrow_c_device_array__"):
        return False
    if isinstance(source, Table):
        return False
    return device_is_gpu() or not (hasattr(source, "__arrow_c_stream__") or hasattr(source, "__arrow_c_array__"))


cdef shared_ptr[const cpp_Table] read_table(object source, BufferResource br, object on_stream) except *:
    cdef cpp_ArrowStream stream
    cdef shared_ptr[const cpp_Table] table
    if isinstance(source, Table):
        return (<Table> source)._handle
    if _comes_by_device_interface(source):
        schema_object, array_object = source.__arrow_c_device_array__()
        return import_device_table(schema_object, array_object, native_stream(on_stream))
    stream = open_table_stream(source)
    with nogil:
        table = read_all(move(stream), br._handle.get()[0])
    return table


cdef dict _numbered(vector[unique_ptr[cpp_PackedData]]& parts):
    return {i: PackedData.from_handle(move(parts[i])) for i in range(parts.size())}


cdef class Table:
    """Rows laid out as Arrow prescribes, in host memory or on a GPU. Immutable; what is made of it shares its memory.

    It exports the Arrow PyCapsule interface, so ``polars.DataFrame(table)``, ``pyarrow.table(table)`` and, on a GPU,
    ``pylibcudf.Table.from_arrow(table)`` work and copy nothing; what is on a GPU is copied for those who read host memory.

    Parameters
    ----------
    source
        An object with ``__arrow_c_stream__``, ``__arrow_c_array__`` or ``__arrow_c_device_array__``. A stream of several
        batches is concatenated, which copies; anything else is shared. Where the compute device is a GPU, the device
        interface goes first.
    br
        Where the memory for that comes from.
    stream
        For a table on a GPU: the stream that its bytes are ordered on, and on which it is worked with (anything with
        ``__cuda_stream__``; the default stream if None).

    Raises
    ------
    TypeError
        If the object is no table.
    ValueError
        If a column has a type that is not supported (run-end encoded, union, list view); the message names it.
    """

    __signature__ = STUB_SIGNATURE

    def __init__(self, source, BufferResource br not None, stream=None):
        self._handle = read_table(source, br, stream)

    def __dealloc__(self):
        # What the memory belongs to may be Python's, or another library's that takes locks of its own.
        with nogil:
            self._handle.reset()

    @staticmethod
    cdef Table from_handle(shared_ptr[const cpp_Table] handle):
        cdef Table self = Table.__new__(Table)
        self._handle = move(handle)
        return self

    @property
    def num_rows(self):
        """Number of rows."""
        return self._handle.get().num_rows()

    @property
    def num_columns(self):
        """Number of columns."""
        return self._handle.get().num_columns()

    @property
    def column_names(self):
        """The columns' names."""
        return [(<bytes> name).decode() for name in cpp_column_names(self._handle.get().schema().get()[0])]

    @property
    def is_on_gpu(self):
        """Whether the rows are in the memory of a GPU."""
        return is_on_gpu(self._handle.get()[0])

    @property
    def nbytes(self):
        """Bytes that the rows take when packed, as far as that is cheap to know."""
        return self._handle.get().byte_size()

    def __len__(self):
        return self.num_rows

    def __arrow_c_schema__(self):
        """Return the schema as a capsule ``arrow_schema`` of a struct."""
        return schema_to_capsule(self._handle.get().schema())

    def __arrow_c_array__(self, requested_schema=None):
        """Return capsules ``arrow_schema`` and ``arrow_array`` of a struct array.

        It shares this table's memory, or that of a copy in host memory if the table is on a GPU.

        Parameters
        ----------
        requested_schema
            Ignored: the table has the types that it has.

        Raises
        ------
        OutOfMemory
            If the table is on a GPU and there is no host memory for the copy.
        """
        cdef shared_ptr[const cpp_Table] rows = self._on_host()
        return self.__arrow_c_schema__(), array_capsule(table_array(rows.get()[0]))

    def __arrow_c_device_array__(self, requested_schema=None, **kwargs):
        """Return capsules ``arrow_schema`` and ``arrow_device_array`` that share this table's memory, wherever it is.

        Parameters
        ----------
        requested_schema
            Ignored: the table has the types that it has.
        **kwargs
            Must be None, as the interface has it for what is not known.

        Raises
        ------
        NotImplementedError
            If one of them is not None.
        """
        unknown = [name for name, value in kwargs.items() if value is not None]
        if unknown:
            raise NotImplementedError(f"unknown arguments: {', '.join(unknown)}")
        return self.__arrow_c_schema__(), device_array_capsule(self._handle.get()[0])

    cdef shared_ptr[const cpp_Table] _on_host(self) except *:
        cdef shared_ptr[const cpp_Table] rows = self._handle
        if is_on_gpu(rows.get()[0]):
            with nogil:
                rows = copy_to_host(rows.get()[0])
        return rows

    def __arrow_c_stream__(self, requested_schema=None):
        """Return a capsule ``arrow_array_stream`` of one batch.

        It shares this table's memory, or that of a copy in host memory if the table is on a GPU.

        Parameters
        ----------
        requested_schema
            Ignored: the table has the types that it has.

        Raises
        ------
        OutOfMemory
            If the table is on a GPU and there is no host memory for the copy.
        """
        cdef shared_ptr[const cpp_Table] rows = self._on_host()
        return stream_to_capsule(table_stream(rows.get()[0]))

    def __repr__(self):
        types = cpp_column_types(self._handle.get().schema().get()[0])
        columns = ", ".join(
            f"{name}: {(<bytes> kind).decode()}" for name, kind in zip(self.column_names, types)
        )
        return f"Table({self.num_rows} rows; {columns})"


def partition_and_pack(table, columns_to_hash, int num_partitions, BufferResource br not None, *, uint64_t seed=0):
    """Partition rows by the hash of some columns and pack each partition.

    Rows with equal keys go to the same partition on every rank: null equals null, -0.0 equals 0.0, NaN equals NaN,
    and categories are compared by their text. Rows keep their order within a partition.

    Parameters
    ----------
    table
        The rows: a :class:`Table` or anything with ``__arrow_c_stream__``, ``__arrow_c_array__`` or
        ``__arrow_c_device_array__``. A stream of many batches is partitioned as it is read.
    columns_to_hash
        The keys, by name or by index. Without any, all rows go to one partition.
    num_partitions
        Number of partitions, at least 1.
    br
        Where the memory comes from.
    seed
        Another seed makes another partitioning.

    Returns
    -------
    Every partition's packed rows; a partition without rows holds the schema only.

    Raises
    ------
    IndexError
        If an index is not one of a column.
    ValueError
        If there is no column of a name, ``num_partitions`` is less than 1, or a column's type is not supported.
    TypeError
        If ``table`` is no table, or a key neither a name nor an index.
    OutOfMemory
        If there is no memory. More than the limit of ``br`` is taken when spilling does not free enough.
    """
    cdef vector[cpp_ColumnReference] columns
    cdef cpp_ColumnReference column
    if isinstance(columns_to_hash, (str, int)):
        columns_to_hash = (columns_to_hash,)
    for key in columns_to_hash:
        if isinstance(key, str):
            column.by_name = True
            column.name = key.encode()
        else:
            column.by_name = False
            try:
                column.index = key.__index__()
            except AttributeError:
                raise TypeError(
                    f"a column to hash must be a name or an index, got {type(key).__name__}"
                ) from None
        columns.push_back(column)
    cdef cpp_ArrowStream stream
    cdef shared_ptr[const cpp_Table] rows
    cdef vector[unique_ptr[cpp_PackedData]] parts
    if isinstance(table, Table) or _comes_by_device_interface(table):
        rows = read_table(table, br, None)
        with nogil:
            parts = partition_table(rows.get()[0], columns, num_partitions, br._handle.get()[0], seed)
            rows.reset()
        return _numbered(parts)
    stream = open_table_stream(table)
    with nogil:
        parts = partition_stream(move(stream), columns, num_partitions, br._handle.get()[0], seed)
    return _numbered(parts)


def split_and_pack(table, splits, BufferResource br not None):
    """Split a table into ranges of rows and pack each.

    Parameters
    ----------
    table
        The rows, as for :func:`partition_and_pack`.
    splits
        The row numbers at which to split, ascending: one less than the number of parts.
    br
        Where the memory comes from.

    Returns
    -------
    The parts by number. Part i holds rows [splits[i - 1], splits[i]).

    Raises
    ------
    IndexError
        If a split is not in [0, number of rows] or smaller than the one before.
    TypeError
        If ``table`` is no table.
    OutOfMemory
        If there is no memory. More than the limit of ``br`` is taken when spilling does not free enough.
    """
    cdef vector[int64_t] at
    for split in splits:
        at.push_back(split)
    cdef shared_ptr[const cpp_Table] rows = read_table(table, br, None)
    cdef vector[unique_ptr[cpp_PackedData]] parts
    with nogil:
        parts = split_table(rows.get()[0], at, br._handle.get()[0])
        rows.reset()
    return _numbered(parts)


def pack(table, BufferResource br not None):
    """Pack a table into one piece.

    Parameters
    ----------
    table
        The rows, as for :func:`partition_and_pack`.
    br
        Where the memory comes from.

    Raises
    ------
    TypeError
        If ``table`` is no table.
    OutOfMemory
        If there is no memory. More than the limit of ``br`` is taken when spilling does not free enough.
    """
    cdef shared_ptr[const cpp_Table] rows = read_table(table, br, None)
    cdef unique_ptr[cpp_PackedData] packed
    with nogil:
        packed = pack_table(rows.get()[0], br._handle.get()[0])
        rows.reset()
    return PackedData.from_handle(move(packed))


def unpack(PackedData packed not None):
    """Return the table that was packed, as views of the packed bytes; these are taken.

    Parameters
    ----------
    packed
        A packed table, which is left empty.

    Raises
    ------
    ValueError
        If it is empty, or malformed.
    """
    cdef unique_ptr[cpp_PackedData] taken = packed.take()
    cdef shared_ptr[const cpp_Table] table
    with nogil:
        table = unpack_table(move(taken))
    return Table.from_handle(table)


def unpack_and_concat(partitions, BufferResource br not None):
    """Unpack tables and concatenate their rows, in this order.

    The partitions are taken and left empty; the memory of each is freed as soon as its rows are copied. One partition
    with rows is not copied. Categories that differ are unified.

    Parameters
    ----------
    partitions
        Packed tables of one schema. Those that are nothing at all are ignored.
    br
        Where the memory comes from.

    Raises
    ------
    ValueError
        If there is no partition that says the schema, schemas differ (the message names the column), or a partition
        is malformed or was taken already.
    ReservationError
        If ``br`` has not enough memory for all rows, also after spilling.
    """
    cdef vector[unique_ptr[cpp_PackedData]] taken
    cdef shared_ptr[const cpp_Table] table
    partitions = list(partitions)
    for partition in partitions:
        if not isinstance(partition, PackedData):
            raise TypeError(f"a partition must be PackedData, got {type(partition).__name__}")
    for partition in partitions:
        taken.push_back(move((<PackedData> partition).take()))
    with nogil:
        table = concat_packed(move(taken), br._handle.get()[0])
    return Table.from_handle(table)
