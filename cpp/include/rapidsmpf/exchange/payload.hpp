// A chunk inside an operation: its metadata and data, and whether the data may be moved between tiers now.
//
// Shared between the places that refer to it (an outbox for each destination, the store). All members are
// guarded by the operation's lock, but for `data` while it is pinned (a transport reads it) or `moving` (a
// spill copies it): then nobody replaces it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <rapidsmpf/memory/packed_data.hpp>

namespace rapidsmpf::exchange {

struct Payload {
    explicit Payload(PackedData chunk)
        : metadata{std::move(chunk.metadata)}, data{std::move(chunk.data)}, size{data->size()} {}

    std::vector<std::uint8_t> metadata;
    std::unique_ptr<Buffer> data;
    std::size_t size;               // of data
    std::uint32_t pins{0};          // sends that read the data
    std::uint32_t destinations{0};  // ranks it has still to be sent to
    bool moving{false};
    // Set for a chunk that this rank wants, too: it is stored under this number once it has been sent.
    std::optional<std::uint64_t> keep_as;

    [[nodiscard]] bool spillable() const noexcept {
        return size > 0 && pins == 0 && !moving && data && data->mem_type() == MemoryType::DEVICE;
    }

    [[nodiscard]] PackedData release() { return PackedData{std::move(metadata), std::move(data)}; }
};

// The data as the transport wants it: keeps the payload alive. Only for pinned payloads.
[[nodiscard]] inline std::shared_ptr<Buffer const> shared_data(std::shared_ptr<Payload> const& payload) {
    return {payload, payload->data.get()};
}

}  // namespace rapidsmpf::exchange
