#include <algorithm>
#include <span>
#include <stdexcept>

#include "streaming/tables.hpp"

namespace rapidsmpf::streaming::testing {

namespace {
// The memory that a made table's columns point to.
struct Memory {
    std::vector<std::int64_t> keys;
    std::vector<std::int32_t> offsets{0};
    std::string bytes;
    std::vector<std::uint32_t> targets;
};

Column fixed(void const* values, std::size_t length) {
    Column column;
    column.length = static_cast<std::int64_t>(length);
    column.values = static_cast<std::byte const*>(values);
    return column;
}
}  // namespace

std::shared_ptr<Schema const> row_schema() {
    std::vector<Field> fields;
    fields.emplace_back("key", "l");
    fields.emplace_back("text", "u");
    fields.emplace_back("target", "I");
    return std::make_shared<Schema const>(std::move(fields));
}

Table make_table(Rows const& rows) {
    auto memory = std::make_shared<Memory>();
    for (auto const& row : rows) {
        memory->keys.push_back(row.key);
        memory->bytes += row.text;
        memory->offsets.push_back(static_cast<std::int32_t>(memory->bytes.size()));
        memory->targets.push_back(row.target);
    }
    std::vector<Column> columns;
    columns.push_back(fixed(memory->keys.data(), rows.size()));
    Column text;
    text.length = static_cast<std::int64_t>(rows.size());
    text.offsets = memory->offsets.data();
    text.data = std::as_bytes(std::span{memory->bytes});
    columns.push_back(std::move(text));
    columns.push_back(fixed(memory->targets.data(), rows.size()));
    return Table{row_schema(), std::move(columns), static_cast<std::int64_t>(rows.size()), memory};
}

void append(Rows& rows, Table const& table) {
    auto const& schema = *table.schema();
    auto const& keys = table.columns().at(schema.index_of("key"));
    auto const& texts = table.columns().at(schema.index_of("text"));
    auto const& targets = table.columns().at(schema.index_of("target"));
    auto const* offsets = static_cast<std::int32_t const*>(texts.offsets) + texts.offset;
    auto const* bytes = reinterpret_cast<char const*>(texts.data.data());
    for (std::int64_t i = 0; i < table.num_rows(); ++i) {
        rows.emplace_back(
            reinterpret_cast<std::int64_t const*>(keys.values)[keys.offset + i],
            std::string{bytes + offsets[i], bytes + offsets[i + 1]},
            reinterpret_cast<std::uint32_t const*>(targets.values)[targets.offset + i]);
    }
}

Rows rows_of(Table const& table) {
    Rows rows;
    append(rows, table);
    return rows;
}

Rows count_rows(std::int64_t first, std::int64_t count, std::uint32_t targets) {
    Rows rows;
    for (auto key = first; key < first + count; ++key) {
        rows.emplace_back(key, "row " + std::to_string(key), static_cast<std::uint32_t>(key) % targets);
    }
    return rows;
}

std::vector<PackedData> packed_chunks(std::vector<std::int64_t> const& lengths, BufferResource& resource) {
    std::vector<PackedData> packed;
    std::int64_t first = 0;
    for (auto const length : lengths) {
        packed.push_back(pack(make_table(count_rows(first, length)), resource));
        first += length;
    }
    return packed;
}

ArrowStreamOwner stream_of(std::vector<Table> tables, std::string error, std::shared_ptr<bool> released) {
    // Its destruction is the release of the stream.
    struct Producer {
        Producer(std::vector<Table> tables_, std::string error_, std::shared_ptr<bool> released_)
            : tables{std::move(tables_)}, error{std::move(error_)}, released{std::move(released_)} {}
        ~Producer() {
            if (released) {
                *released = true;
            }
        }
        std::vector<Table> tables;
        std::size_t next{0};
        std::string error;
        std::shared_ptr<bool> released;
    };
    auto producer = std::make_shared<Producer>(std::move(tables), std::move(error), std::move(released));
    ArrowStreamOwner stream;
    export_table_stream(
        row_schema(),
        [producer = std::move(producer)]() -> std::optional<Table> {
            if (producer->next < producer->tables.size()) {
                return producer->tables[producer->next++];
            }
            if (!producer->error.empty()) {
                throw std::runtime_error{producer->error};
            }
            return std::nullopt;
        },
        stream.out());
    return stream;
}

ArrowStreamOwner stream_of_rows(Rows const& rows, std::size_t rows_per_table) {
    std::vector<Table> tables;
    for (std::size_t begin = 0; begin < rows.size(); begin += rows_per_table) {
        auto const end = std::min(rows.size(), begin + rows_per_table);
        tables.push_back(make_table(Rows(
            rows.begin() + static_cast<std::ptrdiff_t>(begin),
            rows.begin() + static_cast<std::ptrdiff_t>(end))));
    }
    return stream_of(std::move(tables));
}

Rows read_rows(ArrowStreamOwner stream) {
    TableReader reader{std::move(stream)};
    Rows rows;
    while (auto table = reader.next()) {
        append(rows, *table);
    }
    return rows;
}

}  // namespace rapidsmpf::streaming::testing
