"""RMM's memory resources as memory resources of this package. Imports RMM, so it is imported when one is used."""

from libcpp.memory cimport shared_ptr
from rmm.librmm.memory_resource cimport device_async_resource_ref
from rmm.pylibrmm.memory_resource cimport DeviceMemoryResource

from rapidsmpf.error cimport translate_exception
from rapidsmpf.memory.memory_resource cimport MemoryResourceHandle, cpp_MemoryResource


cdef extern from "<rapidsmpf_python/rmm.hpp>" namespace "rapidsmpf::python":
    shared_ptr[cpp_MemoryResource] from_rmm(
        device_async_resource_ref, object
    ) except +translate_exception

__all__ = ["handle_of"]


def handle_of(mr):
    """Return the handle of an RMM memory resource.

    Parameters
    ----------
    mr
        The resource; the handle keeps it alive.

    Returns
    -------
    The handle.

    Raises
    ------
    TypeError
        If it is none of ``rmm.mr``.
    """
    if not isinstance(mr, DeviceMemoryResource):
        raise TypeError(
            "a memory resource must be one of rmm.mr, an RmmResourceAdaptor or a HostMemoryResource, "
            f"got {type(mr).__name__}"
        )
    cdef DeviceMemoryResource resource = mr
    return MemoryResourceHandle.from_handle(from_rmm(resource.get_mr(), resource))
