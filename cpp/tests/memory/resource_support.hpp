// Memory resources for tests.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/memory/memory_resource.hpp>

namespace rapidsmpf::testing {

// Host memory up to a capacity; says what is outstanding.
class LimitedResource final : public MemoryResource {
  public:
    explicit LimitedResource(std::int64_t capacity) : capacity_{capacity} {}

    [[nodiscard]] void* allocate(std::size_t bytes, Stream stream) override {
        auto const size = static_cast<std::int64_t>(bytes);
        if (used_.fetch_add(size) + size > capacity_) {
            used_ -= size;
            throw OutOfMemory{"limited to " + std::to_string(capacity_) + " bytes"};
        }
        return host_.allocate(bytes, stream);
    }
    void deallocate(void* pointer, std::size_t bytes, Stream stream) noexcept override {
        host_.deallocate(pointer, bytes, stream);
        used_ -= static_cast<std::int64_t>(bytes);
    }
    [[nodiscard]] bool is_host_accessible() const noexcept override { return true; }
    [[nodiscard]] bool is_device_accessible() const noexcept override { return false; }

    [[nodiscard]] std::int64_t used() const noexcept { return used_; }

  private:
    std::int64_t capacity_;
    std::atomic<std::int64_t> used_{0};
    HostMemoryResource host_;
};

// Cannot allocate, for a reason that is not that there is too little.
class BrokenResource final : public MemoryResource {
  public:
    [[nodiscard]] void* allocate(std::size_t /*bytes*/, Stream /*stream*/) override {
        throw BadAlloc{"broken"};
    }
    void deallocate(void* /*pointer*/, std::size_t /*bytes*/, Stream /*stream*/) noexcept override {}
    [[nodiscard]] bool is_host_accessible() const noexcept override { return true; }
    [[nodiscard]] bool is_device_accessible() const noexcept override { return true; }
};

}  // namespace rapidsmpf::testing
