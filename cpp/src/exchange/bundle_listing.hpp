// How a message lists the chunks of a bundle (bundle.hpp), and reading that.
//
// The metadata of a bundle is, little endian and without padding:
//   n x (u32 partition, u64 sequence, u32 metadata size, u32 data size), then the metadata of each, one after the other
// The data of each begins at the next multiple of bundle_alignment behind the one before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <rapidsmpf/core/detail/align.hpp>
#include <rapidsmpf/memory/detail/spillable_parts.hpp>

#include "exchange/wire.hpp"

namespace rapidsmpf::exchange {

// So that each chunk can be read where it is.
inline constexpr std::size_t bundle_alignment = 64;

// A row of the list, and where in it the chunk's sequence number is.
inline constexpr std::size_t bundle_row_size = 4 + 8 + 4 + 4;
inline constexpr std::size_t bundle_sequence_at = 4;

// Where the `size` bytes of a chunk begin that come behind `end`.
[[nodiscard]] constexpr std::uint64_t bundled_behind(std::uint64_t end, std::uint64_t size) noexcept {
    return size == 0 ? end : round_up(end, bundle_alignment);
}

// One chunk of a bundle, and where in the bundle it lies.
struct BundledChunk {
    PartitionId partition;
    std::uint32_t metadata_size;
    std::uint64_t sequence;
    std::size_t metadata;
    SpillableParts::Part data;
};

// Writes a chunk's sequence number into the list.
void set_bundle_sequence(
    std::span<std::uint8_t> metadata, std::size_t index, std::uint64_t sequence) noexcept;
// The chunks of a bundle with `count` of them. Throws FormatError when it is malformed.
[[nodiscard]] std::vector<BundledChunk> read_bundle(
    std::uint64_t count, std::span<std::uint8_t const> metadata, std::uint64_t data_size);

}  // namespace rapidsmpf::exchange
