// The tiers that bytes can live in, best first.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace rapidsmpf {

enum class MemoryType : std::uint8_t {
    DEVICE = 0,       // memory of the compute device; on a CPU, this process's RAM budget
    PINNED_HOST = 1,  // page-locked host memory; only with a GPU
    HOST = 2,         // ordinary host memory
    DISK = 3,         // a spill file
};

inline constexpr std::array memory_types{
    MemoryType::DEVICE, MemoryType::PINNED_HOST, MemoryType::HOST, MemoryType::DISK};

[[nodiscard]] constexpr std::string_view to_string(MemoryType type) noexcept {
    constexpr std::array<std::string_view, 4> names{"DEVICE", "PINNED_HOST", "HOST", "DISK"};
    return names[static_cast<std::size_t>(type)];
}

}  // namespace rapidsmpf
