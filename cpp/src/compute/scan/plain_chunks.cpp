#include "compute/scan/plain_chunks.hpp"

#include <utility>
#include <variant>  // libcudf's headers need it first

#include <cuda_runtime_api.h>
#include <cudf/io/parquet_schema.hpp>
#include <cudf/utilities/error.hpp>

#include <rapidsmpf/pages/detail/decompress.hpp>

#include "compute/scan/plan_memory.hpp"

namespace rapidsmpf::compute {

namespace pq = cudf::io::parquet;

bool has_plain_pages(DeviceChunk const& chunk, ColumnChunkPlace const& place) noexcept {
    return !chunk.is_compressed || static_cast<pq::Compression>(place.codec) == pq::Compression::UNCOMPRESSED;
}

bool has_simple_encodings(ColumnChunkPlace const& place) noexcept {
    // PLAIN, PLAIN_DICTIONARY, RLE, BIT_PACKED (old writers list that of levels, too), RLE_DICTIONARY
    constexpr std::uint32_t known = 1U << 0 | 1U << 2 | 1U << 3 | 1U << 4 | 1U << 8;
    return (place.encodings & ~known) == 0;
}

bool is_flat(pq::SchemaElement const& element) noexcept {
    return element.parent_idx == 0 && element.num_children == 0
           && element.repetition_type != pq::FieldRepetitionType::REPEATED;
}

std::optional<PlainChunks> decompress_snappy(
    std::span<DeviceChunk const> chunks, std::span<PassChunk const> places, Work& work) {
    // An element of three bytes makes 64 at most: a footer that says more is wrong, and memory is asked for by what it says.
    constexpr std::size_t most_growth = 22;
    std::vector<pages::Chunk> compressed;
    std::vector<std::size_t> numbers;
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < chunks.size(); ++i) {
        auto const& place = *places[i].place;
        if (static_cast<pq::Compression>(place.codec) != pq::Compression::SNAPPY || chunks[i].bytes == 0) {
            continue;
        }
        auto const uncompressed = static_cast<std::uint64_t>(place.uncompressed_bytes);
        if (uncompressed / most_growth > chunks[i].bytes) {
            continue;
        }
        auto const room = pages::room_for(uncompressed);
        compressed.push_back(
            pages::Chunk{
                .data = chunks[i].data,
                .bytes = chunks[i].bytes,
                .values = static_cast<std::uint64_t>(place.values),
                .room = room});
        numbers.push_back(i);
        bytes += room;
    }
    if (compressed.empty()) {
        return std::nullopt;
    }
    auto const stream = work.stream();
    PlainChunks plain{
        .chunks{chunks.begin(), chunks.end()}, .memory = rmm::device_buffer{bytes, stream, work.mr()}};
    auto* to = static_cast<std::uint8_t*>(plain.memory.data());
    for (auto& chunk : compressed) {
        chunk.out = to;
        to += chunk.room;
    }
    auto const layout = pages::PlanLayout::of(compressed);
    PlanMemory memory{layout.bytes, layout.counters_at + sizeof(pages::Counters), work};
    memory.put<pages::Chunk>(0, compressed);
    memory.send(work);
    pages::decompress_on_gpu(layout.in(memory.on_device()), stream.get());
    memory.read_back(work);
    if (memory.get<pages::Counters>(layout.counters_at).error != 0) {
        return std::nullopt;
    }
    memory.get<pages::Chunk>(0, compressed);
    for (std::size_t i = 0; i < numbers.size(); ++i) {
        plain.chunks[numbers[i]] = DeviceChunk{
            .data = compressed[i].out,
            .bytes = static_cast<std::size_t>(compressed[i].out_bytes),
            .is_compressed = false};
    }
    return plain;
}

}  // namespace rapidsmpf::compute
