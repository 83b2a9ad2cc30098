// Pages of column chunks without compression: where they are, and what is where in their bodies. What this reads comes from outside:
// every length is checked.
#pragma once

#include <cstdint>

#include <rapidsmpf/pages/detail/decompress.hpp>

#include "pages/copy.hpp"
#include "pages/lanes.hpp"
#include "pages/page_header.hpp"

namespace rapidsmpf::pages {

// Parquet's numbers of the encodings that are known here.
struct Encoding {
    enum : std::int32_t { plain = 0, plain_dictionary = 2, run_lengths = 3, dictionary_indices = 8 };
};

[[nodiscard]] RAPIDSMPF_DEVICE bool has_dictionary_indices(PageHeader const& header) {
    return header.encoding == Encoding::plain_dictionary || header.encoding == Encoding::dictionary_indices;
}

[[nodiscard]] RAPIDSMPF_DEVICE bool is_plain_dictionary(PageHeader const& header) {
    return header.encoding == Encoding::plain || header.encoding == Encoding::plain_dictionary;
}

// Parses the page header at the offset `place` of a chunk. Returns false if there is none, if the page is compressed, or if it ends
// behind the chunk.
[[nodiscard]] RAPIDSMPF_DEVICE bool read_plain_page(
    std::uint8_t const* chunk, std::uint64_t bytes, std::uint64_t place, PageHeader& header) {
    return read_page_header(chunk + place, bytes - place, header)
           && header.compressed_bytes == header.uncompressed_bytes
           && header.uncompressed_bytes <= bytes - place - header.bytes;
}

// Where the definition levels of a data page are in its body; the values follow them.
struct Levels {
    std::uint32_t at{0};
    std::uint32_t bytes{0};

    [[nodiscard]] RAPIDSMPF_DEVICE std::uint32_t end() const { return at + bytes; }
};

// `has_levels`: the column is optional. There are no repetition levels.
[[nodiscard]] RAPIDSMPF_DEVICE Problem
find_levels(PageHeader const& header, bool has_levels, std::uint8_t const* body, Levels& levels) {
    constexpr std::uint32_t length_bytes = 4;
    if (header.type == PageHeader::data_v2) {
        levels.bytes = header.level_bytes;
    } else if (has_levels) {
        if (header.level_encoding != Encoding::run_lengths) {
            return Problem::encoding;
        }
        auto const bytes = header.uncompressed_bytes;
        if (bytes < length_bytes || load_word_bytewise(body) > bytes - length_bytes) {
            return Problem::length;
        }
        levels = Levels{.at = length_bytes, .bytes = load_word_bytewise(body)};
    }
    return Problem::none;
}

}  // namespace rapidsmpf::pages
