// The column chunks of a pass with their Snappy pages decompressed, for decoders.
//
// libcudf decompresses a page by one warp (nvCOMP), and dictionary pages have up to a megabyte: a pass then waits for a few
// hundred warps. The room `pages` divides a page.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <cudf/io/parquet_schema.hpp>
#include <rmm/device_buffer.hpp>

#include <rapidsmpf/parquet/detail/footer_parser.hpp>

#include "compute/operators.hpp"

namespace rapidsmpf::compute {

using parquet::ColumnChunkPlace;

// A column chunk on the device.
struct DeviceChunk {
    std::uint8_t const* data{nullptr};
    std::size_t bytes{0};
    bool is_compressed{true};  // pages as the file has them
};

// The metadata of one of a pass's column chunks.
struct PassChunk {
    ColumnChunkPlace const* place{nullptr};
    cudf::io::parquet::SchemaElement const* element{nullptr};
    std::size_t column{0};
};

// Whether its pages are not compressed, or not any more.
[[nodiscard]] bool has_plain_pages(DeviceChunk const& chunk, ColumnChunkPlace const& place) noexcept;

// Whether it has no other encodings than PLAIN and dictionary indices, in any of its pages.
[[nodiscard]] bool has_simple_encodings(ColumnChunkPlace const& place) noexcept;
// Whether this is a column at the top level. Nested columns have repetition levels or more definition levels.
[[nodiscard]] bool is_flat(cudf::io::parquet::SchemaElement const& element) noexcept;

struct PlainChunks {
    std::vector<DeviceChunk> chunks;  // in the order of the chunks that were given
    rmm::device_buffer memory;        // that of decompressed ones
};

// Decompresses those of the chunks whose codec is Snappy; `places` are what the footer says of each. Waits for the stream.
// Nothing if there are none, or if a page is not as compressors make them: who decodes has to decompress, too.
[[nodiscard]] std::optional<PlainChunks> decompress_snappy(
    std::span<DeviceChunk const> chunks, std::span<PassChunk const> places, Work& work);

}  // namespace rapidsmpf::compute
