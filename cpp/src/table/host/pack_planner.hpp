// Makes a PackPlan: the counting is in pack_plan.cpp, what becomes of dictionaries in pack_dictionaries.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "table/host/pack_plan.hpp"

namespace rapidsmpf::detail {

class PackPlanner {
  public:
    PackPlanner(std::shared_ptr<Schema const> schema, std::size_t num_partitions, std::int64_t max_segment);

    // Adds the rows of a source table; a whole table by one block.
    template <typename Selection>
    void count(Table const& table, std::span<Selection const> blocks);

    // Of one source table: which values each partition gets, and how codes change. Visits the rows again if that depends on
    // the values that occur.
    template <typename Selection>
    void partition_dictionaries(Table const& table, std::span<Selection const> blocks);
    // Of many: one dictionary, and the new codes of each source.
    void unify_dictionaries(std::span<Table const* const> tables);

    [[nodiscard]] PackPlan finish() &&;

  private:
    std::size_t add_node(Field const& field, int parent, std::size_t position);
    [[nodiscard]] Column const& column_of(std::size_t node, Table const& table) const;
    [[nodiscard]] DictionaryPlan& dictionary_of(std::size_t node);
    [[nodiscard]] ColumnSlot& counted(std::size_t node, std::size_t partition) noexcept {
        return plan_.layout.slot(node, partition);
    }

    template <typename Selection>
    void count_node(std::size_t node, Column const& column, Selection const& selection);
    // Counts a column and its descendants as rows of one source.
    void count_all(std::size_t node, Column const& column, RangeSelection const& selection);
    void finish_source(std::size_t node, Column const& column);

    [[nodiscard]] bool start_compaction(Table const& table);
    template <typename Selection>
    void collect_codes(std::size_t node, Column const& column, Selection const& selection);
    void finish_compaction(Table const& table);
    void compact_codes(DictionaryPlan& dictionary, std::shared_ptr<Column const> const& values);
    void unify(DictionaryPlan& dictionary, std::vector<std::shared_ptr<Column const>> const& sources);
    void count_values(DictionaryPlan& dictionary);

    std::size_t num_partitions_;
    PackPlan plan_;
    std::vector<std::int64_t> source_bytes_;  // of text of the source being counted, by node, then partition
    ColumnWalk walk_;
};

}  // namespace rapidsmpf::detail
