#include "compute/rows_support.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace rapidsmpf::testing {

struct TableBuilder::Memory {
    std::vector<std::vector<std::uint64_t>> blocks;  // of words, for their alignment
};

template <typename T>
T* TableBuilder::keep(std::vector<T> const& values) {
    if (!memory_) {
        memory_ = std::make_shared<Memory>();
    }
    auto const bytes = values.size() * sizeof(T);
    auto& block = memory_->blocks.emplace_back(bytes / 8 + 2);
    // Sixteen bytes are what the widest of them is aligned to.
    auto address = reinterpret_cast<std::uintptr_t>(block.data());
    address = (address + 15) / 16 * 16;
    auto* const place = reinterpret_cast<T*>(address);
    if (bytes > 0) {
        std::memcpy(place, values.data(), bytes);
    }
    return place;
}

template <typename Cell>
void TableBuilder::set_validity(Column& column, std::vector<std::optional<Cell>> const& cells) {
    rows_ = static_cast<std::int64_t>(cells.size());
    column.length = rows_;
    std::vector<std::uint8_t> bits(cells.size() / 8 + 1);
    for (std::size_t i = 0; i < cells.size(); ++i) {
        if (cells[i]) {
            bits[i / 8] = static_cast<std::uint8_t>(bits[i / 8] | (1U << (i % 8)));
        } else {
            ++column.null_count;
        }
    }
    column.validity = column.null_count > 0 ? keep(bits) : nullptr;
}

TableBuilder& TableBuilder::add(Integers const& cells) {
    Column column;
    set_validity(column, cells);
    std::vector<std::int64_t> values;
    for (auto const& cell : cells) {
        values.push_back(cell.value_or(0));
    }
    column.values = reinterpret_cast<std::byte const*>(keep(values));
    fields_.emplace_back(std::to_string(fields_.size()), "l");
    columns_.push_back(std::move(column));
    return *this;
}

TableBuilder& TableBuilder::add(Reals const& cells) {
    Column column;
    set_validity(column, cells);
    std::vector<double> values;
    for (auto const& cell : cells) {
        values.push_back(cell.value_or(0));
    }
    column.values = reinterpret_cast<std::byte const*>(keep(values));
    fields_.emplace_back(std::to_string(fields_.size()), "g");
    columns_.push_back(std::move(column));
    return *this;
}

TableBuilder& TableBuilder::add_decimals(Integers const& cells) {
    Column column;
    set_validity(column, cells);
    std::vector<std::int64_t> words;
    for (auto const& cell : cells) {
        words.push_back(cell.value_or(0));
        words.push_back(cell.value_or(0) < 0 ? -1 : 0);
    }
    column.values = reinterpret_cast<std::byte const*>(keep(words));
    fields_.emplace_back(std::to_string(fields_.size()), "d:38,2");
    columns_.push_back(std::move(column));
    return *this;
}

Column TableBuilder::text_column(Texts const& cells, std::string const& format) {
    Column column;
    set_validity(column, cells);
    std::vector<char> bytes;
    std::vector<std::int32_t> offsets32{0};
    std::vector<std::int64_t> offsets64{0};
    std::vector<std::uint32_t> views;
    for (auto const& cell : cells) {
        auto const text = cell.value_or("");
        bytes.insert(bytes.end(), text.begin(), text.end());
        offsets32.push_back(static_cast<std::int32_t>(bytes.size()));
        offsets64.push_back(static_cast<std::int64_t>(bytes.size()));
        std::uint32_t words[4] = {static_cast<std::uint32_t>(text.size()), 0, 0, 0};
        if (format == "vu" && text.size() > 12) {
            throw std::invalid_argument{"too long a text: " + text};
        }
        std::memcpy(words + 1, text.data(), std::min<std::size_t>(text.size(), 12));
        views.insert(views.end(), words, words + 4);
    }
    if (format == "vu") {
        column.values = reinterpret_cast<std::byte const*>(keep(views));
        return column;
    }
    column.offsets = format == "U" ? static_cast<void const*>(keep(offsets64)) : keep(offsets32);
    column.data = {reinterpret_cast<std::byte const*>(keep(bytes)), bytes.size()};
    return column;
}

TableBuilder& TableBuilder::add(Texts const& cells, std::string const& format) {
    auto const name = std::to_string(fields_.size());
    if (format != "dictionary") {
        columns_.push_back(text_column(cells, format));
        fields_.emplace_back(name, format);
        return *this;
    }
    Texts values;
    std::vector<std::uint32_t> codes;
    for (auto const& cell : cells) {
        auto const found = std::find(values.begin(), values.end(), cell);
        codes.push_back(cell ? static_cast<std::uint32_t>(found - values.begin()) : 0);
        if (cell && found == values.end()) {
            values.push_back(cell);
        }
    }
    auto const dictionary = std::make_shared<Column const>(text_column(values, "vu"));
    Column column;
    set_validity(column, cells);
    column.values = reinterpret_cast<std::byte const*>(keep(codes));
    column.dictionary = dictionary;
    columns_.push_back(std::move(column));
    fields_.emplace_back(
        name, "I", ARROW_FLAG_NULLABLE, std::vector<Field>{}, std::make_shared<Field const>("", "vu"));
    return *this;
}

Table TableBuilder::build() {
    return Table{std::make_shared<Schema const>(fields_), columns_, rows_, memory_};
}

std::shared_ptr<TableReader> reader_of(Table const& table, std::int64_t rows_each) {
    ArrowStreamOwner stream;
    export_table_stream(
        table.schema(),
        [table, rows_each, begin = std::int64_t{0}]() mutable -> std::optional<Table> {
            if (begin >= table.num_rows()) {
                return std::nullopt;
            }
            auto const rows = std::min(rows_each, table.num_rows() - begin);
            auto part = table.slice(begin, rows);
            begin += rows;
            return part;
        },
        stream.out());
    return std::make_shared<TableReader>(std::move(stream));
}

namespace {

template <typename T>
T value_of(Column const& column, std::int64_t row) {
    T value;
    std::memcpy(
        &value, column.values + (column.offset + row) * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
    return value;
}

std::string cell_of(Field const& field, Column const& column, std::int64_t row) {
    if (!column.is_valid(row)) {
        return "null";
    }
    auto const place = column.offset + row;
    auto const text = [&](auto const* offsets) {
        auto const begin = static_cast<std::size_t>(offsets[place]);
        auto const end = static_cast<std::size_t>(offsets[place + 1]);
        return std::string{reinterpret_cast<char const*>(column.data.data()) + begin, end - begin};
    };
    auto const& format = field.format();
    if (format == "l") {
        return std::to_string(value_of<std::int64_t>(column, row));
    }
    if (format == "i") {
        return std::to_string(value_of<std::int32_t>(column, row));
    }
    if (format == "g") {
        auto const value = value_of<double>(column, row);
        if (std::isnan(value)) {
            return "nan";
        }
        char digits[64];
        std::snprintf(digits, sizeof(digits), "%.6g", value);
        return digits;
    }
    if (format == "u") {
        return text(static_cast<std::int32_t const*>(column.offsets));
    }
    if (format == "U") {
        return text(static_cast<std::int64_t const*>(column.offsets));
    }
    if (format.starts_with("d:")) {
        return std::to_string(value_of<std::int64_t>(column, 2 * (column.offset + row) - column.offset));
    }
    throw std::invalid_argument{"no text for " + format};
}

}  // namespace

Rows rows_of(Table const& table) {
    Rows rows(static_cast<std::size_t>(table.num_rows()));
    for (std::size_t i = 0; i < table.num_columns(); ++i) {
        for (std::size_t row = 0; row < rows.size(); ++row) {
            rows[row].push_back(
                cell_of(table.schema()->fields()[i], table.columns()[i], static_cast<std::int64_t>(row)));
        }
    }
    return rows;
}

Rows rows_of(compute::Result& result) {
    Rows all;
    while (auto const table = result.next()) {
        auto rows = rows_of(*table);
        all.insert(all.end(), rows.begin(), rows.end());
    }
    return all;
}

Rows sorted(Rows rows) {
    std::sort(rows.begin(), rows.end());
    return rows;
}

// Numbers of cudf::type_id.
compute::DataType int64_type() {
    return {4, 0};
}
compute::DataType float64_type() {
    return {10, 0};
}
compute::DataType text_type() {
    return {23, 0};
}
compute::DataType decimal_type() {
    return {27, -2};
}

}  // namespace rapidsmpf::testing
