"""Partitioning tables of libcudf, and concatenating their partitions.

Tables come in and go out through the Arrow C device interface, so pylibcudf is needed only for what makes a table of its,
and for copying slices of its tables.
Where the compute device is a CPU, anything that speaks the Arrow PyCapsule interface can be partitioned.
"""

from libc.stddef cimport size_t
from libc.stdint cimport uint64_t, uintptr_t
from libcpp cimport bool as cpp_bool
from libcpp.memory cimport shared_ptr, unique_ptr
from libcpp.utility cimport move
from libcpp.vector cimport vector

from rapidsmpf.error cimport translate_exception
from rapidsmpf.memory.buffer_resource cimport BufferResource, cpp_BufferResource
from rapidsmpf.memory.memory_resource cimport cpp_Stream, stream_of
from rapidsmpf.memory.packed_data cimport PackedData, cpp_PackedData
from rapidsmpf.table cimport Table, cpp_Table

import importlib

from rapidsmpf import table as tables
from rapidsmpf.memory.buffer import MemoryType
from rapidsmpf.utils.system_info import get_device_name


cdef extern from "<rapidsmpf_python/device_tables.hpp>" namespace "rapidsmpf::python" nogil:
    shared_ptr[const cpp_Table] concat_on_device(
        vector[unique_ptr[cpp_PackedData]], cpp_BufferResource&, cpp_Stream
    ) except +translate_exception
    cpp_bool is_packed_table(const cpp_PackedData&)
    vector[unique_ptr[cpp_PackedData]] to_device(
        vector[unique_ptr[cpp_PackedData]], cpp_BufferResource&, cpp_bool
    ) except +translate_exception
    vector[unique_ptr[cpp_PackedData]] to_host(
        vector[unique_ptr[cpp_PackedData]], cpp_BufferResource&
    ) except +translate_exception
    void wait_for_data(const cpp_PackedData&, cpp_Stream) except +translate_exception
    uintptr_t address_of(const cpp_PackedData&)

__all__ = ["partition_and_pack", "spill_partitions", "split_and_pack", "unpack_and_concat", "unspill_partitions"]


def _pylibcudf():
    try:
        return importlib.import_module("pylibcudf")
    except ImportError as error:
        raise ImportError(
            "a table of libcudf can only be made where pylibcudf is installed: "
            "pip install pylibcudf-cu13 (or use rapidsmpf.table.unpack_and_concat, which needs nothing)"
        ) from error


def _has_pylibcudf():
    try:
        importlib.import_module("pylibcudf")
    except ImportError:
        return False
    return True


cdef vector[unique_ptr[cpp_PackedData]] _take(list partitions) except *:
    cdef vector[unique_ptr[cpp_PackedData]] taken
    for partition in partitions:
        if not isinstance(partition, PackedData):
            raise TypeError(f"a partition must be PackedData, got {type(partition).__name__}")
    for partition in partitions:
        taken.push_back(move((<PackedData> partition).take()))
    return move(taken)


cdef list _wrap(vector[unique_ptr[cpp_PackedData]]& parts):
    return [PackedData.from_handle(move(parts[i])) for i in range(parts.size())]


# What libcudf exports of a slice of such a column, if it has no nulls, begins with the slice's first row.
_PLAIN = frozenset(
    [f"{sign}INT{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64)]
    + ["FLOAT32", "FLOAT64", "TIMESTAMP_DAYS", "DURATION_DAYS"]
    + [f"{kind}_{unit}" for kind in ("TIMESTAMP", "DURATION")
       for unit in ("SECONDS", "MILLISECONDS", "MICROSECONDS", "NANOSECONDS")]
)


def _is_slice(column):
    return column.offset() != 0 or any(_is_slice(child) for child in column.children())


def _exports_the_whole(column):
    """Whether what a column exports has lost its offset: bitmaps, texts and lists then begin with the whole's first row."""
    is_plain = not column.children() and column.null_mask() is None and column.type().id().name in _PLAIN
    return not is_plain and _is_slice(column)


def _as_exported(table, stream):
    """Copy of a table of pylibcudf those columns of which more would be exported than there is; nothing of other tables."""
    columns = getattr(table, "columns", None)
    if not callable(columns) or not hasattr(table, "__arrow_c_device_array__"):
        return table
    columns = list(columns())
    if not all(hasattr(column, "null_mask") for column in columns):
        return table
    lost = [number for number, column in enumerate(columns) if _exports_the_whole(column)]
    if not lost:
        return table
    plc = _pylibcudf()
    copies = plc.concatenate.concatenate([plc.Table([columns[number] for number in lost])], stream).columns()
    for number, copy in zip(lost, copies, strict=True):
        columns[number] = copy
    return plc.Table(columns)


def partition_and_pack(table, columns_to_hash, int num_partitions, stream, BufferResource br not None):
    """Partition rows by the hash of some columns and pack each partition.

    Rows with equal keys go to the same partition on every rank, on a GPU as on a CPU, and keep their order within it.

    Parameters
    ----------
    table
        A ``pylibcudf.Table``, or another object with ``__arrow_c_device_array__``.
    columns_to_hash
        Indices of the columns to hash. Without any, all rows go to one partition.
    num_partitions
        Number of partitions, at least 1.
    stream
        The stream that the table is ordered on; the work is done, and the partitions are ordered, on it.
    br
        Where the memory comes from.

    Returns
    -------
    Every partition's packed rows by its number; a partition without rows holds the schema only.

    Raises
    ------
    IndexError
        If an index is not one of a column.
    ValueError
        If ``num_partitions`` is less than 1, or a column's type is not supported.
    TypeError
        If ``table`` is no table or ``stream`` no stream.
    OutOfMemory
        If there is no memory. More than the limit of ``br`` is taken when spilling does not free enough.
    """
    return tables.partition_and_pack(
        tables.Table(_as_exported(table, stream), br, stream), columns_to_hash, num_partitions, br
    )


def split_and_pack(table, splits, stream, BufferResource br not None):
    """Split a table into ranges of rows and pack each.

    Parameters
    ----------
    table
        A ``pylibcudf.Table``, or another object with ``__arrow_c_device_array__``. It must have rows unless there are no
        splits.
    splits
        The row numbers at which to split, ascending: one less than the number of parts.
    stream
        The stream that the table is ordered on; the work is done, and the parts are ordered, on it.
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
        If ``table`` is no table or ``stream`` no stream.
    OutOfMemory
        If there is no memory. More than the limit of ``br`` is taken when spilling does not free enough.
    """
    return tables.split_and_pack(tables.Table(_as_exported(table, stream), br, stream), splits, br)


class _Bytes:
    """Device memory of packed data, as pylibcudf reads it; the owner must outlive what is made of it."""

    def __init__(self, owner, address, size):
        self.owner = owner
        self.ptr = address
        self.size = size

    @property
    def __cuda_array_interface__(self):
        return {"data": (self.ptr, False), "shape": (self.size,), "strides": None, "typestr": "|u1", "version": 3}


cdef object _unpack_by_pylibcudf(PackedData part, object stream):
    """Make a view of what libcudf has packed."""
    cdef cpp_Stream on = stream_of(stream)
    wait_for_data(part._handle.get()[0], on)
    data = _Bytes(part, address_of(part._handle.get()[0]), part.data_size)
    return _pylibcudf().contiguous_split.unpack_from_memoryviews(memoryview(part.metadata), data, stream)


cdef object _table_of(vector[unique_ptr[cpp_PackedData]] parts, object stream, BufferResource br):
    """Put our own packed tables together, as a table of pylibcudf that shares the memory."""
    cdef shared_ptr[const cpp_Table] table
    cdef cpp_Stream on = stream_of(stream)
    with nogil:
        table = concat_on_device(move(parts), br._handle.get()[0], on)
    ours = Table.from_handle(table)
    try:
        return _pylibcudf().Table.from_arrow(ours, stream=stream)
    except Exception:
        if get_device_name() != "cpu":
            raise
        return ours  # pylibcudf is installed, and needs a GPU


def unpack_and_concat(partitions, stream, BufferResource br not None):
    """Unpack tables and concatenate their rows, in this order.

    Partitions may have been packed here or by libcudf itself (:meth:`PackedData.from_cudf_packed_columns`). They are taken
    and left empty. One partition with rows is not copied.

    Parameters
    ----------
    partitions
        Packed tables of one schema. Those that are nothing at all are ignored.
    stream
        The stream on which the rows are concatenated and the result is ordered. It waits for what wrote the partitions.
    br
        Where the memory comes from.

    Returns
    -------
    The rows as a ``pylibcudf.Table``, or, where pylibcudf is not installed or finds no GPU, as a
    :class:`rapidsmpf.table.Table`.

    Raises
    ------
    ImportError
        If pylibcudf is not installed and libcudf itself packed a partition.
    ValueError
        If there is no partition that says the schema, schemas differ, or a partition is malformed or was taken already.
    ReservationError
        If ``br`` has not enough memory for all rows, also after spilling.
    """
    cdef vector[unique_ptr[cpp_PackedData]] taken
    cdef vector[unique_ptr[cpp_PackedData]] ours
    cdef size_t size = 0
    cdef size_t i
    cdef PackedData partition
    stream_of(stream)  # before anything is taken
    partitions = list(partitions)
    for each in partitions:
        if not isinstance(each, PackedData) or (<PackedData> each)._handle.get() == NULL:
            _take(partitions)  # which says what is wrong
        partition = each
        if partition._handle.get().empty():
            continue
        if not is_packed_table(partition._handle.get()[0]):
            pylibcudf = _pylibcudf()
            taken = _take(partitions)
            break
    else:
        if not _has_pylibcudf():
            return tables.unpack_and_concat(partitions, br)
        taken = _take(partitions)
        return _table_of(move(taken), stream, br)
    with nogil:
        taken = to_device(move(taken), br._handle.get()[0], False)
    parts = []
    for i in range(taken.size()):
        if taken[i].get().empty():
            continue
        size += taken[i].get().data.get().size()
        if is_packed_table(taken[i].get()[0]):
            ours.clear()
            ours.push_back(move(taken[i]))
            parts.append(_table_of(move(ours), stream, br))
        else:
            parts.append(_unpack_by_pylibcudf(PackedData.from_handle(move(taken[i])), stream))
    if len(parts) == 1:
        # The view keeps its memory by itself.
        return parts[0]
    reservation = br.reserve_device_memory_and_spill(size, allow_overbooking=False)
    result = pylibcudf.concatenate.concatenate(parts, stream)
    reservation.clear()
    return result


def spill_partitions(partitions, BufferResource br not None):
    """Move partitions from device memory to host memory.

    The partitions are taken and left empty. Those that are in host memory come back as they are.

    Parameters
    ----------
    partitions
        Packed tables.
    br
        Where the memory comes from. Host memory is not overbooked.

    Returns
    -------
    The partitions, in this order, all in host memory.

    Raises
    ------
    ReservationError
        If there is not enough host memory. The partitions are lost then.
    """
    cdef vector[unique_ptr[cpp_PackedData]] parts = _take(list(partitions))
    with nogil:
        parts = to_host(move(parts), br._handle.get()[0])
    return _wrap(parts)


def unspill_partitions(partitions, BufferResource br not None, cpp_bool allow_overbooking):
    """Move partitions back to device memory, spilling something else if there is not enough.

    The partitions are taken and left empty. Those that are in device memory come back as they are.

    Parameters
    ----------
    partitions
        Packed tables.
    br
        Where the memory comes from.
    allow_overbooking
        Whether to go on when spilling did not free enough.

    Returns
    -------
    The partitions, in this order, all in device memory.

    Raises
    ------
    ReservationError
        If there is not enough device memory, also after spilling, and ``allow_overbooking`` is False. The partitions are
        lost then.
    """
    cdef vector[unique_ptr[cpp_PackedData]] parts = _take(list(partitions))
    with nogil:
        parts = to_device(move(parts), br._handle.get()[0], allow_overbooking)
    return _wrap(parts)
