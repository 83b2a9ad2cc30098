// How many bytes of a tier are free, as functions that a BufferResource asks.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>

#include <rapidsmpf/core/config.hpp>
#include <rapidsmpf/memory/resource_adaptor.hpp>

namespace rapidsmpf {

// A limit less what goes through an adaptor, and less the shared memory of this process, in which collectives receive
// beside it: negative when more is in use than that.
class LimitAvailableMemory {
  public:
    // Throws std::invalid_argument without an adaptor.
    LimitAvailableMemory(std::shared_ptr<RmmResourceAdaptor const> mr, std::int64_t limit);
    [[nodiscard]] std::int64_t operator()() const noexcept;
    [[nodiscard]] std::int64_t limit() const noexcept { return limit_; }

  private:
    std::shared_ptr<RmmResourceAdaptor const> mr_;
    std::int64_t limit_;
};

// By MemoryType; an empty function means unlimited.
using AvailableMemoryMap = std::array<std::function<std::int64_t()>, 4>;

// What this process may use of the device's memory: all that there is, and on a CPU the option memory_limit if it is
// given.
[[nodiscard]] std::int64_t device_memory_from_options(config::Options options, Device& device);

// DEVICE: spill_device_limit (default "80%" of device_memory_from_options()) less what goes through `mr`, and on a CPU
// no more than the limit less the process's resident memory, for there others allocate beside the adaptor.
[[nodiscard]] AvailableMemoryMap available_memory_from_options(
    std::shared_ptr<RmmResourceAdaptor const> mr, config::Options options);

}  // namespace rapidsmpf
