// How many bytes a resource has moved to lower tiers since it was made, as often as they were. For reports of single
// queries: statistics, which say more, may be off.
#pragma once

#include <cstdint>

namespace rapidsmpf {

class BufferResource;

namespace detail {

[[nodiscard]] std::uint64_t bytes_spilled(BufferResource const& br) noexcept;

}  // namespace detail
}  // namespace rapidsmpf
