// What the footer of a Parquet file says of its rows, and of the columns that are not nested. Needs no GPU.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace rapidsmpf::compute {

// A column. Its minimum and maximum are 128-bit integers, each in two halves, if each row group has statistics: decimals are
// unscaled integers; unsigned integers are read as signed ones, so their ranges mean nothing. Nulls do not count; a column
// without values has 0 and 0.
struct ColumnSummary {
    std::string name;
    bool is_required{false};  // it has no nulls
    bool has_range{false};
    std::int64_t least_high{0};
    std::uint64_t least_low{0};
    std::int64_t most_high{0};
    std::uint64_t most_low{0};
};

struct FooterSummary {
    std::int64_t rows{0};
    std::vector<ColumnSummary> columns;
};

// While there is a Runtime, its scans use the footer that is parsed here, and this the ones that they have parsed. Throws
// std::runtime_error if the footer cannot be parsed, SystemError if the file cannot be read.
[[nodiscard]] FooterSummary summarize_footer(std::string const& path);

}  // namespace rapidsmpf::compute
