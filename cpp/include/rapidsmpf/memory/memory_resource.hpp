// Where blocks of memory come from: what a BufferResource takes its DEVICE and PINNED_HOST memory from.
//
// A MemoryResource is shared: each owner of a block (a BufferResource, and through it every Buffer) holds a
// shared_ptr until it has released the block. All methods may be called from any thread. A block is aligned to
// Device::alignment bytes and may be used by work on the stream that it was allocated on.
#pragma once

#include <cstddef>
#include <memory>

#include <rapidsmpf/device/device.hpp>

namespace rapidsmpf {

class MemoryResource {
  public:
    MemoryResource() = default;
    MemoryResource(MemoryResource const&) = delete;
    MemoryResource& operator=(MemoryResource const&) = delete;
    virtual ~MemoryResource() = default;

    // Throws OutOfMemory when there is not enough of it, BadAlloc when it failed otherwise.
    [[nodiscard]] virtual void* allocate(std::size_t bytes, Stream stream) = 0;
    // `bytes` is what allocate() was asked for. The block may still be read by work on `stream`.
    virtual void deallocate(void* pointer, std::size_t bytes, Stream stream) noexcept = 0;

    // Whether the CPU can address the blocks.
    [[nodiscard]] virtual bool is_host_accessible() const noexcept = 0;
    // Whether the compute device can address the blocks.
    [[nodiscard]] virtual bool is_device_accessible() const noexcept = 0;
};

// The memory of this process's compute device, as Device::allocate() gives it.
class DeviceMemoryResource final : public MemoryResource {
  public:
    [[nodiscard]] void* allocate(std::size_t bytes, Stream stream) override;
    void deallocate(void* pointer, std::size_t bytes, Stream stream) noexcept override;
    [[nodiscard]] bool is_host_accessible() const noexcept override;
    [[nodiscard]] bool is_device_accessible() const noexcept override { return true; }
};

// Ordinary memory of the host. On a CPU it is the compute device's memory too; there it stands where a
// program for a GPU has an RMM resource.
class HostMemoryResource final : public MemoryResource {
  public:
    [[nodiscard]] void* allocate(std::size_t bytes, Stream stream) override;
    // Waits for the work on `stream`, because the host does not order the reuse of a block on streams.
    void deallocate(void* pointer, std::size_t bytes, Stream stream) noexcept override;
    [[nodiscard]] bool is_host_accessible() const noexcept override { return true; }
    [[nodiscard]] bool is_device_accessible() const noexcept override;
};

}  // namespace rapidsmpf
