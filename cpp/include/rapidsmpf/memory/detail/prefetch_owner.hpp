// Prefetches the reference count of a buffer's memory: before many buffers are split or freed.
#pragma once

#include <rapidsmpf/memory/buffer.hpp>

namespace rapidsmpf::detail {

// Gains something where the owner is an object of std::make_shared.
void prefetch_owner(Buffer const& buffer) noexcept;

}  // namespace rapidsmpf::detail
