#include <rapidsmpf/memory/rmm_resource.hpp>

#include <new>
#include <string>
#include <string_view>
#include <utility>

#include <cuda_runtime_api.h>
#include <rmm/error.hpp>

#include <rapidsmpf/core/config.hpp>
#include <rapidsmpf/core/error.hpp>

namespace rapidsmpf {

namespace {

cuda::stream_ref native(Stream stream) {
    return cuda::stream_ref{static_cast<cudaStream_t>(stream.handle())};
}

std::string cannot_allocate(std::size_t bytes, std::string_view why) {
    // RMM puts the names of the exceptions first, once for each resource on the way.
    for (std::string_view const name : {"std::bad_alloc: ", "out_of_memory: "}) {
        if (why.starts_with(name)) {
            why.remove_prefix(name.size());
        }
    }
    return "cannot allocate " + config::format_bytes(bytes) + " from the RMM resource: " + std::string{why};
}

}  // namespace

RmmResource::RmmResource(rmm::device_async_resource_ref resource, std::shared_ptr<void> owner)
    : owner_{std::move(owner)}, resource_{resource} {}

void* RmmResource::allocate(std::size_t bytes, Stream stream) {
    try {
        return resource_.allocate(native(stream), bytes, Device::alignment);
    } catch (rmm::out_of_memory const& error) {
        throw OutOfMemory{cannot_allocate(bytes, error.what())};
    } catch (BadAlloc const&) {
        throw;  // one of ours below RMM's
    } catch (std::bad_alloc const& error) {
        throw BadAlloc{cannot_allocate(bytes, error.what())};
    }
}

void RmmResource::deallocate(void* pointer, std::size_t bytes, Stream stream) noexcept {
    resource_.deallocate(native(stream), pointer, bytes, Device::alignment);
}

bool RmmResource::is_host_accessible() const noexcept {
    return Device::current().kind() == DeviceKind::cpu;
}

void* RmmView::allocate(cuda::stream_ref stream, std::size_t bytes, std::size_t alignment) {
    if (alignment > Device::alignment) {
        throw rmm::bad_alloc{
            "an alignment of " + std::to_string(alignment) + " was asked for: blocks are aligned to "
            + std::to_string(Device::alignment) + " bytes"};
    }
    try {
        return resource_->allocate(bytes, Stream{stream.get()});
    } catch (OutOfMemory const& error) {
        throw rmm::out_of_memory{error.what()};
    } catch (BadAlloc const& error) {
        throw rmm::bad_alloc{error.what()};
    }
}

void RmmView::deallocate(
    cuda::stream_ref stream, void* pointer, std::size_t bytes, std::size_t /*alignment*/) noexcept {
    resource_->deallocate(pointer, bytes, Stream{stream.get()});
}

void* RmmView::allocate_sync(std::size_t bytes, std::size_t alignment) {
    auto* const pointer = allocate(cuda::stream_ref{cudaStream_t{}}, bytes, alignment);
    Device::current().synchronize(Stream{});
    return pointer;
}

void RmmView::deallocate_sync(void* pointer, std::size_t bytes, std::size_t alignment) noexcept {
    deallocate(cuda::stream_ref{cudaStream_t{}}, pointer, bytes, alignment);
}

}  // namespace rapidsmpf
