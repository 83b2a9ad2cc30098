"""Page-locked memory of the host, which a GPU copies from and to by itself."""

from libc.stddef cimport size_t
from libc.stdint cimport uintptr_t
from libcpp.memory cimport static_pointer_cast

from rapidsmpf.config cimport Options
from rapidsmpf.memory.memory_resource cimport MemoryResourceHandle, cpp_Stream, stream_of

from rapidsmpf.signatures import STUB_SIGNATURE

__all__ = ["PinnedMemoryResource", "is_pinned_memory_resources_supported"]


cdef cpp_PinnedProperties _properties(object numa_id, object initial_pool_size, object max_pool_size) except *:
    cdef cpp_PinnedProperties properties
    if numa_id is not None:
        properties.numa_node = <int> numa_id
    for name, size in (("initial_pool_size", initial_pool_size), ("max_pool_size", max_pool_size or 0)):
        if size < 0:
            raise ValueError(f"{name} must not be negative, got {size}")
    properties.initial_pool_size = initial_pool_size
    properties.max_pool_size = max_pool_size or 0
    return properties


cdef class PinnedMemoryResource:
    """A pool of page-locked host memory, for the ``PINNED_HOST`` tier. It needs a GPU.

    Parameters
    ----------
    numa_id
        The NUMA node of the memory; None: that of the CPU that this thread runs on.
    initial_pool_size
        Bytes that are locked from the start, in the background.
    max_pool_size
        Bytes that the pool may grow to; None: as many as there are.

    Attributes
    ----------
    Disabled
        What stands for no such memory: None.

    Raises
    ------
    RuntimeError
        If there is no page-locked memory on this machine; it says why.
    ValueError
        If the initial size exceeds the maximal one.
    """

    __signature__ = STUB_SIGNATURE

    Disabled = None

    def __init__(self, numa_id=None, *, initial_pool_size=0, max_pool_size=None):
        cdef cpp_PinnedProperties properties = _properties(numa_id, initial_pool_size, max_pool_size)
        with nogil:
            self._handle = cpp_make(properties)

    def __dealloc__(self):
        with nogil:
            self._handle.reset()

    @staticmethod
    cdef PinnedMemoryResource from_handle(shared_ptr[cpp_PinnedMemoryResource] handle):
        if handle.get() == NULL:
            return None
        cdef PinnedMemoryResource self = PinnedMemoryResource.__new__(PinnedMemoryResource)
        self._handle = handle
        return self

    @staticmethod
    def make_if_available(numa_id=None, *, initial_pool_size=0, max_pool_size=None):
        """Return a resource, or None where there is no page-locked memory.

        Parameters
        ----------
        numa_id, initial_pool_size, max_pool_size
            As of the constructor.
        """
        cdef cpp_PinnedProperties properties = _properties(numa_id, initial_pool_size, max_pool_size)
        cdef shared_ptr[cpp_PinnedMemoryResource] handle
        with nogil:
            handle = cpp_make_if_available(properties)
        return PinnedMemoryResource.from_handle(handle)

    @classmethod
    def from_options(cls, Options options not None):
        """Return a resource as the options say; None when it is off, or there is no page-locked memory.

        Parameters
        ----------
        options
            ``pinned_memory``: whether to have one (default no); ``pinned_initial_pool_size`` (default 0) and
            ``pinned_max_pool_size`` (default "80%"), in bytes or as a share of the host's memory.

        Raises
        ------
        ValueError
            If an option cannot be read.
        """
        cdef cpp_Options opts = options._handle
        cdef shared_ptr[cpp_PinnedMemoryResource] handle
        with nogil:
            handle = cpp_pinned_from_options(opts)
        return PinnedMemoryResource.from_handle(handle)

    def allocate(self, size_t nbytes, stream=None):
        """Allocate page-locked memory, for the host and any stream to use at once.

        Parameters
        ----------
        nbytes
            Bytes.
        stream
            The stream that it is first used on; None: the default stream.

        Returns
        -------
        The address.

        Raises
        ------
        OutOfMemory
            If there is not enough.
        """
        cdef cpp_Stream on = stream_of(stream)
        cdef void* pointer
        with nogil:
            pointer = self._handle.get().allocate(nbytes, on)
        return <uintptr_t> pointer

    def deallocate(self, uintptr_t ptr, size_t nbytes, stream=None):
        """Release memory.

        Parameters
        ----------
        ptr
            The address.
        nbytes
            Bytes, as allocated.
        stream
            The stream whose work may still use it; None: the default stream.
        """
        cdef cpp_Stream on = stream_of(stream)
        with nogil:
            self._handle.get().deallocate(<void*> ptr, nbytes, on)

    @property
    def initial_pool_size(self):
        """Bytes that are locked from the start."""
        return self._handle.get().properties().initial_pool_size

    @property
    def max_pool_size(self):
        """Bytes that the pool may grow to; None: as many as there are."""
        return self._handle.get().properties().max_pool_size or None

    def _memory_resource(self):
        return MemoryResourceHandle.from_handle(
            static_pointer_cast[cpp_MemoryResource, cpp_PinnedMemoryResource](self._handle)
        )


def is_pinned_memory_resources_supported():
    """Return whether there is page-locked memory on this machine."""
    cdef cpp_bool available
    with nogil:
        available = cpp_pinned_is_available()
    return available
