"""A memory resource that counts what goes through it, and has a second one to fall back on."""

from cython.operator cimport dereference
from libc.stddef cimport size_t
from libc.stdint cimport uintptr_t
from libcpp.memory cimport shared_ptr, static_pointer_cast, unique_ptr
from rmm.pylibrmm.memory_resource cimport DeviceMemoryResource, UpstreamResourceAdaptor

from rapidsmpf.error cimport translate_exception
from rapidsmpf.memory.memory_resource cimport (
    MemoryResourceHandle,
    cpp_MemoryResource,
    cpp_RmmResourceAdaptor,
    cpp_Stream,
    resource_of,
    stream_of,
)
from rapidsmpf.memory.rmm_view cimport cpp_RmmView, make_device_async_resource_ref
from rapidsmpf.memory.scoped_memory_record cimport ScopedMemoryRecord, cpp_ScopedMemoryRecord

from rapidsmpf.signatures import STUB_SIGNATURE

from rmm.pylibrmm.stream import DEFAULT_STREAM


cdef extern from *:
    shared_ptr[cpp_RmmResourceAdaptor] make_adaptor "std::make_shared<rapidsmpf::RmmResourceAdaptor>"(
        shared_ptr[cpp_MemoryResource], shared_ptr[cpp_MemoryResource]
    ) except +translate_exception

__all__ = ["RmmResourceAdaptor"]


cdef class RmmResourceAdaptor(UpstreamResourceAdaptor):
    """A memory resource of RMM that counts, and falls back on another when it is out of memory.

    It can be used wherever RMM takes a memory resource. It works on a machine without a GPU too, over a
    :class:`rapidsmpf.memory.host_memory_resource.HostMemoryResource`.

    Parameters
    ----------
    upstream_mr
        Where memory comes from.
    fallback_mr
        The resource to ask when the upstream resource is out of memory; None: none.
    """

    __signature__ = STUB_SIGNATURE

    cdef readonly DeviceMemoryResource fallback_mr
    cdef shared_ptr[cpp_RmmResourceAdaptor] _adaptor
    cdef unique_ptr[cpp_RmmView] _view

    def __cinit__(self, DeviceMemoryResource upstream_mr not None, *, DeviceMemoryResource fallback_mr=None):
        cdef shared_ptr[cpp_MemoryResource] upstream = resource_of(upstream_mr)
        cdef shared_ptr[cpp_MemoryResource] fallback
        if fallback_mr is not None:
            fallback = resource_of(fallback_mr)
        self.fallback_mr = fallback_mr
        self._adaptor = make_adaptor(upstream, fallback)
        self._view.reset(
            new cpp_RmmView(static_pointer_cast[cpp_MemoryResource, cpp_RmmResourceAdaptor](self._adaptor))
        )
        self.c_ref = make_device_async_resource_ref(dereference(self._view))

    def __dealloc__(self):
        # Before what it refers to; and C++ may let go of a Python object, for which it needs the GIL itself.
        self.c_ref.reset()
        with nogil:
            self._view.reset()
            self._adaptor.reset()

    def _memory_resource(self):
        return MemoryResourceHandle.from_handle(
            static_pointer_cast[cpp_MemoryResource, cpp_RmmResourceAdaptor](self._adaptor)
        )

    def allocate(self, size_t nbytes, stream=DEFAULT_STREAM):
        """Allocate memory.

        Parameters
        ----------
        nbytes
            Bytes.
        stream
            The stream that the memory is first used on.

        Returns
        -------
        The address.

        Raises
        ------
        OutOfMemory
            If neither resource has enough.
        BadAlloc
            If it failed for another reason.
        """
        cdef cpp_Stream on = stream_of(stream)
        cdef void* pointer
        with nogil:
            pointer = self._adaptor.get().allocate(nbytes, on)
        return <uintptr_t> pointer

    def deallocate(self, uintptr_t ptr, size_t nbytes, stream=DEFAULT_STREAM):
        """Release memory.

        Parameters
        ----------
        ptr
            The address.
        nbytes
            Bytes, as allocated.
        stream
            The stream that the memory was last used on.
        """
        cdef cpp_Stream on = stream_of(stream)
        with nogil:
            self._adaptor.get().deallocate(<void*> ptr, nbytes, on)

    def get_main_record(self):
        """Return a copy of the record of everything since the adaptor was made."""
        cdef cpp_ScopedMemoryRecord record
        with nogil:
            record = self._adaptor.get().get_main_record()
        return ScopedMemoryRecord.from_record(record)

    @property
    def current_allocated(self):
        """Bytes in use, of both resources."""
        return self._adaptor.get().current_allocated()

    def begin_scoped_memory_record(self):
        """Begin a record of what this thread allocates. Scopes nest."""
        with nogil:
            self._adaptor.get().begin_scoped_memory_record()

    def end_scoped_memory_record(self):
        """End this thread's innermost scope and return its record.

        Raises
        ------
        RuntimeError
            If this thread has none.
        """
        cdef cpp_ScopedMemoryRecord record
        with nogil:
            record = self._adaptor.get().end_scoped_memory_record()
        return ScopedMemoryRecord.from_record(record)

    def __repr__(self):
        fallback = "" if self.fallback_mr is None else f", fallback_mr={self.fallback_mr!r}"
        return f"RmmResourceAdaptor({self.upstream_mr!r}{fallback})"
