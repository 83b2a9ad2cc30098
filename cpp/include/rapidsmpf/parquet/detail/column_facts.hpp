// What the footer of a Parquet file says of its row groups, and of a column in each: for plans. A footer is what lies between the
// last page and the length at the end of the file.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace rapidsmpf::parquet {

class FooterError : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

struct RowGroupSize {
    std::int64_t rows{0};
    std::int64_t bytes{0};  // uncompressed
};

// Throws FooterError if the footer is not one.
[[nodiscard]] std::vector<RowGroupSize> row_group_sizes(std::span<std::uint8_t const> footer);

// What the bytes of a minimum or maximum mean.
enum class ValueType : std::uint8_t {
    unknown,
    boolean,         // a byte
    signed_integer,  // 4 or 8 bytes, little endian; likewise the next three
    unsigned_integer,
    day,            // since 1970
    clock,          // a time of day or a point in time, in units that the file chose
    decimal,        // the unscaled integer, little endian in 4 or 8 bytes
    decimal_bytes,  // the unscaled integer, big endian in any number of bytes
    float32,
    float64,
    text,  // UTF-8
    bytes,
};

// A column in one row group.
struct ChunkFacts {
    std::int64_t rows{0};
    std::int64_t nulls{-1};  // negative: not known
    bool has_bounds{false};
    std::string least;  // of the values that are not null, or less than that
    std::string most;
};

struct ColumnFacts {
    ValueType type{ValueType::unknown};
    std::int32_t scale{0};    // of decimals
    bool is_required{false};  // it has no nulls
    std::vector<ChunkFacts> chunks;
};

// Of the column called `name` that is not nested; nothing if there is none. A chunk that is encrypted, of another type than the
// column or without statistics has no bounds. Throws FooterError also for a signed footer, which files with encrypted columns have.
[[nodiscard]] std::optional<ColumnFacts> column_facts(
    std::span<std::uint8_t const> footer, std::string_view name);

}  // namespace rapidsmpf::parquet
