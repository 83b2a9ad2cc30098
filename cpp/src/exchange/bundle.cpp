#include "exchange/bundle.hpp"

#include <algorithm>
#include <cstring>

#include <rapidsmpf/core/error.hpp>

#include "exchange/transfer.hpp"

namespace rapidsmpf::exchange {

namespace {

// Neighbours that are together at least this large are not copied to put others beside them.
constexpr std::size_t enough_together = std::size_t{32} << 10U;

using Chunks = std::span<std::pair<PartitionId, PackedData>>;

Buffer& data_of(std::pair<PartitionId, PackedData>& chunk) {
    return *chunk.second.data;
}

// Whether `next` lies where it has to in a bundle that ends with `last`.
bool are_neighbours(Buffer const& last, Buffer const& next) noexcept {
    return last.size() % bundle_alignment == 0 && last.is_followed_by(next);
}

// The data of chunks that are neighbours, but for empty ones; null when there is none.
std::unique_ptr<Buffer> join(Chunks chunks) {
    std::unique_ptr<Buffer> whole;
    for (auto& [partition, chunk] : chunks) {
        if (chunk.data->size() == 0) {
            chunk.data.reset();
        } else if (whole) {
            whole->append(std::move(chunk.data));
        } else {
            whole = std::move(chunk.data);
        }
    }
    return whole;
}

bool can_be_copied(Buffer const& data, BundleLimits const& limits) noexcept {
    return data.size() <= limits.copied && data.is_host_accessible() && data.is_ready();
}

struct Group {
    std::size_t size;
    bool are_joined;  // where they lie
};

// How many of the first chunks make a bundle.
Group first_group(Chunks chunks, BundleLimits const& limits) {
    std::size_t bytes = 0;
    bool are_joined = true;
    bool are_copied = true;
    Buffer const* last = nullptr;
    for (std::size_t i = 0; i < chunks.size(); ++i) {
        auto const& next = data_of(chunks[i]);
        if (i > 0 && bytes + next.size() > limits.whole) {
            return {i, are_joined};
        }
        if (next.size() == 0) {
            continue;
        }
        bool const is_neighbour = last == nullptr || are_neighbours(*last, next);
        bool const is_copied = can_be_copied(next, limits);
        bool const fits = are_joined && is_neighbour ? true : are_copied && is_copied;
        if (!fits || (are_joined && !is_neighbour && bytes >= enough_together)) {
            return {i, are_joined};
        }
        are_joined = are_joined && is_neighbour;
        are_copied = are_copied && is_copied;
        bytes += next.size();
        last = &next;
    }
    return {chunks.size(), are_joined};
}

std::unique_ptr<Buffer> copy(Chunks chunks, BufferResource& br) {
    std::size_t size = 0;
    for (auto& chunk : chunks) {
        size = bundled_behind(size, data_of(chunk).size()) + data_of(chunk).size();
    }
    auto whole = allocate_anywhere(br, size, Near::host);
    auto* const base = whole->mutable_host_bytes().data();
    std::size_t at = 0;
    for (auto& [partition, chunk] : chunks) {
        auto const bytes = chunk.data->host_bytes();
        auto const begin = bundled_behind(at, bytes.size());
        if (!bytes.empty()) {
            std::memset(base + at, 0, begin - at);  // it travels, and must not carry what lay there before
            std::memcpy(base + begin, bytes.data(), bytes.size());
        }
        at = begin + bytes.size();
        chunk.data.reset();
    }
    return whole;
}

NewBundle bundle_of(Chunks chunks, bool are_joined, BufferResource& br) {
    std::size_t size = chunks.size() * bundle_row_size;
    std::size_t data_bytes = 0;
    for (auto const& [partition, chunk] : chunks) {
        size += chunk.metadata.size();
        data_bytes += chunk.data->size();
    }
    std::vector<PartitionId> partitions;
    partitions.reserve(chunks.size());
    std::vector<std::uint8_t> metadata;
    metadata.reserve(size);
    metadata.resize(chunks.size() * bundle_row_size);
    auto* row = metadata.data();
    for (auto& [partition, chunk] : chunks) {
        partitions.push_back(partition);
        auto const metadata_size = static_cast<std::uint32_t>(chunk.metadata.size());
        auto const data_size = static_cast<std::uint32_t>(chunk.data->size());
        std::memcpy(row, &partition, 4);
        std::memcpy(row + 12, &metadata_size, 4);
        std::memcpy(row + 16, &data_size, 4);
        row += bundle_row_size;
        metadata.insert(metadata.end(), chunk.metadata.begin(), chunk.metadata.end());
        chunk.metadata = {};
    }
    auto data = are_joined ? join(chunks) : copy(chunks, br);
    if (!data) {
        data = allocate_anywhere(br, 0, Near::host);
    }
    return {std::move(partitions), PackedData{std::move(metadata), std::move(data)}, data_bytes};
}

}  // namespace

bool keeps_bundles(BufferResource const& br, MemoryType type) {
    return br.memory_available(type) >= br.memory_limit(type) / 2;
}

bool can_be_bundled(PackedData const& chunk, BundleLimits const& limits) noexcept {
    bool const can_be_joined =
        chunk.data->size() <= limits.joined && chunk.data->mem_type() != MemoryType::DISK;
    return chunk.metadata.size() <= limits.whole && (can_be_joined || can_be_copied(*chunk.data, limits));
}

std::vector<NewBundle> make_bundles(
    std::vector<std::pair<PartitionId, PackedData>>& chunks, BufferResource& br, BundleLimits const& limits) {
    std::vector<NewBundle> bundles;
    std::vector<std::pair<PartitionId, PackedData>> alone;
    for (auto left = Chunks{chunks}; !left.empty();) {
        auto const [size, are_joined] = first_group(left, limits);
        if (size > 1) {
            bundles.push_back(bundle_of(left.first(size), are_joined, br));
        } else {
            alone.push_back(std::move(left.front()));
        }
        left = left.subspan(size);
    }
    chunks = std::move(alone);
    return bundles;
}

namespace {

std::vector<SpillableParts::Part> parts_of(std::vector<BundledChunk> const& chunks) {
    std::vector<SpillableParts::Part> parts;
    parts.reserve(chunks.size());
    for (auto const& chunk : chunks) {
        parts.push_back(chunk.data);
    }
    return parts;
}

}  // namespace

Bundle::Bundle(PackedData packed, std::vector<BundledChunk> chunks, SpillableBuffer::NextUse next_use)
    : metadata_{std::move(packed.metadata)},
      chunks_{std::move(chunks)},
      data_{std::move(packed.data), parts_of(chunks_), next_use} {}

std::span<std::uint8_t const> Bundle::metadata(std::size_t index) const {
    auto const& chunk = chunks_[index];
    return std::span{metadata_}.subspan(chunk.metadata, chunk.metadata_size);
}

PackedData Bundle::release(std::size_t index) {
    auto const bytes = metadata(index);
    return PackedData{{bytes.begin(), bytes.end()}, data_.take(index)};
}

}  // namespace rapidsmpf::exchange
