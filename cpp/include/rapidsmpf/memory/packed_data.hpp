// A chunk, which travels between ranks and waits in shuffles: a small host blob that says what the bytes are, and one
// contiguous buffer. Owns both; the buffer is never null (its size may be zero).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <rapidsmpf/memory/buffer.hpp>

namespace rapidsmpf {

class BufferResource;

struct PackedData {
    PackedData(std::vector<std::uint8_t> metadata_, std::unique_ptr<Buffer> data_);
    PackedData(PackedData&&) noexcept = default;
    PackedData& operator=(PackedData&&) noexcept = default;
    PackedData(PackedData const&) = delete;
    PackedData& operator=(PackedData const&) = delete;
    ~PackedData() = default;

    // No metadata and no data: nothing to send.
    [[nodiscard]] bool empty() const noexcept { return metadata.empty() && data->size() == 0; }

    std::vector<std::uint8_t> metadata;
    std::unique_ptr<Buffer> data;
};

}  // namespace rapidsmpf
