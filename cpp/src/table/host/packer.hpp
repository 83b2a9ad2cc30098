// Packing in two passes: count what goes to each partition, give every piece its final place, copy each row once.
//
// Used in this order:
//   count()            for every block of every source table; finish_source() after each table
//   dictionaries       which values each partition gets and how codes change: for one source start_dictionaries(),
//                      collect() for every block again if that says so, finish_dictionaries(); for many unify_dictionaries()
//   allocate()         a place for every piece; write_dictionaries()
//   write()            start_source() and every block again, table by table
//   finish()           the packed tables
// Either one source table and many partitions (partition, split, pack) or many tables and one (concat).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <rapidsmpf/memory/buffer_resource.hpp>
#include <rapidsmpf/memory/packed_data.hpp>
#include <rapidsmpf/table/table.hpp>

#include "table/host/scatter.hpp"
#include "table/host/selection.hpp"

namespace rapidsmpf::detail {

// Views can address this much of one buffer. Smaller in tests.
inline constexpr std::int64_t max_view_segment = INT32_MAX;

class Packer {
  public:
    Packer(
        std::shared_ptr<Schema const> schema, std::size_t num_partitions,
        std::int64_t max_segment = max_view_segment);

    void count(Table const& table, IndexSelection const& selection);
    void count(Table const& table, RangeSelection const& selection);
    void finish_source(Table const& table);

    [[nodiscard]] bool start_dictionaries(Table const& table);
    void collect(Table const& table, IndexSelection const& selection);
    void collect(Table const& table, RangeSelection const& selection);
    void finish_dictionaries(Table const& table);
    void unify_dictionaries(std::span<Table const* const> tables);

    void allocate(std::span<std::uint32_t const> placement, BufferResource& br, AllowOverbooking allow);

    void start_source(std::size_t source, Table const& table);
    void write(Table const& table, IndexSelection const& selection);
    void write(Table const& table, RangeSelection const& selection);
    void write_dictionaries();

    [[nodiscard]] std::vector<PackedData> finish();

  private:
    struct Node {
        Field const* field;
        int parent;            // -1 for a column
        std::size_t position;  // among the parent's children, or among the columns
        std::vector<std::size_t> children;
        std::size_t values{0};  // node of the dictionary's values; 0: no dictionary
        bool is_nullable{false};
        bool leads_to_compacted_codes{false};
        // View columns: by source and partition, whether whole buffers are copied; and where they went.
        std::vector<std::uint8_t> moves_buffers;
        std::vector<std::vector<MovedBuffer>> moved;  // of the present source, by partition
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
        std::vector<std::size_t> codes_at;  // by partition: where its next code is put, later taken from
    };

    std::size_t add_node(Field const& field, int parent, std::size_t position);
    [[nodiscard]] Piece* pieces(std::size_t node) noexcept { return pieces_.data() + node * num_partitions_; }
    [[nodiscard]] Column const& column_of(std::size_t node, Table const& table) const;
    // A column of the table with nothing to count but rows.
    [[nodiscard]] static bool has_only_rows(Node const& node);
    [[nodiscard]] DictionaryPlan& plan_of(std::size_t node);

    // Calls visit(node, column, selection) for a column and, while it returns true, for its children.
    template <typename Selection, typename Visitor>
    void walk(
        std::size_t node, Column const& column, Selection const& selection, std::size_t depth,
        Visitor const& visit);
    template <typename Selection>
    void count_rows(Table const& table, Selection const& selection);
    template <typename Selection>
    void count_node(std::size_t node, Column const& column, Selection const& selection);
    template <typename Selection>
    void collect_rows(Table const& table, Selection const& selection);
    template <typename Selection>
    void collect_codes(std::size_t node, Column const& column, Selection const& selection);
    template <typename Selection>
    void write_rows(Table const& table, Selection const& selection);
    template <typename Selection>
    void write_node(std::size_t node, Column const& column, Selection const& selection);
    template <typename Run>
    void append_values(Node& node, std::size_t partition, Piece& piece, Column const& column, Run const& run);
    template <typename Run>
    void append_codes(
        std::size_t node, std::size_t partition, Piece& piece, Column const& column, Run const& run);

    void finish_source_node(std::size_t node, Column const& column);
    void start_source_node(std::size_t node, Column const& column);
    void compact_codes(DictionaryPlan& plan, std::shared_ptr<Column const> const& values);
    void unify(DictionaryPlan& plan, std::vector<std::shared_ptr<Column const>> const& sources);
    void count_dictionary_values(DictionaryPlan& plan);
    void check_lengths(Node const& node, std::size_t partition);

    std::shared_ptr<Schema const> schema_;
    std::size_t num_partitions_;
    std::int64_t max_segment_;
    std::vector<Node> nodes_;           // in the order of the metadata
    std::vector<std::size_t> columns_;  // the nodes of the table's columns
    std::vector<Piece> pieces_;         // by node, then partition
    std::vector<std::int64_t> rows_;    // of the table, by partition
    std::vector<DictionaryPlan> dictionaries_;
    std::vector<std::unique_ptr<RangeList>> scratch_;  // by depth of nesting
    std::vector<std::unique_ptr<Buffer>> buffers_;     // by partition
    std::size_t source_{0};
    Stores stores_{Stores::cached};
};

template <typename Selection, typename Visitor>
void Packer::walk(
    std::size_t node, Column const& column, Selection const& selection, std::size_t depth,
    Visitor const& visit) {
    if (!visit(node, column, selection)) {
        return;
    }
    auto const& field = *nodes_[node].field;
    switch (field.layout()) {
        case Layout::list32:
        case Layout::list64:
        case Layout::fixed_list: {
            if (scratch_.size() <= depth) {
                scratch_.resize(depth + 1);
            }
            if (!scratch_[depth]) {
                scratch_[depth] = std::make_unique<RangeList>();
            }
            auto const items = select_items(field, column, selection, *scratch_[depth]);
            walk(nodes_[node].children[0], column.children[0], items, depth + 1, visit);
            break;
        }
        case Layout::structure:
            for (std::size_t i = 0; i < column.children.size(); ++i) {
                walk(nodes_[node].children[i], column.children[i], selection, depth, visit);
            }
            break;
        default:
            break;
    }
}

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
