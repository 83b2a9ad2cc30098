// The row groups of a Parquet footer. A footer is one value of Thrift's compact protocol; nearly all of it are row groups, of
// which a reader needs few fields. This parser takes those fields at some hundred megabytes a second, and the minimum and
// maximum of numeric columns from the statistics. The rest, which is small and has types and schemas in it, it leaves to
// libcudf: `rest` is the same footer without row groups.
//
// What it reads comes from outside: it checks every length, and throws FooterError.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <rapidsmpf/parquet/detail/column_facts.hpp>

namespace rapidsmpf::parquet {

// Where the pages of one column of one row group are.
struct ColumnChunkPlace {
    std::int64_t values{0};
    std::int64_t compressed_bytes{0};
    std::int64_t uncompressed_bytes{0};
    std::int64_t text_bytes{-1};  // of its values when decoded, if the file says so
    std::int64_t data_page_offset{0};
    std::int64_t dictionary_page_offset{0};  // 0: none
    std::uint32_t encodings{0};              // bit n: Parquet's encoding n is used
    std::uint8_t physical_type{0};
    std::uint8_t codec{0};

    // The first byte of its pages.
    [[nodiscard]] std::int64_t offset() const noexcept {
        return dictionary_page_offset > 0 && dictionary_page_offset < data_page_offset
                   ? dictionary_page_offset
                   : data_page_offset;
    }
};

// The minimum and maximum of a column over all row groups, from their statistics; nulls do not count. Decimals are unscaled
// integers. Unsigned integers are read as signed ones, so their ranges mean nothing.
struct ColumnRange {
    enum class Kind { empty, between, unknown };  // empty: no row group has a value
    Kind kind{Kind::empty};
    __int128 least{0};
    __int128 most{0};
};

struct RowGroups {
    std::vector<std::int64_t> rows;  // of each row group
    std::vector<ColumnChunkPlace>
        chunks;                        // row group by row group, the same columns in the same order in each
    std::vector<std::string> columns;  // paths of the columns, parts joined by '\0'
    std::vector<ColumnRange> ranges;   // of the same columns
    std::vector<std::uint8_t> rest;    // the footer without row groups
};

// `footer`: what lies between the last page and the length at the end of the file.
[[nodiscard]] RowGroups parse_row_groups(std::span<std::uint8_t const> footer);

}  // namespace rapidsmpf::parquet
