"""How Python's memory resources reach C++."""

from libc.stdint cimport uintptr_t
from libcpp.memory cimport dynamic_pointer_cast

__all__ = ["MemoryResourceHandle"]


cdef class MemoryResourceHandle:
    """A memory resource of the C++ library, on its way from one module to another.

    The memory resources of this package give it by ``_memory_resource()``. It keeps modules that take a memory
    resource from having to import RMM.
    """

    def __init__(self):
        raise TypeError("a handle comes from a memory resource")

    def __dealloc__(self):
        with nogil:
            self._handle.reset()

    @staticmethod
    cdef MemoryResourceHandle from_handle(shared_ptr[cpp_MemoryResource] handle):
        cdef MemoryResourceHandle self = MemoryResourceHandle.__new__(MemoryResourceHandle)
        self._handle = handle
        return self


cdef shared_ptr[cpp_MemoryResource] resource_of(object mr) except *:
    cdef MemoryResourceHandle handle
    if hasattr(mr, "_memory_resource"):
        handle = mr._memory_resource()
    else:
        from rapidsmpf.memory.rmm_bridge import handle_of

        handle = handle_of(mr)
    return handle._handle


cdef shared_ptr[cpp_RmmResourceAdaptor] adaptor_of(object mr) except *:
    cdef shared_ptr[cpp_RmmResourceAdaptor] adaptor
    if hasattr(mr, "_memory_resource"):
        adaptor = dynamic_pointer_cast[cpp_RmmResourceAdaptor, cpp_MemoryResource](resource_of(mr))
    if adaptor.get() == NULL:
        raise TypeError(
            f"mr must be a rapidsmpf.rmm_resource_adaptor.RmmResourceAdaptor, got {type(mr).__name__}"
        )
    return adaptor


cdef cpp_Stream stream_of(object stream) except *:
    if stream is None:
        return cpp_Stream()
    try:
        protocol = stream.__cuda_stream__
    except AttributeError:
        raise TypeError(
            f"a stream must have __cuda_stream__, as rmm.pylibrmm.stream.Stream has; got {type(stream).__name__}"
        ) from None
    version, address = protocol()
    if version != 0:
        raise NotImplementedError(f"version {version} of the CUDA stream protocol is not known: use version 0")
    return cpp_Stream(<void*> <uintptr_t> address)
