// The tables of the benchmark: rows of 32 bytes, four columns of int64, of which the first is the key and the others
// follow from it, so that every row that comes out can be checked by itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <rapidsmpf/table/table.hpp>

namespace rapidsmpf::bench {

constexpr std::size_t row_bytes = 32;

// Rows with keys that `seed` and their number give.
[[nodiscard]] Table make_rows(std::uint64_t seed, std::int64_t rows);

// Rows, and a sum over them that does not depend on their order.
struct RowCheck {
    std::uint64_t rows{0};
    std::uint64_t sum{0};
    // Throws std::runtime_error for a row that was never made.
    void add(Table const& table);
    [[nodiscard]] std::vector<std::uint64_t> values() const { return {rows, sum}; }
};

}  // namespace rapidsmpf::bench
