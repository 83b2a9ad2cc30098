// RMM's Python resources as memory resources of ours, and the other way round.
#pragma once

#include <memory>

#include <Python.h>
#include <rapidsmpf_python/gil.hpp>

#include <rapidsmpf/memory/rmm_resource.hpp>

namespace rapidsmpf::python {

// `owner` is the Python object of the resource: callbacks of its may be Python's. The caller holds the GIL.
[[nodiscard]] inline std::shared_ptr<MemoryResource> from_rmm(
    rmm::device_async_resource_ref resource, PyObject* owner) {
    return std::make_shared<RmmResource>(resource, share(owner));
}

}  // namespace rapidsmpf::python
