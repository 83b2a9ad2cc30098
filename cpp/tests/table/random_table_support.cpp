#include "random_table_support.hpp"

#include <algorithm>
#include <sstream>
#include <utility>

namespace rapidsmpf::testing {

namespace {

constexpr std::string_view leaf_formats[] = {
    "n",
    "b",
    "c",
    "C",
    "s",
    "S",
    "i",
    "I",
    "l",
    "L",
    "e",
    "f",
    "g",
    "tdD",
    "tdm",
    "tts",
    "ttm",
    "ttu",
    "ttn",
    "tDs",
    "tDm",
    "tDu",
    "tDn",
    "tiM",
    "tiD",
    "tin",
    "u",
    "U",
    "vu",
    "z",
    "Z",
    "vz",
    "vu",
    "w:5",
    "w:0",
    "w:16",
    "d:38,2",
    "d:5,2,32",
    "d:10,1,64",
    "d:60,3,256",
    "_pli128",
    "_plu128",
    "tsm:Europe/Paris",
    "tsu:"};

std::string hex(std::byte const* bytes, std::int64_t size) {
    constexpr char digits[] = "0123456789abcdef";
    std::string text;
    for (std::int64_t i = 0; i < size; ++i) {
        auto const byte = std::to_integer<unsigned>(bytes[i]);
        text += digits[byte >> 4U];
        text += digits[byte & 15U];
    }
    return text;
}

template <typename T>
T read(void const* base, std::int64_t index) {
    T value;
    std::memcpy(
        &value, static_cast<std::byte const*>(base) + index * static_cast<std::int64_t>(sizeof(T)),
        sizeof(T));
    return value;
}

std::int64_t offset_at(Layout layout, Column const& column, std::int64_t index) {
    return layout == Layout::offsets32 || layout == Layout::list32
               ? read<std::int32_t>(column.offsets, index)
               : read<std::int64_t>(column.offsets, index);
}

std::string value_text(Field const& field, Column const& column, std::int64_t row) {
    if (field.layout() == Layout::null || !column.is_valid(row)) {
        return "null";
    }
    auto const at = row + column.offset;
    if (field.dictionary() != nullptr) {
        std::int64_t code = 0;
        std::memcpy(&code, column.values + at * field.width(), static_cast<std::size_t>(field.width()));
        return value_text(*field.dictionary(), *column.dictionary, code);
    }
    switch (field.layout()) {
        case Layout::bits:
            return ((std::to_integer<unsigned>(column.values[at >> 3]) >> (at & 7)) & 1U) != 0 ? "true"
                                                                                               : "false";
        case Layout::fixed:
            return hex(column.values + at * field.width(), field.width());
        case Layout::offsets32:
        case Layout::offsets64: {
            auto const begin = offset_at(field.layout(), column, at);
            return '"' + hex(column.data.data() + begin, offset_at(field.layout(), column, at + 1) - begin)
                   + '"';
        }
        case Layout::view: {
            auto const* const view = column.values + at * 16;
            auto const size = read<std::int32_t>(view, 0);
            auto const* const bytes =
                size <= 12 ? view + 4
                           : column.variadic.at(static_cast<std::size_t>(read<std::int32_t>(view, 2)))
                                 .subspan(static_cast<std::size_t>(read<std::int32_t>(view, 3)))
                                 .data();
            return '"' + hex(bytes, size) + '"';
        }
        case Layout::list32:
        case Layout::list64:
        case Layout::fixed_list: {
            auto const is_fixed = field.layout() == Layout::fixed_list;
            auto const begin = is_fixed ? row * field.width() : offset_at(field.layout(), column, at);
            auto const end = is_fixed ? begin + field.width() : offset_at(field.layout(), column, at + 1);
            std::string text = "[";
            for (auto i = begin; i < end; ++i) {
                text += value_text(field.children()[0], column.children[0], i) + ",";
            }
            return text + "]";
        }
        case Layout::structure: {
            std::string text = "{";
            for (std::size_t i = 0; i < column.children.size(); ++i) {
                text += field.children()[i].name() + ":"
                        + value_text(field.children()[i], column.children[i], row) + ",";
            }
            return text + "}";
        }
        case Layout::null:
            break;
    }
    return "?";
}

bool has_views(Field const& field) {
    return any_field_in(field, [](Field const& one) { return one.layout() == Layout::view; });
}

}  // namespace

std::string row_text(Table const& table, std::int64_t row) {
    std::string text;
    for (std::size_t i = 0; i < table.num_columns(); ++i) {
        text += value_text(table.schema()->fields()[i], table.columns()[i], row) + "|";
    }
    return text;
}

std::vector<std::string> row_texts(Table const& table) {
    std::vector<std::string> texts;
    for (std::int64_t row = 0; row < table.num_rows(); ++row) {
        texts.push_back(row_text(table, row));
    }
    return texts;
}

std::uint8_t* make_bits(std::vector<bool> const& bits, Memory& memory) {
    std::vector<std::uint8_t> bytes((bits.size() + 7) / 8, 0);
    for (std::size_t i = 0; i < bits.size(); ++i) {
        if (bits[i]) {
            bytes[i / 8] = static_cast<std::uint8_t>(bytes[i / 8] | (1U << (i % 8)));
        }
    }
    return memory.copy(bytes);
}

std::int64_t RandomTables::number(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>{low, high}(random_);
}

Field RandomTables::field(std::string name, int depth) {
    auto const kind = number(0, depth > 0 ? 99 : 69);
    auto const item = [&] { return std::vector{field("item", depth - 1)}; };
    if (kind >= 92) {
        return Field{std::move(name), "+w:" + std::to_string(number(0, 3)), 2, item()};
    }
    if (kind >= 85) {
        return Field{std::move(name), "+L", 2, item()};
    }
    if (kind >= 80) {
        return Field{std::move(name), "+l", 2, item()};
    }
    if (kind >= 70) {
        std::vector<Field> children;
        for (auto left = number(0, 3); left > 0; --left) {
            children.push_back(field("f" + std::to_string(left), depth - 1));
        }
        return Field{std::move(name), "+s", 2, std::move(children)};
    }
    if (kind >= 60) {
        constexpr std::string_view codes[] = {"c", "C", "s", "S", "i", "I", "l", "L"};
        constexpr std::string_view values[] = {"vu", "u", "U", "l", "vz"};
        auto const code = codes[static_cast<std::size_t>(number(0, 7))];
        auto const value = values[static_cast<std::size_t>(number(0, 4))];
        return Field{
            std::move(name),
            std::string{code},
            2,
            {},
            std::make_shared<Field const>("", std::string{value}),
            {{"_PL_CATEGORICAL2", "0;0;u32;"}}};
    }
    auto const last = static_cast<std::int64_t>(std::size(leaf_formats)) - 1;
    return Field{std::move(name), std::string{leaf_formats[static_cast<std::size_t>(number(0, last))]}};
}

std::shared_ptr<Schema const> RandomTables::schema(std::size_t num_columns, int depth) {
    std::vector<Field> fields;
    for (std::size_t i = 0; i < num_columns; ++i) {
        fields.push_back(field("column " + std::to_string(i), depth));
    }
    return std::make_shared<Schema const>(std::move(fields));
}

std::shared_ptr<Schema const> RandomTables::gpu_schema(std::size_t num_columns, int depth) {
    std::vector<Field> fields;
    while (fields.size() < num_columns) {
        auto next = field("c" + std::to_string(fields.size()), depth);
        if (!has_views(next)) {
            fields.push_back(std::move(next));
        }
    }
    return std::make_shared<Schema const>(std::move(fields));
}

Table RandomTables::table(std::shared_ptr<Schema const> const& schema, std::int64_t rows) {
    auto const memory = std::make_shared<Memory>();
    std::vector<Column> columns;
    for (auto const& field : schema->fields()) {
        columns.push_back(column(field, rows, *memory));
    }
    return Table{schema, std::move(columns), rows, memory};
}

std::string RandomTables::text(bool is_text) {
    auto const size = number(0, 4) == 0 ? number(0, 60) : number(0, 14);
    std::string text;
    for (std::int64_t i = 0; i < size; ++i) {
        text += static_cast<char>(is_text ? number('a', 'z') : number(0, 255));
    }
    return text;
}

void RandomTables::fill_validity(Column& column, Memory& memory) {
    if (number(0, 2) == 0 || column.length == 0) {
        return;
    }
    std::vector<bool> bits;
    for (std::int64_t i = 0; i < column.offset + column.length; ++i) {
        auto const is_valid = number(0, 3) > 0;
        bits.push_back(is_valid);
        column.null_count += i >= column.offset && !is_valid ? 1 : 0;
    }
    if (column.null_count > 0) {
        column.validity = make_bits(bits, memory);
    }
}

template <typename Offset>
void RandomTables::fill_offsets(Field const& field, Column& column, Memory& memory) {
    std::vector<Offset> offsets{static_cast<Offset>(number(0, 3))};
    std::string data(static_cast<std::size_t>(offsets[0]), 'x');
    auto const is_list = field.layout() == Layout::list32 || field.layout() == Layout::list64;
    for (std::int64_t i = 0; i < column.offset + column.length; ++i) {
        data += is_list ? std::string(static_cast<std::size_t>(number(0, 4)), 'x') : text(field.is_text());
        offsets.push_back(static_cast<Offset>(data.size()));
    }
    column.offsets = memory.copy(offsets);
    if (is_list) {
        auto const rows = static_cast<std::int64_t>(data.size()) + number(0, 2);
        column.children.push_back(this->column(field.children()[0], rows, memory));
        return;
    }
    auto* const bytes = memory.allocate(data.size());
    if (!data.empty()) {
        std::memcpy(bytes, data.data(), data.size());
    }
    column.data = {bytes, data.size()};
}

void RandomTables::fill_text(Field const& field, Column& column, Memory& memory) {
    auto const buffers = static_cast<std::size_t>(number(1, 3));
    std::vector<std::string> data(buffers, "unused");
    std::vector<std::int32_t> views;
    for (std::int64_t i = 0; i < column.offset + column.length; ++i) {
        auto const value = text(field.is_text());
        std::int32_t view[4] = {static_cast<std::int32_t>(value.size()), 0, 0, 0};
        if (value.size() <= 12) {
            std::memcpy(view + 1, value.data(), value.size());
        } else {
            auto& buffer = data[static_cast<std::size_t>(number(0, static_cast<std::int64_t>(buffers) - 1))];
            std::memcpy(view + 1, value.data(), 4);
            view[2] = static_cast<std::int32_t>(&buffer - data.data());
            view[3] = static_cast<std::int32_t>(buffer.size());
            if (number(0, 3) > 0) {
                buffer += value;
            } else if (auto const found = buffer.find(value); found != std::string::npos) {
                view[3] = static_cast<std::int32_t>(found);  // a text that several views share
            } else {
                buffer += value;
            }
        }
        views.insert(views.end(), view, view + 4);
    }
    column.values = reinterpret_cast<std::byte const*>(memory.copy(views));
    for (auto const& buffer : data) {
        auto* const bytes = memory.allocate(buffer.size());
        std::memcpy(bytes, buffer.data(), buffer.size());
        column.variadic.emplace_back(bytes, buffer.size());
    }
}

Column RandomTables::column(Field const& field, std::int64_t rows, Memory& memory, bool no_offset) {
    Column column;
    column.length = rows;
    if (field.layout() == Layout::null) {
        column.null_count = rows;
        return column;
    }
    auto const is_nested = field.layout() == Layout::structure || field.layout() == Layout::fixed_list;
    column.offset = no_offset || number(0, 1) == 0 ? 0 : number(0, is_nested ? 7 : 70);
    fill_validity(column, memory);
    auto const total = column.offset + rows;
    switch (field.layout()) {
        case Layout::bits:
        case Layout::fixed: {
            auto const size = field.layout() == Layout::bits ? (total + 7) / 8 : total * field.width();
            auto* const bytes = memory.allocate(static_cast<std::size_t>(size));
            for (std::int64_t i = 0; i < size; ++i) {
                bytes[i] = static_cast<std::byte>(number(0, 3) == 0 ? number(0, 255) : number(0, 2));
            }
            if (field.dictionary() != nullptr) {
                auto const values = number(1, number(0, 1) == 0 ? 100 : 5);
                auto dictionary = this->column(*field.dictionary(), values, memory);
                for (std::int64_t i = 0; i < total; ++i) {
                    auto const code = number(0, values - 1);
                    std::memcpy(bytes + i * field.width(), &code, static_cast<std::size_t>(field.width()));
                }
                column.dictionary = std::make_shared<Column const>(std::move(dictionary));
            }
            column.values = bytes;
            break;
        }
        case Layout::offsets32:
        case Layout::list32:
            fill_offsets<std::int32_t>(field, column, memory);
            break;
        case Layout::offsets64:
        case Layout::list64:
            fill_offsets<std::int64_t>(field, column, memory);
            break;
        case Layout::view:
            fill_text(field, column, memory);
            break;
        case Layout::fixed_list:
            column.children.push_back(this->column(field.children()[0], rows * field.width(), memory));
            break;
        case Layout::structure:
            for (auto const& child : field.children()) {
                column.children.push_back(this->column(child, rows, memory));
            }
            break;
        case Layout::null:
            break;
    }
    return column;
}

Table int64_table(std::vector<std::int64_t> const& values, std::string name) {
    auto const table = fixed_table("l", values);
    auto const schema = std::make_shared<Schema const>(std::vector{Field{std::move(name), "l"}});
    return Table{schema, table.columns(), table.num_rows(), table.owner()};
}

Table text_table(std::vector<char const*> const& values, std::string format) {
    auto const memory = std::make_shared<Memory>();
    Column column;
    column.length = static_cast<std::int64_t>(values.size());
    std::vector<bool> valid;
    std::vector<std::int32_t> views;
    std::vector<std::int64_t> offsets{0};
    std::string data;
    for (auto const* const value : values) {
        valid.push_back(value != nullptr);
        column.null_count += value == nullptr ? 1 : 0;
        std::string_view const text{value == nullptr ? "" : value};
        std::int32_t view[4] = {static_cast<std::int32_t>(text.size()), 0, 0, 0};
        std::memcpy(view + 1, text.data(), std::min<std::size_t>(text.size(), 12));
        if (text.size() > 12) {
            view[2] = 0;
            view[3] = static_cast<std::int32_t>(data.size());
        }
        views.insert(views.end(), view, view + 4);
        data += text;
        offsets.push_back(static_cast<std::int64_t>(data.size()));
    }
    if (column.null_count > 0) {
        column.validity = make_bits(valid, *memory);
    }
    std::vector<char> const bytes{data.begin(), data.end()};
    std::span<std::byte const> const span{
        reinterpret_cast<std::byte const*>(memory->copy(bytes)), bytes.size()};
    if (format == "vu") {
        column.values = reinterpret_cast<std::byte const*>(memory->copy(views));
        column.variadic.push_back(span);
    } else {
        column.data = span;
        if (format == "U") {
            column.offsets = memory->copy(offsets);
        } else {
            column.offsets = memory->copy(std::vector<std::int32_t>{offsets.begin(), offsets.end()});
        }
    }
    auto const schema = std::make_shared<Schema const>(std::vector{Field{"x", std::move(format)}});
    return Table{schema, {column}, column.length, memory};
}

Table categorical_table(
    std::vector<int> const& rows, std::vector<int> const& order, std::int64_t flags,
    std::string code_format) {
    std::vector<std::string> names;
    std::vector<char const*> texts;
    for (auto const category : order) {
        names.push_back("c" + std::to_string(category));
    }
    for (auto const& name : names) {
        texts.push_back(name.c_str());
    }
    auto const values = text_table(texts);
    auto const memory = std::make_shared<Memory>();
    auto const field = Field{
        "x",
        std::move(code_format),
        flags,
        {},
        std::make_shared<Field const>("", "vu"),
        {{"_PL_CATEGORICAL2", "0;0;u32;"}}};
    Column column;
    column.length = static_cast<std::int64_t>(rows.size());
    auto* const codes = memory->allocate(rows.size() * static_cast<std::size_t>(field.width()));
    std::vector<bool> valid;
    for (std::size_t i = 0; i < rows.size(); ++i) {
        valid.push_back(rows[i] >= 0);
        column.null_count += rows[i] < 0 ? 1 : 0;
        auto const found = std::find(order.begin(), order.end(), rows[i]);
        std::uint64_t const code = rows[i] < 0 ? 0 : static_cast<std::uint64_t>(found - order.begin());
        auto const width = static_cast<std::size_t>(field.width());
        std::memcpy(codes + i * width, &code, width);
    }
    column.values = codes;
    if (column.null_count > 0) {
        column.validity = make_bits(valid, *memory);
    }
    column.dictionary = std::make_shared<Column const>(values.columns()[0]);
    auto const owner = std::make_shared<std::pair<std::shared_ptr<void const>, std::shared_ptr<void const>>>(
        memory, values.owner());
    return Table{std::make_shared<Schema const>(std::vector{field}), {column}, column.length, owner};
}

}  // namespace rapidsmpf::testing
