"""What the compute device of this process offers."""

from libc.stdint cimport int64_t
from libcpp.string cimport string

from rapidsmpf.error cimport translate_exception


cdef extern from "<rapidsmpf/device/device.hpp>" namespace "rapidsmpf" nogil:
    cdef cppclass cpp_Device "rapidsmpf::Device":
        string name() except +translate_exception
        int64_t total_memory() except +translate_exception
        int64_t used_memory() except +translate_exception

    cpp_Device& current_device "rapidsmpf::Device::current"() except +translate_exception

__all__ = ["get_device_memory", "get_device_name", "get_used_device_memory"]


def get_device_name():
    """Return the compute device's name: "cpu", or "cuda:" with its number and model."""
    cdef string name
    with nogil:
        name = current_device().name()
    return name.decode()


def get_device_memory():
    """Return how many bytes of the device's memory this process may use.

    On a CPU it is the control group's limit or else the RAM, divided by the ranks on this host.
    """
    cdef int64_t size
    with nogil:
        size = current_device().total_memory()
    return size


def get_used_device_memory():
    """Return how many bytes of the device's memory this process uses (resident memory on a CPU)."""
    cdef int64_t size
    with nogil:
        size = current_device().used_memory()
    return size
