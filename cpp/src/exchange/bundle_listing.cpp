#include "exchange/bundle_listing.hpp"

#include <cstring>

#include <rapidsmpf/core/error.hpp>

namespace rapidsmpf::exchange {

void set_bundle_sequence(
    std::span<std::uint8_t> metadata, std::size_t index, std::uint64_t sequence) noexcept {
    std::memcpy(metadata.data() + index * bundle_row_size + bundle_sequence_at, &sequence, sizeof sequence);
}

std::vector<BundledChunk> read_bundle(
    std::uint64_t count, std::span<std::uint8_t const> metadata, std::uint64_t data_size) {
    RAPIDSMPF_EXPECTS(
        count > 0 && count <= metadata.size() / bundle_row_size, "a bundle has fewer chunks than it says",
        FormatError);
    std::vector<BundledChunk> chunks;
    chunks.reserve(count);
    auto const* row = metadata.data();
    std::uint64_t metadata_end = count * bundle_row_size;
    std::uint64_t data_end = 0;
    for (std::uint64_t i = 0; i < count; ++i, row += bundle_row_size) {
        // No sum can overflow: there are fewer than 2^60 rows of 32 bits each.
        BundledChunk chunk{};
        std::uint32_t size = 0;
        std::memcpy(&chunk.partition, row, 4);
        std::memcpy(&chunk.sequence, row + bundle_sequence_at, 8);
        std::memcpy(&chunk.metadata_size, row + 12, 4);
        std::memcpy(&size, row + 16, 4);
        RAPIDSMPF_EXPECTS(
            chunk.metadata_size > 0 || size == 0, "a chunk of a bundle has data and no metadata",
            FormatError);
        chunk.metadata = metadata_end;
        metadata_end += chunk.metadata_size;
        auto const begin = bundled_behind(data_end, size);
        chunk.data = {begin, size};
        data_end = begin + size;
        chunks.push_back(chunk);
    }
    RAPIDSMPF_EXPECTS(
        metadata_end == metadata.size() && data_end == data_size, "the chunks of a bundle do not add up",
        FormatError);
    return chunks;
}

}  // namespace rapidsmpf::exchange
