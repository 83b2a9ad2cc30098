#include <rapidsmpf/memory/memory_resource.hpp>

#include <rapidsmpf/device/detail/host_memory.hpp>

namespace rapidsmpf {

void* DeviceMemoryResource::allocate(std::size_t bytes, Stream stream) {
    return Device::current().allocate(bytes, stream);
}

void DeviceMemoryResource::deallocate(void* pointer, std::size_t bytes, Stream stream) noexcept {
    Device::current().deallocate(pointer, bytes, stream);
}

bool DeviceMemoryResource::is_host_accessible() const noexcept {
    return Device::current().kind() == DeviceKind::cpu;
}

void* HostMemoryResource::allocate(std::size_t bytes, Stream /*stream*/) {
    return device::allocate_host(bytes);
}

void HostMemoryResource::deallocate(void* pointer, std::size_t bytes, Stream stream) noexcept {
    auto& device = Device::current();
    if (device.kind() == DeviceKind::cuda) {
        try {
            device.synchronize(stream);
        } catch (...) {  // the device is beyond use, and so is the work that could read the block
        }
    }
    device::deallocate_host(pointer, bytes);
}

bool HostMemoryResource::is_device_accessible() const noexcept {
    return Device::current().kind() == DeviceKind::cpu;
}

}  // namespace rapidsmpf
