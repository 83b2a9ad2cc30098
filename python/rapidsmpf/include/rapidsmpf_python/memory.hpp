// Buffer resources and packed data for Python.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <Python.h>
#include <rapidsmpf_python/callbacks.hpp>

#include <rapidsmpf/device/device.hpp>
#include <rapidsmpf/memory/available_memory.hpp>
#include <rapidsmpf/memory/buffer_resource.hpp>
#include <rapidsmpf/memory/memory_resource.hpp>
#include <rapidsmpf/memory/packed_data.hpp>
#include <rapidsmpf/memory/pinned_memory_resource.hpp>

namespace rapidsmpf::python {

using Settings = BufferResource::Settings;

// What is available in a tier comes from a Python callable. The caller holds the GIL.
inline void set_available(Settings& settings, MemoryType type, PyObject* callable) {
    settings.available.at(static_cast<std::size_t>(type)) =
        integer_function(callable, BufferResource::unlimited);
}

// What is available in a tier comes from a limit on what goes through an adaptor: no Python is run.
inline void set_limit(Settings& settings, MemoryType type, LimitAvailableMemory const& limit) {
    settings.available.at(static_cast<std::size_t>(type)) = limit;
}

inline void set_available_map(Settings& settings, AvailableMemoryMap const& map) {
    for (std::size_t i = 0; i < map.size(); ++i) {
        settings.available.at(i) = map[i];
    }
}

// Where the memory of a tier comes from, and how many streams there are.
template <typename Any>
void set_device_mr(Any& settings, std::shared_ptr<MemoryResource> mr) {
    if constexpr (requires { settings.device_mr = mr; }) {
        settings.device_mr = std::move(mr);
    } else if (mr) {
        throw std::runtime_error(
            "this build allocates device memory from the device only: device_mr must be None");
    }
}

template <typename Any>
void set_pinned_mr(Any& settings, std::shared_ptr<PinnedMemoryResource> mr) {
    if constexpr (requires { settings.pinned_mr = mr; }) {
        settings.pinned_mr = std::move(mr);
    } else if (mr) {
        throw std::runtime_error("this build has no pinned tier: pinned_mr must be None");
    }
}

template <typename Any>
void set_num_streams(Any& settings, std::size_t count) {
    if constexpr (requires { settings.num_streams = count; }) {
        settings.num_streams = count;
    }
}

// Zero or less: no checks.
template <typename Any>
void set_periodic_spill_check(Any& settings, double seconds) {
    if constexpr (requires { settings.periodic_spill_check.reset(); }) {
        settings.periodic_spill_check.reset();
        if (seconds > 0) {
            settings.periodic_spill_check = std::chrono::duration<double>{seconds};
        }
    }
}

// What BufferResource::from_options() reads of the options.
template <typename Resource = BufferResource>
[[nodiscard]] typename Resource::Settings settings_from_options(config::Options options) {
    if constexpr (requires { Resource::settings_from_options(options); }) {
        return Resource::settings_from_options(options);
    } else {
        typename Resource::Settings settings;
        auto const total = Device::current().total_memory();
        settings.limits[0] =
            options.get<std::int64_t>("spill_device_limit", [total](std::string const& text) {
                return config::is_disabled(text)
                           ? Resource::unlimited
                           : config::parse_bytes_or_percent(text.empty() ? "80%" : text, total);
            });
        return settings;
    }
}

[[nodiscard]] inline bool device_is_cuda() {
    return Device::current().kind() == DeviceKind::cuda;
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

// Packed data around memory of the compute device that a Python object owns; the object is let go when the data
// is. What is still being written to it is ordered on `stream`. The caller holds the GIL.
[[nodiscard]] inline std::unique_ptr<PackedData> adopt_packed(
    std::vector<std::uint8_t> metadata, std::uintptr_t data, std::size_t size, PyObject* owner, Stream stream,
    BufferResource& br) {
    auto buffer =
        br.adopt(MemoryType::DEVICE, reinterpret_cast<std::byte*>(data), size, share(owner), stream);
    buffer->write([](std::byte*, Stream) {});  // whatever was enqueued before: it marks the stream's end
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
