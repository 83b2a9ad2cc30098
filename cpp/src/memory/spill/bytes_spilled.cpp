#include <rapidsmpf/memory/detail/bytes_spilled.hpp>

#include "memory/spill/spill_registry.hpp"

namespace rapidsmpf::detail {

std::uint64_t bytes_spilled(BufferResource const& br) noexcept {
    return SpillRegistry::bytes_spilled(br);
}

}  // namespace rapidsmpf::detail
