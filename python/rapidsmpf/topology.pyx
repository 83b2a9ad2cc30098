"""What of this machine is near to this process's compute device, and binding the process to it."""

import os
from dataclasses import dataclass

from libcpp.string cimport string
from libcpp.vector cimport vector

from rapidsmpf.error cimport translate_exception


cdef extern from "<rapidsmpf_python/topology.hpp>" namespace "rapidsmpf::python" nogil:
    cdef cppclass cpp_Binding "rapidsmpf::topology::Binding":
        vector[int] cpus
        vector[int] memory_nodes
        vector[string] network_devices

    vector[cpp_Binding] cpp_own_binding "rapidsmpf::python::own_binding"() except +translate_exception
    vector[cpp_Binding] cpp_shares "rapidsmpf::python::shares"(size_t) except +translate_exception
    void cpp_bind_cpus "rapidsmpf::python::bind_cpus"(vector[int]) except +translate_exception
    void cpp_prefer_memory "rapidsmpf::python::prefer_memory"(vector[int]) except +translate_exception

__all__ = ["DeviceBinding", "bind_cpus", "find_device_binding", "plan_shares", "prefer_memory_of"]


@dataclass(frozen=True)
class DeviceBinding:
    """What is near to a GPU, or is one rank's share.

    Attributes
    ----------
    cpus
        Those of the CPUs that this process may use, ascending.
    memory_nodes
        The NUMA nodes of these CPUs; empty where there is only one.
    network_devices
        InfiniBand devices as ``UCX_NET_DEVICES`` names them; empty where all are equally near.
    """

    cpus: tuple
    memory_nodes: tuple
    network_devices: tuple


def find_device_binding():
    """Return what is near to the GPU of this process.

    Returns
    -------
    DeviceBinding or None
        None if the process has no GPU, or a part of one: then nothing is nearer than the rest.
    """
    cdef vector[cpp_Binding] found
    with nogil:
        found = cpp_own_binding()
    if found.empty():
        return None
    return _binding(found[0])


def plan_shares(count):
    """Divide what this process may use into equal shares: whole cores, in the order of NUMA nodes.

    Parameters
    ----------
    count
        Number of shares; with more of them than cores, each is one CPU, in turn.

    Returns
    -------
    list of DeviceBinding
        One for each share.

    Raises
    ------
    ValueError
        If ``count`` is less than 1.
    """
    if count < 1:
        raise ValueError(f"the number of shares must be at least 1, got {count}")
    cdef size_t number = count
    cdef vector[cpp_Binding] found
    with nogil:
        found = cpp_shares(number)
    return [_binding(found[i]) for i in range(found.size())]


cdef _binding(cpp_Binding& binding):
    return DeviceBinding(
        tuple(binding.cpus),
        tuple(binding.memory_nodes),
        tuple([name.decode() for name in binding.network_devices]),
    )


def bind_cpus(cpus):
    """Restrict all threads of this process to some CPUs.

    Parameters
    ----------
    cpus
        Their numbers; none: nothing is done.

    Raises
    ------
    OSError
        If the kernel refuses.
    """
    cdef vector[int] numbers = list(cpus)
    with nogil:
        cpp_bind_cpus(numbers)


def prefer_memory_of(nodes):
    """Take memory from some NUMA nodes while they have any: this thread, and the threads that it starts.

    Parameters
    ----------
    nodes
        Their numbers; none: nothing is done.

    Raises
    ------
    OSError
        If the kernel refuses.
    """
    cdef vector[int] numbers = list(nodes)
    with nogil:
        cpp_prefer_memory(numbers)
