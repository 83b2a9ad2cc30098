// Where all operators take device memory, libcudf's own allocations among them: counts it, and holds it to a limit by
// asking those who hold rows that nobody works on to move them away.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include <rapidsmpf/memory/buffer_resource.hpp>
#include <rapidsmpf/memory/memory_resource.hpp>

namespace rapidsmpf::compute {

class DeviceMemory final : public MemoryResource {
  public:
    // Moves rows away from the device until so many bytes are freed, if it can; returns how many it freed. Called in a thread
    // that allocates, never twice at a time; must not wait for other threads that allocate.
    using MakeRoom = std::function<std::size_t(std::size_t bytes)>;

    // limit: bytes in use at most.
    DeviceMemory(std::shared_ptr<MemoryResource> upstream, std::int64_t limit);

    [[nodiscard]] void* allocate(std::size_t bytes, Stream stream) override;
    void deallocate(void* pointer, std::size_t bytes, Stream stream) noexcept override;
    [[nodiscard]] bool is_host_accessible() const noexcept override { return false; }
    [[nodiscard]] bool is_device_accessible() const noexcept override { return true; }

    [[nodiscard]] std::int64_t in_use() const noexcept { return in_use_.load(std::memory_order_relaxed); }
    [[nodiscard]] std::int64_t peak() const noexcept { return peak_.load(std::memory_order_relaxed); }
    [[nodiscard]] std::int64_t limit() const noexcept { return limit_; }

    // Asked in the order in which they were added.
    std::uint64_t add_holder(MakeRoom make_room);
    // Waits for a call to end.
    void remove_holder(std::uint64_t id);

  private:
    [[nodiscard]] bool take(std::size_t bytes) noexcept;
    std::size_t make_room(std::size_t bytes);

    std::shared_ptr<MemoryResource> const upstream_;
    std::int64_t const limit_;
    std::atomic<std::int64_t> in_use_{0};
    std::atomic<std::int64_t> peak_{0};

    std::mutex mutex_;
    std::map<std::uint64_t, MakeRoom> holders_;
    std::uint64_t next_holder_{0};
};

// Memory of the GPU from a pool of CUDA's that keeps what it once had.
[[nodiscard]] std::shared_ptr<MemoryResource> make_device_pool();

}  // namespace rapidsmpf::compute
