// Writes the rows of narrow tables, one behind the other, as columns of their own types.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <rapidsmpf/table/table.hpp>

#include "table/host/scatter.hpp"

namespace rapidsmpf::detail {

// Of some columns, top-level ones whose form differs between the tables and `wide`. It has no memory of its own: size(), then
// place(), then append() for each of the tables in their order, then column(). `wide` must outlive it.
class WideWriter {
  public:
    // `columns`: their numbers. `rows`: of all tables together.
    WideWriter(
        Schema const& wide, std::span<std::optional<Table> const> tables, std::vector<std::size_t> columns,
        std::int64_t rows);

    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    // `base`: memory of that size, at a multiple of 64 bytes.
    void place(std::byte* base);
    void append(Table const& table);
    // Column number `i` of `columns`.
    [[nodiscard]] Column column(std::size_t i);

  private:
    struct Places {
        std::size_t validity;
        std::size_t values;
        std::size_t data;
    };

    Schema const& wide_;
    std::vector<std::size_t> columns_;
    std::int64_t rows_;
    std::size_t size_{0};
    std::vector<Places> places_;
    std::vector<bool> has_nulls_;
    std::vector<ColumnWriter> writers_;
};

}  // namespace rapidsmpf::detail
