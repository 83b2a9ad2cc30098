"""What travels between ranks: a small blob that says what the bytes are, and the bytes."""

import math

from cpython.buffer cimport PyBUF_SIMPLE, Py_buffer, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AsString, PyBytes_FromStringAndSize
from libc.stdint cimport uintptr_t
from libcpp.utility cimport move

from rapidsmpf.memory.buffer_resource cimport BufferResource, cpp_BufferResource
from rapidsmpf.memory.memory_resource cimport cpp_Stream, stream_of

from rapidsmpf.memory.buffer import MemoryType


cdef extern from "<rapidsmpf_python/memory.hpp>" namespace "rapidsmpf::python" nogil:
    unique_ptr[cpp_PackedData] pack_bytes(
        vector[uint8_t], const void*, size_t, cpp_BufferResource&
    ) except +translate_exception
    void copy_to_host(const cpp_Buffer&, void*) except +translate_exception

cdef extern from "<rapidsmpf_python/memory.hpp>" namespace "rapidsmpf::python":
    unique_ptr[cpp_PackedData] adopt_packed(
        vector[uint8_t], uintptr_t, size_t, object, cpp_Stream, cpp_BufferResource&
    ) except +translate_exception

__all__ = ["PackedData"]

# Packed data with bytes needs metadata; this is the least there can be.
_HOST_BYTES = b"\x00"


cdef unique_ptr[cpp_PackedData] _pack(bytes metadata, object data, BufferResource br) except *:
    cdef vector[uint8_t] blob
    cdef const uint8_t* begin = <const uint8_t*> <const char*> metadata
    cdef unique_ptr[cpp_PackedData] handle
    cdef Py_buffer view
    blob.assign(begin, begin + len(metadata))
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        with nogil:
            handle = pack_bytes(move(blob), view.buf, view.len, br._handle.get()[0])
    finally:
        PyBuffer_Release(&view)
    return move(handle)


def _place_of(data):
    """Return the address and size in bytes of device memory that an object holds."""
    if hasattr(data, "ptr"):
        return data.ptr, data.nbytes if hasattr(data, "nbytes") else data.size
    interface = getattr(data, "__cuda_array_interface__", None)
    if interface is None:
        raise TypeError(
            "the data of packed columns must be device memory with ptr and size (an rmm.DeviceBuffer, say) or "
            f"__cuda_array_interface__, got {type(data).__name__}"
        )
    if interface.get("strides") is not None or interface["typestr"][1:] not in ("u1", "i1"):
        raise TypeError("the data of packed columns must be contiguous bytes")
    return interface["data"][0] or 0, math.prod(interface["shape"])


cdef class PackedData:
    """Metadata and one buffer. What takes it (a shuffle, unpacking) leaves it empty."""

    def __init__(self):
        raise TypeError("use PackedData.from_host_bytes or a function that packs")

    def __dealloc__(self):
        with nogil:
            self._handle.reset()

    @staticmethod
    cdef PackedData from_handle(unique_ptr[cpp_PackedData] handle):
        cdef PackedData self = PackedData.__new__(PackedData)
        self._handle = move(handle)
        return self

    cdef unique_ptr[cpp_PackedData] take(self) except *:
        if self._handle.get() == NULL:
            raise ValueError("this PackedData is empty: its data has been taken already")
        return move(self._handle)

    @classmethod
    def from_cudf_packed_columns(cls, packed_columns, stream, BufferResource br not None):
        """Return packed data made of what libcudf has packed, without a copy.

        Parameters
        ----------
        packed_columns
            A ``pylibcudf.contiguous_split.PackedColumns``. It is released: its data belongs to the result.
        stream
            The stream on which the data was written.
        br
            What the memory is accounted to.

        Raises
        ------
        ValueError
            If the packed columns are empty: they have been released already.
        TypeError
            If they are not packed columns.
        """
        cdef vector[uint8_t] blob
        cdef const uint8_t* begin
        cdef Py_buffer view
        cdef cpp_Stream on = stream_of(stream)
        if not callable(getattr(packed_columns, "release", None)):
            raise TypeError(
                f"packed_columns must be a pylibcudf PackedColumns, got {type(packed_columns).__name__}"
            )
        metadata, data = packed_columns.release()
        if metadata is None or data is None:
            raise ValueError("the packed columns are empty: they have been released already")
        PyObject_GetBuffer(metadata, &view, PyBUF_SIMPLE)
        try:
            begin = <const uint8_t*> view.buf
            blob.assign(begin, begin + view.len)
        finally:
            PyBuffer_Release(&view)
        address, size = _place_of(data)
        return PackedData.from_handle(
            adopt_packed(move(blob), address, size, data, on, br._handle.get()[0])
        )

    @classmethod
    def from_host_bytes(cls, data, BufferResource br not None):
        """Return a copy of some bytes as packed data in host memory.

        Parameters
        ----------
        data
            A contiguous buffer of bytes.
        br
            Where the memory comes from.
        """
        return PackedData.from_handle(_pack(_HOST_BYTES, data, br))

    @classmethod
    def from_parts(cls, bytes metadata not None, data, BufferResource br not None):
        """Return packed data made of its two parts, as :attr:`metadata` and :meth:`to_host_bytes` give them.

        Parameters
        ----------
        metadata
            What says what the bytes are. It is checked when it is unpacked.
        data
            A contiguous buffer of bytes, which is copied to host memory.
        br
            Where the memory comes from.

        Raises
        ------
        ValueError
            If there is data without metadata.
        """
        return PackedData.from_handle(_pack(metadata, data, br))

    @property
    def metadata(self):
        """A copy of the metadata; ValueError when this is empty."""
        if self._handle.get() == NULL:
            raise ValueError("this PackedData is empty: its data has been taken already")
        return (<char*> self._handle.get().metadata.data())[:self._handle.get().metadata.size()]

    @property
    def data_size(self):
        """Bytes of data; 0 when this is empty."""
        return 0 if self._handle.get() == NULL else self._handle.get().data.get().size()

    @property
    def mem_type(self):
        """The tier that the data is in; ValueError when this is empty."""
        if self._handle.get() == NULL:
            raise ValueError("this PackedData is empty: its data has been taken already")
        return MemoryType(<int> self._handle.get().data.get().mem_type())

    def to_host_bytes(self):
        """Return a copy of the data, wherever it is.

        Raises
        ------
        ValueError
            If this is empty.
        """
        if self._handle.get() == NULL or self._handle.get().empty():
            raise ValueError("this PackedData is empty")
        cdef size_t size = self._handle.get().data.get().size()
        cdef bytes result = PyBytes_FromStringAndSize(NULL, size)
        cdef void* destination = PyBytes_AsString(result)
        with nogil:
            copy_to_host(self._handle.get().data.get()[0], destination)
        return result

    def __repr__(self):
        if self._handle.get() == NULL:
            return "PackedData(empty)"
        return (
            f"PackedData(metadata={self._handle.get().metadata.size()} bytes, "
            f"data={self.data_size} bytes in {self.mem_type.name})"
        )
