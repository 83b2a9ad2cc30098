// Between RMM's memory resources and ours, in both directions.
//
// RmmResource makes a MemoryResource of any RMM resource, so that buffers and the adaptor can use it;
// RmmView makes an RMM resource of a MemoryResource, so that code that takes an RMM resource can allocate
// through it. An error keeps its meaning on the way: OutOfMemory is rmm::out_of_memory, BadAlloc is
// rmm::bad_alloc.
//
// Includes RMM's headers, so only code that uses RMM itself should include it.
#pragma once

#include <cstddef>
#include <memory>

#include <cuda/memory_resource>
#include <cuda/stream>
#include <rmm/aligned.hpp>
#include <rmm/resource_ref.hpp>

#include <rapidsmpf/memory/memory_resource.hpp>

namespace rapidsmpf {

// Holds a copy of the resource (RMM's resources are shared handles), and `owner`: what else must live as
// long, such as the Python object that its callbacks belong to; null if nothing.
class RmmResource final : public MemoryResource {
  public:
    explicit RmmResource(rmm::device_async_resource_ref resource, std::shared_ptr<void> owner = nullptr);

    [[nodiscard]] void* allocate(std::size_t bytes, Stream stream) override;
    void deallocate(void* pointer, std::size_t bytes, Stream stream) noexcept override;
    // On a CPU its memory is taken for the host's, as there is no other.
    [[nodiscard]] bool is_host_accessible() const noexcept override;
    [[nodiscard]] bool is_device_accessible() const noexcept override { return true; }

  private:
    std::shared_ptr<void> owner_;  // goes after the resource
    cuda::mr::any_resource<cuda::mr::device_accessible> resource_;
};

// A value that RMM copies as it likes; all copies are the same resource.
class RmmView {
  public:
    explicit RmmView(std::shared_ptr<MemoryResource> resource) : resource_{std::move(resource)} {}

    [[nodiscard]] void* allocate(
        cuda::stream_ref stream, std::size_t bytes, std::size_t alignment = rmm::CUDA_ALLOCATION_ALIGNMENT);
    void deallocate(
        cuda::stream_ref stream, void* pointer, std::size_t bytes,
        std::size_t alignment = rmm::CUDA_ALLOCATION_ALIGNMENT) noexcept;
    [[nodiscard]] void* allocate_sync(
        std::size_t bytes, std::size_t alignment = rmm::CUDA_ALLOCATION_ALIGNMENT);
    void deallocate_sync(
        void* pointer, std::size_t bytes, std::size_t alignment = rmm::CUDA_ALLOCATION_ALIGNMENT) noexcept;

    friend bool operator==(RmmView const&, RmmView const&) noexcept = default;
    friend void get_property(RmmView const&, cuda::mr::device_accessible) noexcept {}

  private:
    std::shared_ptr<MemoryResource> resource_;
};

static_assert(cuda::mr::resource_with<RmmView, cuda::mr::device_accessible>);

}  // namespace rapidsmpf
