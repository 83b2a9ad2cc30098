"""Messages of channels, and what Python can put into them: any object, packed data, tables.

    message = Message(0, ArbitraryChunk({"rows": 3}))
    ArbitraryChunk.from_message(message).release()   # {"rows": 3}
"""

cimport cython
from cpython.object cimport PyObject
from libc.stddef cimport size_t
from libc.stdint cimport uint64_t
from libcpp cimport bool as cpp_bool
from libcpp.memory cimport shared_ptr, unique_ptr
from libcpp.utility cimport move

from rapidsmpf.memory.buffer_resource cimport BufferResource, cpp_BufferResource
from rapidsmpf.memory.memory_reservation cimport MemoryReservation, cpp_MemoryReservation
from rapidsmpf.memory.packed_data cimport PackedData, cpp_PackedData
from rapidsmpf.table cimport Table, cpp_Table, read_table

from rapidsmpf.memory.buffer import MemoryType
from rapidsmpf.signatures import STUB_SIGNATURE
from rapidsmpf.streaming.core.payload import Payload


cdef extern from "<rapidsmpf_python/chunks.hpp>" namespace "rapidsmpf::python" nogil:
    cdef cppclass cpp_Rows "rapidsmpf::python::Rows":
        cpp_Rows()
        shared_ptr[const cpp_Table] table
        unique_ptr[cpp_PackedData] packed

    cpp_Message packed_message(uint64_t, unique_ptr[cpp_PackedData]) except +translate_exception
    unique_ptr[cpp_PackedData] release_packed(cpp_Message&) except +translate_exception
    cpp_Message table_message(uint64_t, const shared_ptr[const cpp_Table]&) except +translate_exception
    cpp_Rows release_rows(cpp_Message&, cpp_BufferResource&) except +translate_exception
    cpp_bool holds_rows(const cpp_Message&)
    shared_ptr[const cpp_Table] unpack_rows(
        unique_ptr[cpp_PackedData], cpp_BufferResource&
    ) except +translate_exception
    shared_ptr[const cpp_Table] unpack_rows_within(
        unique_ptr[cpp_PackedData]&, cpp_MemoryReservation&, cpp_BufferResource&
    ) except +translate_exception
    cpp_Message copy_message(const cpp_Message&, cpp_MemoryReservation&) except +translate_exception
    size_t bytes_in(const cpp_Message&, int) except +translate_exception

cdef extern from "<rapidsmpf_python/chunks.hpp>" namespace "rapidsmpf::python":
    cpp_Message object_message(uint64_t, object) except +translate_exception
    PyObject* release_object(cpp_Message&) except +translate_exception

cdef extern from "Python.h":
    void Py_DECREF(PyObject*)

__all__ = ["ArbitraryChunk", "Message", "PackedDataChunk", "TableChunk"]


@cython.freelist(16)
cdef class Message:
    """What travels through a channel: a payload and its place in the order of creation.

    To take the payload out, or to send the message, leaves it empty.

    Parameters
    ----------
    sequence_number
        The place, ``0 <= sequence_number < 2**64``. Messages may arrive in another order.
    payload
        A chunk (:mod:`rapidsmpf.streaming.chunks`), or an object of one's own with ``into_message(sequence_number, message)``,
        which is to fill the message.

    Raises
    ------
    TypeError
        If the payload is no chunk.
    ValueError
        If a chunk is empty.
    """

    __signature__ = STUB_SIGNATURE

    def __init__(self, uint64_t sequence_number, payload):
        into = getattr(payload, "into_message", None)
        if into is None:
            raise TypeError(
                f"a payload must be a chunk, got {type(payload).__name__}: put any object into an ArbitraryChunk"
            )
        into(sequence_number, self)

    def __dealloc__(self):
        # What it owns may be another thread's, whose end needs the GIL.
        cdef cpp_Message dropped
        if self._handle.empty():
            return
        with nogil:
            dropped = move(self._handle)
            dropped = cpp_Message()

    def __class_getitem__(cls, parameters):
        """Return the class: ``Message[TableChunk]`` is for those who check types."""
        return cls

    @staticmethod
    cdef Message from_handle(cpp_Message& handle):
        cdef Message self = Message.__new__(Message)
        self._handle = move(handle)
        return self

    @property
    def sequence_number(self):
        """The place in the order of creation."""
        return self._handle.sequence()

    def empty(self):
        """Whether the payload was taken."""
        return self._handle.empty()

    def nbytes(self, mem_type=None):
        """Return the bytes that the payload is known to take.

        Parameters
        ----------
        mem_type
            In this tier; None: in all.
        """
        if mem_type is not None:
            return bytes_in(self._handle, int(mem_type))
        return sum(bytes_in(self._handle, int(each)) for each in MemoryType)

    def copy_cost(self):
        """Return the bytes that a reservation for :meth:`copy` must have; ValueError when the message is empty."""
        return self._handle.copy_cost()

    def copy(self, MemoryReservation reservation not None):
        """Return a copy with the same sequence number.

        Parameters
        ----------
        reservation
            Its memory; the copy is in its tier. Python objects are shared and need none.

        Raises
        ------
        ValueError
            If the message is empty.
        ReservationError
            If the reservation is too small.
        """
        cdef cpp_Message copied
        with nogil:
            copied = copy_message(self._handle, reservation._handle.get()[0])
        return Message.from_handle(copied)

    def __repr__(self):
        if self.empty():
            return "Message(empty)"
        return f"Message(sequence_number={self.sequence_number}, nbytes={self.nbytes()})"


cdef class ArbitraryChunk:
    """Any Python object as a payload. It does not spill; a copy of the message shares the object.

    Parameters
    ----------
    obj
        The object.
    """

    __signature__ = STUB_SIGNATURE

    cdef object _object
    cdef cpp_bool _taken

    def __init__(self, obj):
        self._object = obj
        self._taken = False

    def __class_getitem__(cls, parameters):
        """Return the class: ``ArbitraryChunk[int]`` is for those who check types."""
        return cls

    @classmethod
    def from_message(cls, Message message not None, br=None):
        """Take the object out of a message.

        Parameters
        ----------
        message
            It is left empty.
        br
            Not used; chunks that own memory have it.

        Raises
        ------
        ValueError
            If the message is empty or holds something else.
        """
        cdef PyObject* found = release_object(message._handle)
        cdef ArbitraryChunk self = ArbitraryChunk(<object> found)
        Py_DECREF(found)
        return self

    def into_message(self, uint64_t sequence_number, Message message not None):
        """Put the object into a message; see :class:`Message`.

        Parameters
        ----------
        sequence_number
            The message's place.
        message
            The message, which is empty.
        """
        message._handle = object_message(sequence_number, self.release())

    def release(self):
        """Return the object and leave this empty; ValueError the second time."""
        if self._taken:
            raise ValueError("this chunk is empty: its object has been taken already")
        self._taken = True
        obj = self._object
        self._object = None
        return obj


cdef class PackedDataChunk:
    """Packed data as a payload. While its message waits it may be moved to a lower tier.

    Made by :meth:`from_packed_data` or :meth:`from_message`.
    """

    cdef PackedData _packed

    def __init__(self):
        raise TypeError("use PackedDataChunk.from_packed_data or from_message")

    @classmethod
    def from_packed_data(cls, PackedData obj not None):
        """Take packed data over.

        Parameters
        ----------
        obj
            It is left empty.

        Raises
        ------
        ValueError
            If it is empty.
        """
        cdef PackedDataChunk self = PackedDataChunk.__new__(PackedDataChunk)
        self._packed = PackedData.from_handle(move(obj.take()))
        return self

    @classmethod
    def from_message(cls, Message message not None, br=None):
        """Take packed data out of a message.

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
        cdef PackedDataChunk self = PackedDataChunk.__new__(PackedDataChunk)
        self._packed = PackedData.from_handle(move(release_packed(message._handle)))
        return self

    def into_message(self, uint64_t sequence_number, Message message not None):
        """Put the data into a message; see :class:`Message`.

        Parameters
        ----------
        sequence_number
            The message's place.
        message
            The message, which is empty.
        """
        message._handle = packed_message(sequence_number, move(self._packed.take()))

    def to_packed_data(self):
        """Return the data and leave this empty; ValueError the second time."""
        return PackedData.from_handle(move(self._packed.take()))


cdef class TableChunk:
    """Rows as a payload: a table in host memory or on a GPU, or packed rows that wait to be unpacked.

    Parameters
    ----------
    table
        Anything that speaks the Arrow PyCapsule interface; see :class:`rapidsmpf.table.Table`.
    br
        Where memory comes from when batches have to be concatenated.
    stream
        For a table on a GPU: the stream that its bytes are ordered on.

    Raises
    ------
    TypeError
        If it is no table.
    """

    __signature__ = STUB_SIGNATURE

    cdef shared_ptr[const cpp_Table] _table
    cdef unique_ptr[cpp_PackedData] _packed

    def __init__(self, table, BufferResource br not None, stream=None):
        self._table = read_table(table, br, stream)

    def __dealloc__(self):
        with nogil:
            self._table.reset()
            self._packed.reset()

    @classmethod
    def from_packed_data(cls, PackedData obj not None):
        """Take packed rows over, as ``rapidsmpf.table.pack`` and the collectives give them; they are not available yet.

        Parameters
        ----------
        obj
            It is left empty.
        """
        cdef TableChunk self = TableChunk.__new__(TableChunk)
        self._packed = move(obj.take())
        return self

    @classmethod
    def from_message(cls, Message message not None, BufferResource br not None):
        """Take rows out of a message: a table, a batch of tables that are concatenated, or packed rows.

        Parameters
        ----------
        message
            It is left empty.
        br
            Where memory comes from when tables have to be concatenated.

        Raises
        ------
        ValueError
            If the message is empty or holds something else.
        """
        cdef TableChunk self = TableChunk.__new__(TableChunk)
        cdef cpp_Rows rows
        with nogil:
            rows = release_rows(message._handle, br._handle.get()[0])
        self._table = rows.table
        self._packed = move(rows.packed)
        return self

    def into_message(self, uint64_t sequence_number, Message message not None):
        """Put the rows into a message; see :class:`Message`.

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
        if self._table.get() != NULL:
            message._handle = table_message(sequence_number, self._table)
            self._table.reset()
        elif self._packed.get() != NULL:
            message._handle = packed_message(sequence_number, move(self._packed))
        else:
            raise ValueError("this chunk is empty: its rows have been taken already")

    def is_available(self):
        """Whether the rows can be read: they are not packed."""
        return self._table.get() != NULL

    def make_available_cost(self):
        """Return the bytes that :meth:`make_available` takes at most; zero when the rows can be read."""
        return 0 if self._packed.get() == NULL else self._packed.get().data.get().size()

    def make_available(self, memory not None):
        """Return this chunk with rows that can be read: packed ones are unpacked, and brought back if they were spilled.

        Parameters
        ----------
        memory
            A reservation of device memory of :meth:`make_available_cost` bytes, of which is taken what is needed; or the
            BufferResource to reserve from, by overbooking if need be.

        Raises
        ------
        TypeError
            If it is something else.
        ValueError
            If this is empty, or what is packed are no rows.
        ReservationError
            If the reservation is too small, or there is no memory for them. The chunk is as it was if the reservation is.
        """
        cdef unique_ptr[cpp_PackedData] packed
        cdef BufferResource br
        cdef MemoryReservation reservation
        if isinstance(memory, MemoryReservation):
            reservation = memory
            br = reservation.br
            if self._table.get() == NULL and self._packed.get() != NULL:
                with nogil:
                    self._table = unpack_rows_within(
                        self._packed, reservation._handle.get()[0], br._handle.get()[0]
                    )
                self._packed.reset()
                return self
        elif isinstance(memory, BufferResource):
            br = memory
        else:
            raise TypeError(
                f"rows are made available with a MemoryReservation or a BufferResource, got {type(memory).__name__}"
            )
        if self._table.get() == NULL:
            if self._packed.get() == NULL:
                raise ValueError("this chunk is empty: its rows have been taken already")
            packed = move(self._packed)
            with nogil:
                self._table = unpack_rows(move(packed), br._handle.get()[0])
        return self

    def table_view(self):
        """Return the rows; ValueError when they have to be made available first or were taken."""
        if self._table.get() == NULL:
            raise ValueError(
                "this chunk is empty: its rows have been taken already"
                if self._packed.get() == NULL
                else "the rows are packed: call make_available() first"
            )
        return Table.from_handle(self._table)

    @property
    def shape(self):
        """Rows and columns; ValueError when they have to be made available first."""
        table = self.table_view()
        return table.num_rows, table.num_columns
