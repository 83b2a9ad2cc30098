// Bytes of a tier set aside for allocations to come. Move-only; what is not consumed goes back to the
// BufferResource on clear() or destruction.
#pragma once

#include <cstddef>
#include <memory>

#include <rapidsmpf/memory/memory_type.hpp>

namespace rapidsmpf {

class BufferResource;

class MemoryReservation {
  public:
    MemoryReservation(MemoryReservation&& other) noexcept;
    MemoryReservation& operator=(MemoryReservation&& other) noexcept;
    MemoryReservation(MemoryReservation const&) = delete;
    MemoryReservation& operator=(MemoryReservation const&) = delete;
    ~MemoryReservation();

    // Bytes not consumed yet.
    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    [[nodiscard]] MemoryType mem_type() const noexcept { return type_; }
    [[nodiscard]] std::shared_ptr<BufferResource> const& resource() const noexcept { return resource_; }
    // Releases the remaining bytes.
    void clear() noexcept;

  private:
    friend class BufferResource;
    MemoryReservation(std::shared_ptr<BufferResource> resource, MemoryType type, std::size_t size) noexcept;

    std::shared_ptr<BufferResource> resource_;
    MemoryType type_;
    std::size_t size_;
};

}  // namespace rapidsmpf
