#include "rows.hpp"

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "job.hpp"

namespace rapidsmpf::bench {

namespace {

constexpr std::size_t num_columns = row_bytes / 8;

std::uint64_t value_of(std::uint64_t key, std::size_t column) noexcept {
    return column == 0 ? key : key * (2 * column + 1) + column;
}

}  // namespace

Table make_rows(std::uint64_t seed, std::int64_t rows) {
    using Values = std::vector<std::vector<std::uint64_t>>;
    auto const owner =
        std::make_shared<Values>(num_columns, std::vector<std::uint64_t>(static_cast<std::size_t>(rows)));
    for (std::size_t row = 0; row < static_cast<std::size_t>(rows); ++row) {
        auto const key = mix((seed << 40U) + row + 1);
        for (std::size_t c = 0; c < num_columns; ++c) {
            (*owner)[c][row] = value_of(key, c);
        }
    }
    std::vector<Field> fields;
    std::vector<Column> columns;
    for (std::size_t c = 0; c < num_columns; ++c) {
        fields.emplace_back(std::string{"c"} + std::to_string(c), "l");
        Column column;
        column.length = rows;
        column.values = reinterpret_cast<std::byte const*>((*owner)[c].data());
        columns.push_back(std::move(column));
    }
    return Table{std::make_shared<Schema const>(std::move(fields)), std::move(columns), rows, owner};
}

void RowCheck::add(Table const& table) {
    std::vector<std::uint64_t const*> columns;
    for (auto const& column : table.columns()) {
        columns.push_back(reinterpret_cast<std::uint64_t const*>(column.values) + column.offset);
    }
    for (std::size_t row = 0; row < static_cast<std::size_t>(table.num_rows()); ++row) {
        auto const key = columns[0][row];
        for (std::size_t c = 1; c < num_columns; ++c) {
            if (columns[c][row] != value_of(key, c)) {
                throw std::runtime_error{"a row came out torn"};
            }
        }
        sum += mix(key);
    }
    rows += static_cast<std::uint64_t>(table.num_rows());
}

}  // namespace rapidsmpf::bench
