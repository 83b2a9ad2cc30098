// Buffer resources and packed data for Python.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include <Python.h>
#include <rapidsmpf_python/callbacks.hpp>

#include <rapidsmpf/device/device.hpp>
#include <rapidsmpf/memory/buffer_resource.hpp>
#include <rapidsmpf/memory/packed_data.hpp>

namespace rapidsmpf::python {

using Settings = BufferResource::Settings;

// What is available in a tier comes from a Python callable. The caller holds the GIL.
inline void set_available(Settings& settings, MemoryType type, PyObject* callable) {
    settings.available.at(static_cast<std::size_t>(type)) =
        integer_function(callable, BufferResource::unlimited);
}

[[nodiscard]] inline std::pair<std::unique_ptr<MemoryReservation>, std::size_t> reserve(
    BufferResource& br, MemoryType type, std::size_t size, bool allow_overbooking) {
    auto [reservation, overbooked] =
        br.reserve(type, size, allow_overbooking ? AllowOverbooking::yes : AllowOverbooking::no);
    return {std::make_unique<MemoryReservation>(std::move(reservation)), overbooked};
}

[[nodiscard]] inline std::unique_ptr<MemoryReservation> reserve_and_spill(
    BufferResource& br, std::size_t size, bool allow_overbooking) {
    return std::make_unique<MemoryReservation>(br.reserve_device_memory_and_spill(
        size, allow_overbooking ? AllowOverbooking::yes : AllowOverbooking::no));
}

// Frees device memory until `headroom` bytes of it are available; returns how many bytes were freed.
[[nodiscard]] inline std::size_t spill_to_make_headroom(BufferResource& br, std::int64_t headroom) {
    auto const available = br.memory_available(MemoryType::DEVICE);
    if (available >= headroom) {
        return 0;
    }
    return br.spill_manager().spill(static_cast<std::size_t>(headroom - available));
}

[[nodiscard]] inline std::unique_ptr<PackedData> pack_bytes(
    std::vector<std::uint8_t> metadata, void const* bytes, std::size_t size, BufferResource& br) {
    auto buffer = br.allocate(MemoryType::HOST, size);
    if (size > 0) {
        std::memcpy(buffer->mutable_host_bytes().data(), bytes, size);
    }
    return std::make_unique<PackedData>(std::move(metadata), std::move(buffer));
}

// Writes all bytes of the buffer to `destination`, waiting for what is still being written to it.
inline void copy_to_host(Buffer const& buffer, void* destination) {
    if (buffer.size() == 0) {
        return;
    }
    if (buffer.is_host_accessible()) {
        std::memcpy(destination, buffer.host_bytes().data(), buffer.size());
        return;
    }
    buffer.synchronize();
    auto& device = Device::current();
    device.copy(destination, buffer.data(), buffer.size(), buffer.stream());
    device.synchronize(buffer.stream());
}

}  // namespace rapidsmpf::python
