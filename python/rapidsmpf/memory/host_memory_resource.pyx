"""Ordinary host memory as a memory resource."""

from cython.operator cimport dereference
from libcpp.memory cimport make_shared, shared_ptr, static_pointer_cast, unique_ptr
from rmm.pylibrmm.memory_resource cimport DeviceMemoryResource

from rapidsmpf.memory.memory_resource cimport (
    MemoryResourceHandle,
    cpp_HostMemoryResource,
    cpp_MemoryResource,
)
from rapidsmpf.memory.rmm_view cimport cpp_RmmView, make_device_async_resource_ref

from rapidsmpf.signatures import STUB_SIGNATURE

__all__ = ["HostMemoryResource"]


cdef class HostMemoryResource(DeviceMemoryResource):
    """Ordinary memory of the host.

    On a machine without a GPU it stands where a program has a resource of ``rmm.mr``: there the memory of the compute
    device is this process's RAM. Blocks are aligned to 256 bytes, large ones to huge pages.
    """

    __signature__ = STUB_SIGNATURE

    cdef shared_ptr[cpp_MemoryResource] _handle
    cdef unique_ptr[cpp_RmmView] _view

    def __cinit__(self):
        self._handle = static_pointer_cast[cpp_MemoryResource, cpp_HostMemoryResource](
            make_shared[cpp_HostMemoryResource]()
        )
        self._view.reset(new cpp_RmmView(self._handle))
        self.c_ref = make_device_async_resource_ref(dereference(self._view))

    def __dealloc__(self):
        self.c_ref.reset()  # before what it refers to

    def _memory_resource(self):
        return MemoryResourceHandle.from_handle(self._handle)

    def __repr__(self):
        return "HostMemoryResource()"
