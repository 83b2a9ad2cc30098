// Minimum and maximum of the numeric columns of a Parquet file, from the statistics in its footer. Needs no GPU.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace rapidsmpf::compute {

// The minimum and maximum of a column as 128-bit integers, each in two halves. Decimals are unscaled integers; unsigned
// integers are read as signed ones, so their ranges mean nothing. Nulls do not count; a column without values has 0 and 0.
struct NumberRange {
    std::string column;
    std::int64_t least_high{0};
    std::uint64_t least_low{0};
    std::int64_t most_high{0};
    std::uint64_t most_low{0};
};

// Returns the ranges of the columns that are not nested and have statistics in each row group. Throws std::runtime_error if
// the footer cannot be parsed, SystemError if the file cannot be read.
[[nodiscard]] std::vector<NumberRange> read_number_ranges(std::string const& path);

}  // namespace rapidsmpf::compute
