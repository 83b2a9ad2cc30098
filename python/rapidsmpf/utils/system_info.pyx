"""What the compute device of this process offers."""

from libc.stdint cimport int64_t
from libcpp cimport bool as cpp_bool
from libcpp.string cimport string

from rapidsmpf.config cimport Options, cpp_Options
from rapidsmpf.error cimport translate_exception


cdef extern from "<rapidsmpf/device/device.hpp>" namespace "rapidsmpf" nogil:
    cdef cppclass cpp_Device "rapidsmpf::Device":
        string name() except +translate_exception
        int64_t total_memory() except +translate_exception
        int64_t used_memory() except +translate_exception

    int cpp_num_gpus "rapidsmpf::device::count_cuda_devices"() noexcept
    cpp_bool cpp_prefer_cpu "rapidsmpf::Device::prefer_cpu"() except +translate_exception
    cpp_Device& current_device "rapidsmpf::Device::current"() except +translate_exception

cdef extern from "<rapidsmpf/memory/available_memory.hpp>" namespace "rapidsmpf" nogil:
    int64_t cpp_device_memory "rapidsmpf::device_memory_from_options"(
        cpp_Options, cpp_Device&) except +translate_exception

cdef extern from "<rapidsmpf/device/detail/host_memory.hpp>" nogil:
    size_t cpp_cached "rapidsmpf::device::cached_host_memory"() noexcept
    size_t cpp_trim "rapidsmpf::device::trim_host_memory"(size_t) noexcept

cdef extern from "<rapidsmpf/device/detail/shared_memory.hpp>" nogil:
    size_t cpp_cached_shared "rapidsmpf::device::SharedMemory::cached"() noexcept
    size_t cpp_trim_shared "rapidsmpf::device::SharedMemory::trim"(size_t) noexcept

__all__ = [
    "get_cached_host_memory",
    "get_device_memory",
    "get_device_name",
    "get_num_gpus",
    "get_used_device_memory",
    "prefer_cpu",
    "trim_host_memory",
]


def get_cached_host_memory():
    """Return how many bytes of free host memory this process keeps for the next who asks, shared memory included."""
    cdef size_t size
    with nogil:
        size = cpp_cached() + cpp_cached_shared()
    return size


def trim_host_memory(keep=0):
    """Give free host memory that this process keeps back to the system.

    It is also released when a limit of memory is near; this is for places that know that it will not be needed.

    Parameters
    ----------
    keep
        Bytes that may stay, of private and of shared memory each.

    Returns
    -------
    int
        How many bytes were released.
    """
    cdef size_t bound = keep
    cdef size_t freed
    with nogil:
        freed = cpp_trim(bound) + cpp_trim_shared(bound)
    return freed


def get_device_name():
    """Return the compute device's name: "cpu", or "cuda:" with its number and model."""
    cdef string name
    with nogil:
        name = current_device().name()
    return name.decode()


def get_num_gpus():
    """Return how many GPUs this process may use, whatever its compute device is."""
    return cpp_num_gpus()


def prefer_cpu():
    """Have the CPU be the compute device of this process, although there may be a GPU.

    Returns
    -------
    bool
        False if the device is a GPU: it was chosen before, by the first use of memory, or by ``RAPIDSMPF_DEVICE=cuda``.
    """
    cdef cpp_bool is_cpu
    with nogil:
        is_cpu = cpp_prefer_cpu()
    return is_cpu


def get_device_memory(Options options=None):
    """Return how many bytes of the device's memory this process may use.

    On a CPU it is the control group's limit or else the RAM, divided by the ranks on this host.

    Parameters
    ----------
    options
        Where their ``memory_limit`` is set, it is the answer on a CPU. None: no option is set.

    Raises
    ------
    ValueError
        If the option cannot be read.
    """
    cdef int64_t size
    cdef cpp_Options given
    if options is not None:
        given = options._handle
    with nogil:
        size = cpp_device_memory(given, current_device())
    return size


def get_used_device_memory():
    """Return how many bytes of the device's memory this process uses (resident memory on a CPU)."""
    cdef int64_t size
    with nogil:
        size = current_device().used_memory()
    return size
