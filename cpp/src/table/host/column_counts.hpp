// How many bytes of text the selected rows of a column have.
#pragma once

#include <cstddef>
#include <cstdint>

#include "table/host/column_access.hpp"
#include "table/host/selection.hpp"

namespace rapidsmpf::detail {

template <typename Offset>
[[nodiscard]] std::int64_t count_text(Column const& column, IndexRun const& run) {
    std::int64_t bytes{0};
    auto const* const offsets = static_cast<Offset const*>(column.offsets) + column.offset + run.base;
    for (std::int64_t k = 0; k < run.count; ++k) {
        bytes += load<Offset>(offsets, run.rows[k] + 1) - load<Offset>(offsets, run.rows[k]);
    }
    return bytes;
}

template <typename Offset>
[[nodiscard]] std::int64_t count_text(Column const& column, RangeRun const& run) {
    std::int64_t bytes{0};
    for (std::size_t k = 0; k < run.count; ++k) {
        auto const begin = column.offset + run.ranges[k].begin;
        bytes +=
            load<Offset>(column.offsets, begin + run.ranges[k].length) - load<Offset>(column.offsets, begin);
    }
    return bytes;
}

// Bytes that the views of the run refer to.
template <typename Run>
[[nodiscard]] std::int64_t count_viewed(Column const& column, Run const& run) {
    std::int64_t bytes{0};
    if (column.variadic.empty()) {
        return 0;
    }
    run.for_each_row([&](std::int64_t row) {
        auto const size = load<std::uint32_t>(column.values, (column.offset + row) * 4);
        bytes += size > View::max_inline && column.is_valid(row) ? size : 0;
    });
    return bytes;
}

}  // namespace rapidsmpf::detail
