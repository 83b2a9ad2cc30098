// What packing will write, before a byte is copied: the rows and bytes of each column in each partition, where they go, and what
// becomes of dictionaries.
//
// Packing has two passes. A PackPlan counts; a PackWriter (pack_writer.hpp) allocates, and copies each row once to its final
// place. Either one source table and many partitions (partition, split, pack), or many source tables and one (concat).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <rapidsmpf/table/table.hpp>

#include "table/host/selection.hpp"
#include "table/packed/packed_layout.hpp"

namespace rapidsmpf::detail {

// Views can address this much of one buffer. Smaller in tests.
inline constexpr std::int64_t max_view_segment = INT32_MAX;

// A column of the schema, or a child or the dictionary's values of one.
struct PackNode {
    Field const* field;
    int parent;            // -1 for a column
    std::size_t position;  // among the parent's children, or among the columns
    std::vector<std::size_t> children;
    std::size_t values{0};  // node of the dictionary's values; 0: no dictionary
    bool is_nullable{false};
    bool leads_to_compacted_codes{false};
    // View columns, by source and partition: whether whole buffers are copied.
    std::vector<std::uint8_t> moves_buffers;
};

// What becomes of one dictionary column.
struct DictionaryPlan {
    std::size_t node;
    // The values to write, by source table.
    struct Values {
        std::shared_ptr<Column const> column;
        RangeList list;
        RangeSelection selection{};
    };
    std::vector<Values> values;
    // Many sources: the new numbers of each source's codes; empty: as they are.
    std::vector<std::vector<std::uint32_t>> renumbering;
    // Many partitions, only values that occur are kept: the new codes of all rows, by partition.
    bool is_compacted{false};
    std::vector<std::uint32_t> codes;
    std::vector<std::size_t> codes_at;  // by partition: where the next code is put or taken
};

struct PackPlan {
    std::shared_ptr<Schema const> schema;
    std::int64_t max_segment;
    std::vector<PackNode> nodes;       // in the order of the metadata
    std::vector<std::size_t> columns;  // the nodes of the table's columns
    PackedLayout layout;  // counted, not yet placed; where nulls are possible, all rows count as nulls
    std::vector<std::int64_t> rows;  // of the table, by partition
    std::vector<DictionaryPlan> dictionaries;

    [[nodiscard]] std::size_t num_partitions() const noexcept { return rows.size(); }
};

// One table into many partitions. `blocks` select all of its rows, and the same ones are given to the writer.
[[nodiscard]] PackPlan plan_partitions(
    Table const& table, std::size_t num_partitions, std::span<IndexSelection const> blocks);
[[nodiscard]] PackPlan plan_partitions(
    Table const& table, std::size_t num_partitions, std::span<RangeSelection const> blocks);

// All rows of many tables, whose columns are those of `schema`, one after the other in one partition. Throws
// std::invalid_argument when their dictionaries cannot be made one.
[[nodiscard]] PackPlan plan_concat(
    std::shared_ptr<Schema const> schema, std::span<Table const* const> tables,
    std::int64_t max_segment = max_view_segment);

// Visits columns and their descendants, with the rows that are selected of each.
class ColumnWalk {
  public:
    // Calls visit(node, column, selection) for a column and, while it returns true, for its children.
    template <typename Selection, typename Visitor>
    void operator()(
        std::span<PackNode const> nodes, std::size_t node, Column const& column, Selection const& selection,
        Visitor const& visit, std::size_t depth = 0) {
        if (!visit(node, column, selection)) {
            return;
        }
        auto const& field = *nodes[node].field;
        switch (field.layout()) {
            case Layout::list32:
            case Layout::list64:
            case Layout::fixed_list: {
                while (items_.size() <= depth) {
                    items_.push_back(std::make_unique<RangeList>());
                }
                auto const items = select_items(field, column, selection, *items_[depth]);
                (*this)(nodes, nodes[node].children[0], column.children[0], items, visit, depth + 1);
                break;
            }
            case Layout::structure:
                for (std::size_t i = 0; i < column.children.size(); ++i) {
                    (*this)(nodes, nodes[node].children[i], column.children[i], selection, visit, depth);
                }
                break;
            default:
                break;
        }
    }

  private:
    std::vector<std::unique_ptr<RangeList>> items_;  // by depth of nesting
};

// Calls use(T{}) with the unsigned type of codes of `width` bytes.
template <typename Use>
void with_code_type(std::int64_t width, Use const& use) {
    switch (width) {
        case 1:
            use(std::uint8_t{});
            break;
        case 2:
            use(std::uint16_t{});
            break;
        case 4:
            use(std::uint32_t{});
            break;
        default:
            use(std::uint64_t{});
            break;
    }
}

}  // namespace rapidsmpf::detail
