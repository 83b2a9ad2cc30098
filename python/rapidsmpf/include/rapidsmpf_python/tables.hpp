// Tables for Python: whole streams of tables into packed partitions and back. None of these needs the GIL.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <Python.h>
#include <rapidsmpf_python/arrow.hpp>
#include <rapidsmpf_python/collectives.hpp>

#include <rapidsmpf/table/packed.hpp>
#include <rapidsmpf/table/partition.hpp>
#include <rapidsmpf/table/table.hpp>
#include <rapidsmpf/table/table_stream.hpp>

namespace rapidsmpf::python {

using TablePointer = std::shared_ptr<Table const>;

// A column by its name, or by its index when `name` is empty and `by_name` false.
struct ColumnReference {
    std::string name;
    std::int64_t index{0};
    bool by_name{false};
};

[[nodiscard]] inline std::vector<int> resolve(
    std::vector<ColumnReference> const& columns, Schema const& schema) {
    std::vector<int> result;
    result.reserve(columns.size());
    for (auto const& column : columns) {
        if (column.by_name) {
            result.push_back(static_cast<int>(schema.index_of(column.name)));
            continue;
        }
        RAPIDSMPF_EXPECTS(
            column.index >= 0 && static_cast<std::size_t>(column.index) < schema.num_columns(),
            "there is no column " + std::to_string(column.index) + ": the table has "
                + std::to_string(schema.num_columns()) + " columns",
            std::out_of_range);
        result.push_back(static_cast<int>(column.index));
    }
    return result;
}

// A stream of one batch.
[[nodiscard]] inline ArrowStreamOwner stream_of(ArrowSchemaOwner schema, ArrowArrayOwner array) {
    ArrowStreamOwner stream;
    Table::import_arrow(schema.get(), array.get()).export_stream(stream.out());
    return stream;
}

// The tables of a stream in groups of about `group_bytes`, each concatenated to one.
class GroupedReader {
  public:
    GroupedReader(ArrowStreamOwner stream, std::size_t group_bytes, BufferResource& br)
        : reader_{std::move(stream)}, group_bytes_{group_bytes}, br_{br} {}
    [[nodiscard]] std::shared_ptr<Schema const> const& schema() const noexcept { return reader_.schema(); }
    // Nothing at the end.
    [[nodiscard]] std::optional<Table> next() {
        std::vector<Table> group;
        std::size_t bytes{0};
        while (bytes < group_bytes_) {
            auto table = reader_.next();
            if (!table) {
                break;
            }
            bytes += table->byte_size();
            group.push_back(std::move(*table));
        }
        if (group.empty()) {
            return std::nullopt;
        }
        if (group.size() == 1) {
            return std::move(group.front());
        }
        return concat(group, br_);
    }

  private:
    TableReader reader_;
    std::size_t group_bytes_;
    BufferResource& br_;
};

// All tables of a stream as one; copies nothing when there is one.
[[nodiscard]] inline TablePointer read_all(ArrowStreamOwner stream, BufferResource& br) {
    GroupedReader reader{std::move(stream), std::numeric_limits<std::size_t>::max(), br};
    auto table = reader.next();
    return std::make_shared<Table const>(table ? std::move(*table) : Table::empty(reader.schema()));
}

// Partitions a stream group by group, so that no more than a group is there beside the result.
[[nodiscard]] inline PackedList partition_stream(
    ArrowStreamOwner stream, std::vector<ColumnReference> const& columns, int num_partitions,
    BufferResource& br, std::uint64_t seed) {
    constexpr std::size_t group_bytes = std::size_t{256} << 20;
    GroupedReader reader{std::move(stream), group_bytes, br};
    auto const keys = resolve(columns, *reader.schema());
    std::vector<std::vector<PackedData>> pieces;
    while (auto table = reader.next()) {
        auto parts = partition_and_pack(*table, keys, num_partitions, br, seed);
        table.reset();
        pieces.resize(parts.size());
        for (std::size_t i = 0; i < parts.size(); ++i) {
            pieces[i].push_back(std::move(parts[i]));
        }
    }
    if (pieces.empty()) {
        return to_pointers(partition_and_pack(Table::empty(reader.schema()), keys, num_partitions, br, seed));
    }
    PackedList result;
    result.reserve(pieces.size());
    for (auto& piece : pieces) {
        auto packed =
            piece.size() == 1 ? std::move(piece.front()) : pack(unpack_and_concat(std::move(piece), br), br);
        result.push_back(std::make_unique<PackedData>(std::move(packed)));
    }
    return result;
}

[[nodiscard]] inline PackedList split_table(
    Table const& table, std::vector<std::int64_t> const& splits, BufferResource& br) {
    return to_pointers(split_and_pack(table, splits, br));
}

[[nodiscard]] inline std::unique_ptr<PackedData> pack_table(Table const& table, BufferResource& br) {
    return std::make_unique<PackedData>(pack(table, br));
}

[[nodiscard]] inline TablePointer unpack_table(std::unique_ptr<PackedData> packed) {
    return std::make_shared<Table const>(unpack(std::move(*packed)));
}

[[nodiscard]] inline TablePointer concat_packed(PackedList parts, BufferResource& br) {
    return std::make_shared<Table const>(unpack_and_concat(to_values(std::move(parts)), br));
}

[[nodiscard]] inline ArrowStreamOwner table_stream(Table const& table) {
    ArrowStreamOwner stream;
    table.export_stream(stream.out());
    return stream;
}
[[nodiscard]] inline ArrowSchemaOwner table_schema(Table const& table) {
    ArrowSchemaOwner schema;
    table.export_schema(schema.out());
    return schema;
}
[[nodiscard]] inline ArrowArrayOwner table_array(Table const& table) {
    ArrowArrayOwner array;
    table.export_array(array.out());
    return array;
}
[[nodiscard]] inline std::vector<std::string> column_names(Schema const& schema) {
    std::vector<std::string> names;
    for (auto const& field : schema.fields()) {
        names.push_back(field.name());
    }
    return names;
}
[[nodiscard]] inline std::vector<std::string> column_types(Schema const& schema) {
    std::vector<std::string> types;
    for (auto const& field : schema.fields()) {
        types.push_back(field.type_name());
    }
    return types;
}
[[nodiscard]] inline ArrowSchemaOwner export_schema(Schema const& schema) {
    ArrowSchemaOwner out;
    schema.to_arrow(out.out());
    return out;
}

}  // namespace rapidsmpf::python
