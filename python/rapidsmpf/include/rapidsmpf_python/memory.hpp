// Buffer resources and packed data for Python.
#pragma once

#include <atomic>
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

#include <rapidsmpf/core/config.hpp>
#include <rapidsmpf/core/detail/option_table.hpp>
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

// The streams at these addresses are handed out in turn. `owner` is the Python object that they belong to; the caller
// holds the GIL.
inline void set_streams(Settings& settings, std::vector<std::uintptr_t> const& addresses, PyObject* owner) {
    struct Pool {
        std::vector<Stream> streams;
        SharedObject owner;
        std::atomic<std::size_t> next{0};
    };
    auto const pool = std::make_shared<Pool>();
    pool->owner = share(owner);
    for (auto const address : addresses) {
        pool->streams.emplace_back(reinterpret_cast<void*>(address));
    }
    settings.num_streams = addresses.size();
    settings.next_stream = [pool] {
        return pool->streams[pool->next.fetch_add(1, std::memory_order_relaxed) % pool->streams.size()];
    };
}

// Zero or less: no checks.
inline void set_periodic_spill_check(Settings& settings, double seconds) {
    settings.periodic_spill_check.reset();
    if (seconds > 0) {
        settings.periodic_spill_check =
            std::chrono::duration_cast<BufferResource::Duration>(std::chrono::duration<double>{seconds});
    }
}

// In seconds; zero: none.
[[nodiscard]] inline double periodic_spill_check_from_options(config::Options const& options) {
    return config::get_optional_seconds(options, "periodic_spill_check").value_or(0.0);
}

[[nodiscard]] inline std::size_t num_streams_from_options(config::Options const& options) {
    return static_cast<std::size_t>(config::get_count(options, "num_streams"));
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
    auto reservation = br.reserve_and_spill(MemoryType::HOST, size, AllowOverbooking::yes);
    auto buffer = br.allocate(size, reservation);
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
    if (buffer.mem_type() == MemoryType::DISK) {
        auto& br = *buffer.resource();
        auto reservation = br.reserve_and_spill(MemoryType::HOST, buffer.size(), AllowOverbooking::yes);
        auto const read = br.copy(buffer, 0, buffer.size(), reservation);
        std::memcpy(destination, read->host_bytes().data(), buffer.size());
        return;
    }
    buffer.synchronize();
    auto& device = Device::current();
    device.copy(destination, buffer.data(), buffer.size(), buffer.stream());
    device.synchronize(buffer.stream());
}

}  // namespace rapidsmpf::python
