// Footers of Parquet files, for Python.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <rapidsmpf/parquet/detail/column_facts.hpp>

namespace rapidsmpf::python {

[[nodiscard]] inline std::span<std::uint8_t const> bytes_of(std::string const& footer) {
    return {reinterpret_cast<std::uint8_t const*>(footer.data()), footer.size()};
}

[[nodiscard]] inline std::vector<parquet::RowGroupSize> row_group_sizes(std::string const& footer) {
    return parquet::row_group_sizes(bytes_of(footer));
}

// At most one.
[[nodiscard]] inline std::vector<parquet::ColumnFacts> column_facts(
    std::string const& footer, std::string const& name) {
    std::vector<parquet::ColumnFacts> found;
    if (auto facts = parquet::column_facts(bytes_of(footer), name)) {
        found.push_back(std::move(*facts));
    }
    return found;
}

// The place of the type in _VALUE_TYPES of _parquet.pyx.
[[nodiscard]] inline int type_number(parquet::ColumnFacts const& facts) {
    return static_cast<int>(facts.type);
}

}  // namespace rapidsmpf::python
