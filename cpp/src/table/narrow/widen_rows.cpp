#include "table/narrow/widen_rows.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include <rapidsmpf/table/partition.hpp>

#include "table/narrow/wide_writer.hpp"
#include "table/packed/slab.hpp"

namespace rapidsmpf::detail {

Table widen_and_concat(
    std::shared_ptr<Schema const> wide, std::vector<std::optional<Table>> tables, BufferResource& br,
    AllowOverbooking allow) {
    std::vector<std::size_t> changed;
    std::vector<std::size_t> kept;
    for (std::size_t i = 0; i < wide->num_columns(); ++i) {
        bool const is_kept = std::ranges::all_of(tables, [&](std::optional<Table> const& table) {
            return table->schema()->fields()[i].format() == wide->fields()[i].format();
        });
        (is_kept ? kept : changed).push_back(i);
    }
    std::int64_t rows = 0;
    std::vector<Table> selected;
    selected.reserve(tables.size());
    for (auto const& table : tables) {
        rows += table->num_rows();
        selected.push_back(table->select(kept));
    }
    struct Owner {
        Table kept;
        std::shared_ptr<Buffer> buffer;
    };
    auto const owner = std::make_shared<Owner>(Owner{concat(selected, br, allow), nullptr});
    selected.clear();
    WideWriter writer{*wide, tables, changed, rows};
    owner->buffer = std::move(allocate_parts(std::array{writer.size()}, {}, br, allow).front());
    writer.place(owner->buffer->mutable_host_bytes().data());
    for (auto& table : tables) {
        writer.append(*table);
        table.reset();
    }
    std::vector<Column> columns(wide->num_columns());
    for (std::size_t i = 0; i < kept.size(); ++i) {
        columns[kept[i]] = owner->kept.columns()[i];
    }
    for (std::size_t i = 0; i < changed.size(); ++i) {
        columns[changed[i]] = writer.column(i);
    }
    return Table{std::move(wide), std::move(columns), rows, owner};
}

}  // namespace rapidsmpf::detail
