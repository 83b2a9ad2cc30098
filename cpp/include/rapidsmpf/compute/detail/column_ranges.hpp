// What the footer of a Parquet file says of its columns' numbers, for whoever plans a query: no GPU is needed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace rapidsmpf::compute {

// The numbers of a column: integers with a sign as they are, decimals in units of their last digit, in two halves of 64 bits.
// All values that are not null lie between them; a column without values has 0 and 0.
struct NumberRange {
    std::string column;
    std::int64_t least_high{0};
    std::uint64_t least_low{0};
    std::int64_t most_high{0};
    std::uint64_t most_low{0};
};

// Of the columns that are not nested and whose row groups all have statistics. Throws std::runtime_error if the footer
// cannot be read, SystemError if the file cannot.
[[nodiscard]] std::vector<NumberRange> read_number_ranges(std::string const& path);

}  // namespace rapidsmpf::compute
