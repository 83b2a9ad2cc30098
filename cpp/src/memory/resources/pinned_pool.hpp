// What the CUDA side of this room gives: the pool behind PinnedMemoryResource.
#pragma once

#include <memory>
#include <string>

#include <rapidsmpf/memory/pinned_memory_resource.hpp>

namespace rapidsmpf::memory {

// Null, with the reason, when the compute device is no GPU or its driver has no such pools.
[[nodiscard]] std::shared_ptr<PinnedMemoryResource> make_pinned_pool(
    PinnedMemoryResource::Properties const& properties, std::string& reason);

}  // namespace rapidsmpf::memory
